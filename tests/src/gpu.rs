//! Stand-ins for the vendors' libraries and for what sysfs shows of their cards.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::{command, samples, shared_library, text, tracker};

/// A folder with the stand-in for NVML under its real name, and its script.
pub struct Nvml {
    pub folder: TempDir,
}

impl Nvml {
    pub fn new(script: Json) -> Self {
        let nvml = Self { folder: tempfile::tempdir().unwrap() };
        symlink(shared_library("fake-nvml"), nvml.folder.path().join("libnvidia-ml.so.1")).unwrap();
        nvml.play(script);
        nvml
    }

    pub fn play(&self, script: Json) {
        // In one step, because it can be read at any time.
        fs::write(self.folder.path().join("next"), script.to_string()).unwrap();
        fs::rename(self.folder.path().join("next"), self.script()).unwrap();
    }

    pub fn script(&self) -> PathBuf {
        self.folder.path().join("script.json")
    }

    /// The tracker, which finds the library as the dynamic linker does.
    pub fn tracker(&self) -> Command {
        let mut tracker = command(tracker());
        tracker.env("LD_LIBRARY_PATH", self.folder.path()).env("FAKE_NVML", self.script());
        tracker
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.tracker().args(arguments).output().unwrap()
    }
}

/// The samples that have GPUs: the library takes a while to load.
pub fn with_gpus(output: &Output) -> Vec<Json> {
    let stream = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    let all = samples(stream).into_iter();
    let found: Vec<Json> = all.filter(|sample| !sample["gpu"].as_array().unwrap().is_empty()).collect();
    assert!(!found.is_empty(), "{}", text(stream));
    found
}

pub fn busy(number: u32) -> Json {
    json!({
        "uuid": format!("GPU-{number}"), "minor": number, "utilization": [70, 30], "memory": [80u64 << 30, 20u64 << 30],
    })
}

/// A machine with one AMD card, as sysfs shows it.
pub fn amd_machine(root: &Path) -> Vec<String> {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("module/amdgpu/version", "6.12.12\n");
    let device = "class/drm/card1/device";
    write(&format!("{device}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c1:00.0\n");
    write(&format!("{device}/device"), "0x74a1\n");
    write(&format!("{device}/revision"), "0x00\n");
    write(&format!("{device}/gpu_busy_percent"), "50\n");
    write(&format!("{device}/mem_info_vram_total"), "1000\n");
    write(&format!("{device}/mem_info_vram_used"), "100\n");
    write(&format!("{device}/drm/renderD128/dev"), "226:128\n");
    write("dri/renderD128", "");
    let set = |key: &str, path: PathBuf| format!("--set={key}={}", path.display());
    vec![set("tracker.sysfs", root.to_owned()), set("sources.amd.devices", root.join("dri"))]
}

/// That a row of the CSV has these values in these columns. (In the first ones the library may still be starting.)
#[track_caller]
pub fn assert_row(output: &Output, expected: &[(&str, &str)]) {
    let csv = text(&output.stderr);
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let has_all = |row: Vec<&str>| expected.iter().all(|(name, value)| row[column(name)] == *value);
    assert!(lines.any(has_all), "{expected:?} in\n{csv}");
}
