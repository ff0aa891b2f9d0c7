//! The plugins that third parties copy: of several languages, compilers and versions of the interface, and the book's
//! words about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resource_tracker_tests::plugin::{SLEEP, adapters, run};
use resource_tracker_tests::{command, has, number, samples, shared_library, text, tracker};
use serde_json::json;

fn compile(compiler: &str, flags: &[&str], include: &Path, out: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins-example/c-plugin/thermal.c");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]).args(flags);
    let status = command.arg("-I").arg(include).arg(source).arg("-o").arg(out).status().unwrap();
    assert!(status.success(), "{compiler} {flags:?}");
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/include")
}

fn zones(root: &Path) {
    for (zone, kind, temp) in [(0, "x86_pkg_temp", "61000\n"), (1, "acpitz", "-5500\n"), (2, "off", "")] {
        let zone = root.join(format!("class/thermal/thermal_zone{zone}"));
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("type"), format!("{kind}\n")).unwrap();
        fs::write(zone.join("temp"), temp).unwrap();
    }
}

fn assert_temperatures(plugin: &Path) {
    let root = tempfile::tempdir().unwrap();
    zones(root.path());
    let set = format!("--set=tracker.sysfs={}", root.path().display());
    let output = run(plugin, &[&set, "--", "sleep", "0.5"]);
    assert_eq!(text(&output.stderr), "", "{}", plugin.display());
    let all = samples(&output.stdout);
    let expected = json!([
        { "zone": 0, "type": "x86_pkg_temp", "celsius": 61.0 },
        { "zone": 1, "type": "acpitz", "celsius": -5.5 },
        { "zone": 2, "type": "off", "celsius": null },
    ]);
    assert_eq!(all[all.len() - 1]["thermal"], expected);
}

#[test]
fn a_plugin_in_c_of_several_compilers() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        if !has(compiler, "a_plugin_in_c_of_several_compilers") {
            continue;
        }
        for level in ["-O0", "-O2"] {
            let plugin = folder.path().join(format!("{compiler}{level}.so"));
            compile(compiler, &[level], &include(), &plugin);
            assert_temperatures(&plugin);
        }
    }
}

#[test]
fn a_plugin_that_was_built_with_the_header_of_before() {
    if !has("cc", "a_plugin_that_was_built_with_the_header_of_before") {
        return;
    }
    // Not in /tmp itself, where anyone can put files.
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("thermal.so");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("fakes/abi-1.0");
    compile("cc", &["-O1"], &header, &plugin);
    assert_temperatures(&plugin);
}

#[test]
fn the_header_is_what_the_types_are() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["run", "--quiet", "--package", "resource-tracker-tests", "--bin", "plugin-header"];
    let output = Command::new(cargo).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let header = fs::read_to_string(include().join("resource_tracker_plugin.h")).unwrap();
    assert_eq!(text(&output.stdout).trim_end(), header.trim_end(), "run docs/generate");
}

