//! Stand-ins for the vendors' libraries and for what sysfs shows of their cards.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::{Recording, command, shared_library, text, tracker};

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

    /// Records a run around a script.
    pub fn record(&self, recording: &Recording, options: &[&str], script: &str) -> Output {
        let mut tracker = self.tracker();
        tracker.args(options).arg("-o").arg(recording.path()).args(["--", "sh", "-c", script]);
        recording.run(&mut tracker)
    }

    /// Some samples with GPUs, ten a second.
    pub fn some_samples(&self) -> Vec<Json> {
        let recording = Recording::new();
        let output = self.record(&recording, &["-i", "0.1"], &recording.until(3, WITH_GPUS));
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        with_gpus(&recording)
    }

    /// Asserts that a row of the CSV has these values in these columns: the text is what they look like together.
    #[track_caller]
    pub fn assert_row(&self, columns: &[&str], text: &str, job: &str, expected: &[(&str, &str)]) {
        let recording = Recording::new();
        let script = format!("{job} {}", recording.until(1, text));
        self.record(&recording, &[&["-i", "0.2", "--format=csv"], columns].concat(), &script);
        let csv = fs::read_to_string(recording.path()).unwrap();
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
        let has_all = |row: Vec<&str>| expected.iter().all(|(name, value)| row[column(name)] == *value);
        assert!(lines.any(has_all), "{expected:?} in\n{csv}");
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.tracker().args(arguments).output().unwrap()
    }
}

/// What a sample with GPUs contains: the library takes a while to load.
pub const WITH_GPUS: &str = "\"gpu\":[{";

/// The samples that have GPUs.
pub fn with_gpus(recording: &Recording) -> Vec<Json> {
    let mut found = recording.samples();
    found.retain(|sample| !sample["gpu"].as_array().unwrap().is_empty());
    assert!(!found.is_empty(), "no sample has GPUs");
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
