//! The binary that users get: stripped, with everything that is linked in still registered.

use std::time::Duration;

use flaky_test::flaky_test;
use resource_tracker_tests::{command, release_tracker, samples, text};

#[flaky_test]
fn every_component_is_registered_in_the_stripped_binary() {
    let binary = release_tracker();
    let components = text(&command(&binary).arg("components").output().unwrap().stdout);
    let names: Vec<&str> = components
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let sources = [
        "cpu", "process", "cgroup", "perf", "memory", "network", "disk", "pressure", "energy", "nvidia", "amd", "drm",
        "host", "cloud",
    ];
    assert_eq!(names, [&sources[..], &["csv", "file", "sentinel-s3", "stdout-json"]].concat());
    let schema: serde_json::Value =
        serde_json::from_slice(&command(&binary).arg("schema").output().unwrap().stdout).unwrap();
    for section in ["cpu", "cgroup", "perf", "memory", "pressure", "network", "disk", "gpu", "energy", "host", "cloud"]
    {
        assert!(schema["properties"].get(section).is_some(), "{section}");
    }
    let output = command(&binary).args(["-i", "50ms", "--", "sleep", "0.2"]).output().unwrap();
    assert!(samples(&output.stderr).len() >= 3);
}

/// Anonymous memory after many samples, written to a file as in real use. (The program's own pages are those of its file.)
#[test]
fn memory_does_not_grow_with_the_run() {
    let binary = release_tracker();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    // A small file that is rotated, so that two hundred thousand samples do not fill the disk.
    let mut tracker = command(binary)
        .args(["-i", "1ms", "--set", "sinks.output.rotate_bytes=1000000", "--set", "sinks.output.rotate_keep=1", "-o"])
        .arg(&path)
        .args(["--", "sleep", "1000"])
        .spawn()
        .unwrap();
    let anonymous = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", tracker.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
    };
    // Without the variable a short check; the whole run of 200,000 ticks is what CI does.
    let whole = std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some();
    std::thread::sleep(Duration::from_secs(2));
    let early = anonymous();
    std::thread::sleep(Duration::from_secs(if whole { 198 } else { 8 }));
    let late = anonymous();
    // The tracker passes it on: killing it would leave the command behind.
    let pid = nix::unistd::Pid::from_raw(tracker.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    tracker.wait().unwrap();
    println!("{early} KiB after about 2,000 ticks, {late} KiB after {}", if whole { "200,000" } else { "10,000" });
    // Should the machine stand still, 512 samples of less than 6 KiB wait for the sink, and their memory is kept for later.
    assert!(late <= early * 1.05 + 512.0 * 6.0, "{early} KiB grew to {late} KiB");
}
