//! GPUs that disappear, libraries that hang or are not what they should be, and what many readings cost.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use resource_tracker_tests::gpu::{Nvml, WITH_GPUS, amd_machine, busy, with_gpus};
use resource_tracker_tests::{Recording, command, has, in_time, shared_library, text, tracker, wait_until};
use serde_json::json;

#[test]
fn a_gpu_that_falls_off_the_bus_keeps_its_name_and_one_that_appears_is_found() {
    let nvml = Nvml::new(json!({ "devices": [busy(0)] }));
    let recording = Recording::new();
    let mut tracker = nvml.tracker();
    tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &recording.until_told()]);
    let run = recording.start(&mut tracker);
    // How many GPUs there are, and whether the first one has figures.
    let is_seen = |count: usize, is_lost: bool| {
        recording.samples().iter().any(|sample| {
            let list = sample["gpu"].as_array().unwrap();
            list.len() == count && list[0]["utilization_pct"].is_null() == is_lost
        })
    };
    wait_until("the GPU", || is_seen(1, false));
    let mut lost = busy(0);
    lost["errors"] = json!({ "*": 15 });
    nvml.play(json!({ "devices": [lost] }));
    wait_until("its loss", || is_seen(1, true));
    nvml.play(json!({ "devices": [busy(0), busy(1)] }));
    wait_until("both", || is_seen(2, false));
    recording.go_on();
    recording.end(run);
    assert!(with_gpus(&recording).iter().all(|sample| sample["gpu"][0]["uuid"] == "GPU-0"));
}

#[test]
fn sixteen_gpus_at_10_hz_never_delay_a_sample() {
    let device = json!({ "utilization": [50, 1], "links": 18, "link_kib_per_sec": 9, "gpm": 5.0, "fans": [1], "churn": true,
                         "processes": [{ "pid": 1, "bytes": 1, "share": 5 }] });
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [device] }));
    in_time(|| {
        let recording = Recording::new();
        let (enough, found) = (recording.until(39, ""), recording.until(10, WITH_GPUS));
        let script = format!("{enough}; {found}; {}", recording.note_waits());
        let output = nvml.record(&recording, &["-i", "0.1"], &script);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let all = recording.samples();
        assert_eq!(all[all.len() - 2]["gpu"].as_array().unwrap().len(), 16);
        recording.is_on_time(0.1)
    });
}

#[test]
fn a_call_that_hangs_harms_no_other_section() {
    std::thread::scope(|scope| {
        for call in ["nvmlInit_v2", "nvmlDeviceGetPowerUsage"] {
            scope.spawn(move || in_time(|| one_that_hangs(call)));
        }
    });
}

fn one_that_hangs(call: &str) -> bool {
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [busy(0)], "slow": { call: 300.0 } }));
    let recording = Recording::new();
    let said = recording.until_said("source nvidia has not answered for 2 s");
    let start = Instant::now();
    let script = format!("{said}; {}; {}", recording.until(29, ""), recording.note_waits());
    let output = nvml.record(&recording, &["-i", "0.1"], &script);
    let took = start.elapsed();
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("source nvidia has not answered for 2 s"), "{said}");
    let all = recording.samples();
    assert!(all.iter().all(|sample| sample["gpu"] == json!([]) && sample["cpu"]["utime_secs"].is_number()));
    // Neither a sample nor the end waits for it.
    took < Duration::from_secs(6) && recording.is_on_time(0.1)
}

/// The thread of the source may be in the library when the run ends.
#[test]
fn the_end_of_the_run_is_not_the_end_of_the_library() {
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [busy(0)], "slow": { "nvmlDeviceGetPowerUsage": 0.002 } }));
    for _ in 0..5 {
        let output = nvml.run(&["-i", "10ms", "-q", "--", "sh", "-c", "sleep 0.3; exit 3"]);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    }
}

/// There is one message on a library that cannot be used, with its name and the reason. Everything else is as before.
#[test]
fn a_library_that_is_not_nvml_or_too_old_switches_the_source_off() {
    let folder = tempfile::tempdir().unwrap();
    let text_file = folder.path().join("libnvidia-ml.so.1");
    fs::write(&text_file, "no library").unwrap();
    let cases = [
        (text_file, "file too short"),
        (shared_library("fake-libdrm"), "nvmlInit_v2"),
        (shared_library("fake-nvml-old"), "nvmlDeviceGetHandleByIndex_v2"),
        (folder.path().join("missing.so"), "No such file"),
    ];
    for (library, reason) in cases {
        let set = format!("--set=sources.nvidia.library={}", library.display());
        let recording = Recording::new();
        let script = format!("{}; {}; exit 3", recording.until_said("libnvidia"), recording.until(4, ""));
        let script = script.replace("libnvidia", library.file_name().unwrap().to_str().unwrap());
        let mut tracker = command(tracker());
        tracker.args(["-i", "0.1", &set, "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]);
        let output = recording.run(&mut tracker);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.contains(&library.display().to_string()) && said.contains(reason), "{said}");
        let all = recording.samples();
        assert!(all.len() >= 4 && all.iter().all(|sample| sample["gpu"] == json!([])));
    }
    // Found by the linker, and not NVML: the same.
    let recording = Recording::new();
    let mut tracker = command(tracker());
    tracker.env("LD_LIBRARY_PATH", folder.path()).args(["-i", "0.1", "-o"]).arg(recording.path());
    let output = recording.run(tracker.args(["--", "sh", "-c", &recording.until_said("libnvidia-ml.so.1")]));
    assert!(text(&output.stderr).contains("libnvidia-ml.so.1: file too short"), "{}", text(&output.stderr));
}

#[test]
fn a_broken_table_of_the_firmware_switches_the_source_off() {
    let root = tempfile::tempdir().unwrap();
    let settings = amd_machine(root.path());
    let table = root.path().join("class/drm/card1/device/gpu_metrics");
    fs::write(&table, [0x40, 0, 200, 77, 1, 2, 3]).unwrap();
    let recording = Recording::new();
    let script = format!("{}; {}", recording.until_said("gpu_metrics"), recording.until(3, ""));
    let mut tracker = command(tracker());
    tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args(&settings);
    let output = recording.run(tracker.args(["--", "sh", "-c", &script]));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&table.display().to_string()) && said.contains("version 200.77"), "{said}");
    assert!(recording.samples().iter().all(|sample| sample["gpu"] == json!([])));
}

