//! What programs that embed the core can use of it, as it is written down in `core/public-api.txt`: a change of it is seen
//! in review.

use std::fs;
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::text;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/public-api.txt");

#[test]
fn the_public_api_of_the_core_is_what_is_written_down() {
    let nightly = Command::new("rustup").args(["run", "nightly", "cargo", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        println!("skipped: the_public_api_of_the_core_is_what_is_written_down needs a nightly toolchain");
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap().join("public-api");
    let mut cargo = Command::new("rustup");
    for name in ["RUSTUP_TOOLCHAIN", "RUSTC", "CARGO", "RUSTFLAGS", "RUSTDOCFLAGS"] {
        cargo.env_remove(name);
    }
    cargo.args([
        "run",
        "nightly",
        "cargo",
        "rustdoc",
        "--quiet",
        "--package",
        "resource-tracker-core",
        "--lib",
        "--target-dir",
    ]);
    cargo.arg(&target).args(["--", "-Z", "unstable-options", "--output-format", "json"]);
    let output = cargo.current_dir(Path::new(FILE).parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = target.join("doc/resource_tracker_core.json");
    let output = Command::new(env!("CARGO_BIN_EXE_public-api")).arg(json).output().unwrap();
    if text(&output.stderr).contains("format version") {
        println!("skipped: rustdoc of this nightly toolchain writes another format: {}", text(&output.stderr));
        return;
    }
    let now = text(&output.stdout);
    assert!(now.lines().count() > 100, "{}", text(&output.stderr));
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(FILE, &now).unwrap();
    }
    let written = fs::read_to_string(FILE).unwrap_or_default();
    let lines = |of: &str, than: &str| {
        let than: Vec<&str> = than.lines().collect();
        of.lines().filter(|line| !than.contains(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (new, gone) = (lines(&now, &written), lines(&written, &now));
    assert_eq!((new, gone), (Vec::new(), Vec::new()), "run it with UPDATE_PUBLIC_API=1 when that is meant");
}
