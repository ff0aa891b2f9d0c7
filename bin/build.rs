//! Tells the program which commit and target it is built from, for `--version`, and links the unwinder into it.

use std::path::Path;
use std::process::Command;

fn main() {
    link_unwinder();
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=TRACKER_COMMIT={commit}");
    println!("cargo::rustc-env=TRACKER_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    // The commit changes when HEAD does, or the branch that it names.
    for path in ["HEAD", "logs/HEAD"].iter().filter_map(|name| git(&["rev-parse", "--git-path", name])) {
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git says; `None` outside a checkout or without git.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Takes the unwinder from the compiler's archive, if it has one: to load libgcc_s.so is a thirtieth of a run of `true`.
fn link_unwinder() {
    const ARCHIVE: &str = "libgcc_eh.a";
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".into());
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let found = Command::new(linker).arg(format!("-print-file-name={ARCHIVE}")).output();
    // One that has no such file says the name as it is.
    let is_there = found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute());
    if is_gnu && is_there {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
