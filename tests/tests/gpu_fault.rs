//! GPUs that disappear, libraries that hang or are not what they should be, and what many readings cost.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use flaky_test::flaky_test;
use resource_tracker_tests::gpu::{Nvml, amd_machine, busy, with_gpus};
use resource_tracker_tests::{command, has, number, samples, shared_library, text, track, tracker};
use serde_json::{Value as Json, json};

#[flaky_test]
fn a_gpu_that_falls_off_the_bus_keeps_its_name_and_one_that_appears_is_found() {
    let nvml = Nvml::new(json!({ "devices": [busy(0)] }));
    let tracker = nvml
        .tracker()
        .args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let mut lost = busy(0);
    lost["errors"] = json!({ "*": 15 });
    nvml.play(json!({ "devices": [lost] }));
    std::thread::sleep(std::time::Duration::from_millis(600));
    nvml.play(json!({ "devices": [busy(0), busy(1)] }));
    let output = tracker.wait_with_output().unwrap();
    let all = with_gpus(&output);
    let kinds: Vec<(usize, bool)> = all
        .iter()
        .map(|sample| {
            let list = sample["gpu"].as_array().unwrap();
            assert_eq!(list[0]["uuid"], "GPU-0");
            (list.len(), list[0]["utilization_pct"].is_null())
        })
        .collect();
    for kind in [(1, false), (1, true), (2, false)] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
}

/// Ticks are taken from the timestamps: none is missing, and none late by more than half an interval.
fn assert_on_time(all: &[Json], interval: f64) {
    let times: Vec<f64> = all.iter().map(|sample| number(sample, "/timestamp_ms") / 1000.0).collect();
    // The last sample is taken when the command ends.
    let late = times[..times.len() - 1].windows(2).filter(|pair| pair[1] - pair[0] > interval * 1.5).count();
    assert!(late <= times.len() / 50, "{late} of {} were late", times.len());
}

#[flaky_test]
fn sixteen_gpus_at_10_hz_never_delay_a_sample() {
    let device = json!({ "utilization": [50, 1], "links": 18, "link_kib_per_sec": 9, "gpm": 5.0, "fans": [1], "churn": true,
                         "processes": [{ "pid": 1, "bytes": 1, "share": 5 }] });
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [device] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "4"]);
    assert_eq!(text(&output.stderr), "");
    let all = samples(&output.stdout);
    assert!(all.len() >= 39, "{}", all.len());
    assert_on_time(&all, 0.1);
    assert_eq!(all[all.len() - 2]["gpu"].as_array().unwrap().len(), 16);
}

#[flaky_test]
fn a_call_that_hangs_harms_no_other_section() {
    for call in ["nvmlInit_v2", "nvmlDeviceGetPowerUsage"] {
        let nvml = Nvml::new(json!({ "copies": 16, "devices": [busy(0)], "slow": { call: 30.0 } }));
        let mut tracker = nvml.tracker();
        let start = std::time::Instant::now();
        let output = tracker.args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "3"]).output().unwrap();
        assert!(start.elapsed().as_secs_f64() < 6.0, "the end does not wait for it");
        assert_eq!(output.status.code(), Some(0));
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("source nvidia has not answered for 2 s"), "{said}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 29, "{}", all.len());
        assert_on_time(&all, 0.1);
        assert!(all.iter().all(|sample| sample["gpu"] == json!([]) && sample["cpu"]["utime_secs"].is_number()));
    }
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

/// What cannot be used is said once, with its name and the reason, and everything else is as it was.
#[flaky_test]
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
        let output = track(["-i", "0.1", &set, "--output=/dev/stdout", "--", "sh", "-c", "sleep 0.5; exit 3"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.contains(&library.display().to_string()) && said.contains(reason), "{said}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 4 && all.iter().all(|sample| sample["gpu"] == json!([])));
    }
    // Found by the linker, and not NVML: the same.
    let output = command(tracker())
        .env("LD_LIBRARY_PATH", folder.path())
        .args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.3"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("libnvidia-ml.so.1: file too short"), "{}", text(&output.stderr));
}

#[test]
fn a_broken_table_of_the_firmware_switches_the_source_off() {
    let root = tempfile::tempdir().unwrap();
    let settings = amd_machine(root.path());
    let table = root.path().join("class/drm/card1/device/gpu_metrics");
    fs::write(&table, [0x40, 0, 200, 77, 1, 2, 3]).unwrap();
    let output = command(tracker())
        .args(["-i", "0.1", "--output=/dev/stdout"])
        .args(&settings)
        .args(["--", "sleep", "0.4"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&table.display().to_string()) && said.contains("version 200.77"), "{said}");
    assert!(samples(&output.stdout).iter().all(|sample| sample["gpu"] == json!([])));
}

#[test]
fn a_driver_that_is_not_loaded_is_no_reason_to_speak() {
    let driver_not_loaded = 9;
    let nvml = Nvml::new(json!({ "init": driver_not_loaded, "devices": [busy(0)] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.3"]);
    assert_eq!(text(&output.stderr), "");
}

/// The calls into both vendors' libraries, under valgrind.
#[flaky_test]
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
    let output = command("valgrind")
        .env("LD_LIBRARY_PATH", nvml.folder.path())
        .env("FAKE_NVML", nvml.script())
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        .arg(tracker())
        .args(["-i", "0.1", "--output=/dev/stdout"])
        .args(amd_machine(nvml.folder.path()))
        .args(["--", "sleep", "4"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let found = with_gpus(&output);
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