#[test]
fn a_driver_that_is_not_loaded_is_no_reason_to_speak() {
    let driver_not_loaded = 9;
    let nvml = Nvml::new(json!({ "init": driver_not_loaded, "devices": [busy(0)] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.3"]);
    assert_eq!(text(&output.stderr), "");
}

/// The calls into both vendors' libraries, under valgrind.
#[test]
fn the_boundary_is_clean() {
    if !has("valgrind", "the_boundary_is_clean") {
        return;
    }
    let process = json!({ "pid": 1, "bytes": 1, "share": 5 });
    let device = json!({ "utilization": [50, 1], "links": 2, "gpm": 5.0, "fans": [1], "churn": true,
                         "processes": [process], "parts": [{}] });
    let nvml = Nvml::new(json!({ "copies": 2, "devices": [device] }));
    let libdrm = shared_library("fake-libdrm");
    for name in ["libdrm.so.2", "libdrm_amdgpu.so.1"] {
        symlink(&libdrm, nvml.folder.path().join(name)).unwrap();
    }
    let recording = Recording::new();
    // A part of the last device of the one library, and the card of the other.
    let (nvidia, amd) = (recording.until(3, "\"host_id\":\"nvidia1/0\""), recording.until(3, "0000:c1:00.0"));
    let mut valgrind = command("valgrind");
    valgrind
        .env("LD_LIBRARY_PATH", nvml.folder.path())
        .env("FAKE_NVML", nvml.script())
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        .arg(tracker())
        .args(["-i", "0.1", "-o"])
        .arg(recording.path())
        .args(amd_machine(nvml.folder.path()))
        .args(["--", "sh", "-c", &format!("{nvidia}; {amd}")]);
    let output = recording.run(&mut valgrind);
    let said = text(&output.stderr);
    // An older valgrind does not know `pidfd_open` (434), which the tracker can do without, and says so in five lines.
    let is_of_the_call = said.contains("unhandled amd64-linux syscall: 434") && said.matches("unhandled").count() == 1;
    let of_valgrind = |line: &&str| is_of_the_call && line.starts_with("--");
    let said: Vec<&str> = said.lines().filter(|line| !of_valgrind(line)).collect();
    assert_eq!((output.status.code(), said), (Some(0), vec![]));
    let found = with_gpus(&recording);
    assert_eq!(found[found.len() - 1]["gpu"].as_array().unwrap().len(), 5);
}

/// 100,000 readings of a machine with everything, at 1 ms: the memory of the tracker stays what it was. The job ends
/// when the library has counted them, however long the machine takes (a quarter of an hour at most).
#[test]
fn memory_is_flat_over_many_collections() {
    let long = std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some();
    let (warm, enough) = if long { (3_000, 100_000) } else { (1_000, 4_000) };
    let device = json!({ "utilization": [50, 1], "links": 2, "gpm": 5.0, "fans": [1],
                         "processes": [{ "pid": 1, "bytes": 1, "share": 5 }], "parts": [{}] });
    let folder = tempfile::tempdir().unwrap();
    let collections = folder.path().join("collections");
    fs::write(&collections, "0").unwrap();
    let nvml = Nvml::new(json!({ "devices": [device], "collections": collections }));
    let rss = nvml.folder.path().join("rss");
    let job = format!(
        r#"end=$(($(date +%s) + 900))
        for count in {warm} {enough}; do
            until [ "$(cat {collections})0" -ge "${{count}}0" ]; do
                [ "$(date +%s)" -lt "$end" ] || exit 9
                sleep 0.1
            done
            grep RssAnon /proc/$PPID/status >>{rss}
        done"#,
        collections = collections.display(),
        rss = rss.display()
    );
    let output = nvml.run(&["-i", "1ms", "-q", "--disable", "sentinel-s3", "--", "sh", "-c", &job]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = fs::read_to_string(rss).unwrap();
    let kib: Vec<u64> = text.lines().map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
    println!("RssAnon after {warm} and after {enough} collections: {kib:?} KiB");
    assert!(kib[1] <= kib[0] + 256, "{kib:?}");
}
