//! A program that links two versions of the core: its own, and that of a library which has another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resource_tracker_tests::{shared_library, text};

const MANIFEST: &str = r#"
[package]
name = "two-cores"
version = "1.0.0"
edition = "2024"

[dependencies]
anyhow = { version = "1", default-features = false }
before = { package = "resource-tracker-core", path = "../before/core" }
now = { package = "resource-tracker-core", path = "ROOT/core" }
schemars = { version = "1", default-features = false, features = ["derive", "std"] }
serde = { version = "1", features = ["derive"] }
typetag = "0.2"

[workspace]
"#;

/// A source and a sink of the version `CORE`, each registered under names that the other version has as well.
const SOURCE: &str = r#"
use std::sync::{Arc, Mutex};
use std::time::Duration;

use CORE::prelude::*;
use CORE::{Outcome, Run, Settings, Sink, Tracker};

#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
struct Version {
    name: String,
}

impl Section for Version {
    const NAME: &'static str = "version";
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
struct VersionConfig {}

#[typetag::deserialize(name = "version")]
impl SourceConfig for VersionConfig {
    fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(VersionSource)))
    }
}

struct VersionSource;

impl Source for VersionSource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        out.section::<Version>().name = "CORE".to_owned();
        Ok(())
    }
}

register_section!(Version);
register_source!(SourceEntry::new::<VersionConfig>("version", "Which core it is").on_by_default());

struct Names(Arc<Mutex<Vec<String>>>);

impl Sink for Names {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend(sample.get::<Version>().map(|version| version.name.clone()));
        Ok(())
    }
}

pub fn samples() -> anyhow::Result<Vec<String>> {
    let mut run = Run::new("two-cores", "1.0.0");
    run.interval = Duration::from_millis(20);
    let names = Arc::new(Mutex::new(Vec::new()));
    let mut tracker = Tracker::new(run).sink("names", Names(Arc::clone(&names)));
    for (name, config) in Settings::new().sources()? {
        tracker = tracker.source(name, config);
    }
    let running = tracker.start()?;
    while names.lock().unwrap().len() < 3 {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.finish(Outcome::default());
    let names = names.lock().unwrap().split_off(0);
    Ok(names)
}
"#;

const MAIN: &str = r#"
mod of_before;
mod of_now;

fn main() -> anyhow::Result<()> {
    let other = std::thread::spawn(of_before::samples);
    let now = of_now::samples()?;
    let before = other.join().unwrap()?;
    assert!(before.iter().all(|name| name == "before") && now.iter().all(|name| name == "now"));
    println!("{} and {}", before[0], now[0]);
    Ok(())
}
"#;

/// Each has its own registry, and neither defines a symbol that the other one has.
#[test]
fn two_versions_of_the_core_are_linked_into_one_program() {
    let test = "two_versions_of_the_core_are_linked_into_one_program";
    if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_none() {
        println!("skipped: {test} runs with the long tests");
        return;
    }
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path: PathBuf = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::create_dir(folder.path().join("before")).unwrap();
    let mut copy = Command::new("cp");
    // What it is made of as well.
    copy.arg("-r").args(["core", "json"].map(|part| root.join(part))).arg(folder.path().join("before"));
    assert!(copy.status().unwrap().success());
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = workspace.lines().find(|line| line.starts_with("members = ")).unwrap();
    let version = workspace.lines().find(|line| line.starts_with("version = ")).unwrap();
    let before = workspace.replace(members, "members = [\"core\", \"json\"]").replace(version, "version = \"0.0.9\"");
    let default = before.lines().find(|line| line.starts_with("default-members = ")).unwrap();
    write("before/Cargo.toml", &before.replace(default, ""));
    write("program/Cargo.toml", &MANIFEST.replace("ROOT", root.to_str().unwrap()));
    // The versions of the libraries that this machine has.
    write("program/Cargo.lock", &fs::read_to_string(root.join("Cargo.lock")).unwrap());
    for core in ["before", "now"] {
        write(&format!("program/src/of_{core}.rs"), &SOURCE.replace("CORE", core));
    }
    write("program/src/main.rs", MAIN);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
        cargo.env_remove(name);
    }
    cargo.args(["run", "--quiet", "--offline"]).current_dir(folder.path().join("program"));
    let output =
        cargo.env("CARGO_TARGET_DIR", shared_library("headroom").with_file_name("two-cores")).output().unwrap();
    assert_eq!(text(&output.stdout), "before and now\n", "{}", text(&output.stderr));
}