/// Another compiler: both sides have only C in common.
#[test]
fn a_plugin_of_another_rust_compiler() {
    let test = "a_plugin_of_another_rust_compiler";
    if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_none() {
        println!("skipped: {test} runs with the long tests");
        return;
    }
    if !has("rustup", test) {
        return;
    }
    let version = |toolchain: &str| {
        let output = Command::new("rustup").args(["run", toolchain, "rustc", "--version"]).output().unwrap();
        text(&output.stdout)
    };
    let list = Command::new("rustup").args(["toolchain", "list"]).output().unwrap();
    let own = text(&Command::new("rustc").arg("--version").output().unwrap().stdout);
    let list = text(&list.stdout);
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let Some(other) = names.into_iter().find(|name| !version(name).is_empty() && version(name) != own) else {
        println!("skipped: {test} needs a second toolchain");
        return;
    };
    println!("built by {}loaded by a program of {own}", version(other));
    let target = shared_library("infiniband").with_file_name("other-toolchain");
    let mut cargo = Command::new("rustup");
    for name in ["RUSTUP_TOOLCHAIN", "RUSTC", "CARGO", "RUSTFLAGS", "CARGO_MANIFEST_DIR"] {
        cargo.env_remove(name);
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins-example/infiniband/Cargo.toml");
    cargo.args(["run", other, "cargo", "build", "--quiet", "--release", "--manifest-path", manifest]);
    assert!(cargo.env("CARGO_TARGET_DIR", &target).status().unwrap().success());
    let root = tempfile::tempdir().unwrap();
    let set = adapters(root.path());
    let plugin = target.join("release/libinfiniband.so");
    let output = run(&plugin, &[&[set.as_str()], &SLEEP[..]].concat());
    assert_eq!(text(&output.stderr), "");
    let all = samples(&output.stdout);
    assert_eq!(number(&all[all.len() - 1], "/infiniband/0/rx_bytes_total"), 1000.0);
}

/// Every example, reading by reading, under valgrind: nothing is used that is not there, and nothing is lost.
#[test]
fn the_examples_are_clean_over_many_ticks() {
    if !has("valgrind", "the_examples_are_clean_over_many_ticks") {
        return;
    }
    let times = if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some() { "10000" } else { "300" };
    let root = tempfile::tempdir().unwrap();
    let set = adapters(root.path()).replace("--set=", "");
    let mut plugins = vec![
        (shared_library("infiniband"), vec![set]),
        (shared_library("uptime"), vec![]),
        (shared_library("fake-fields"), vec![]),
    ];
    let thermal = root.path().join("thermal.so");
    if has("cc", "the C plugin under valgrind") {
        compile("cc", &["-g", "-O1"], &include(), &thermal);
        zones(root.path());
        plugins.push((thermal, vec![format!("sysfs={}", root.path().display())]));
    }
    for (plugin, arguments) in plugins {
        let mut soak = command("valgrind");
        soak.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
        soak.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        let output =
            soak.arg(env!("CARGO_BIN_EXE_plugin-soak")).arg(&plugin).arg(times).args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {said}", plugin.display());
        assert!(!said.contains("=="), "{said}");
        assert!(text(&output.stdout).contains(times), "{}", text(&output.stdout));
    }
}

/// The framework knows nothing of its example.
#[test]
fn nothing_but_the_example_speaks_of_infiniband() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = ["core", "sources", "sinks", "bin"].map(|name| root.join(name)).into();
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(content) = fs::read_to_string(&path) {
                looked_at += 1;
                assert!(!content.to_lowercase().contains("infiniband"), "{}", path.display());
            }
        }
    }
    assert!(looked_at > 100);
}

/// The tutorial, word for word: the commands of the book, in an empty folder.
#[test]
fn the_tutorial_ends_in_a_loaded_plugin() {
    if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_none() {
        println!("skipped: the_tutorial_ends_in_a_loaded_plugin runs with the long tests");
        return;
    }
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let page = fs::read_to_string(root.join("docs/src/plugin-source.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let commands: String = blocks.collect();
    assert!(commands.contains("cargo test") && commands.contains("--plugin target/release"), "{commands}");
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", tracker().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = command("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
        shell.env_remove(name);
    }
    shell.env("TRACKER", &root).env("PATH", path).env("CARGO_NET_OFFLINE", "true").current_dir(folder.path());
    let output = shell.args(["-e", "-c", &commands]).output().unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("\"my_source\":{\"open_files\":"), "{printed}");
    assert!(printed.contains("my-source    source  on (by default), from target/release/libmy_source.so"), "{printed}");
    // The lengths that the page gives.
    let template = fs::read_to_string(root.join("plugins-example/template/src/lib.rs")).unwrap();
    let lines = template.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(page.contains(&format!("`src/lib.rs`, of {lines} lines")), "{lines}");
    let files = ["lib.rs", "port.rs", "counter.rs"].map(|name| root.join("plugins-example/infiniband/src").join(name));
    let real: usize = files.map(|file| fs::read_to_string(file).unwrap().lines().count()).iter().sum();
    assert!(page.contains(&format!("in three files of {real} lines with comments")) && real < 400, "{real}");
    let thermal = fs::read_to_string(root.join("plugins-example/c-plugin/thermal.c")).unwrap();
    assert!(thermal.lines().count() < 120);
}
