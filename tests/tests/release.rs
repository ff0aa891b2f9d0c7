//! The binary that users get: stripped, with everything that is linked in still registered.

use std::time::{Duration, Instant};

use resource_tracker_tests::{Recording, command, in_time, release_tracker, samples, text, wait_for};

#[test]
fn every_component_is_registered_in_the_stripped_binary() {
    let binary = release_tracker();
    let components = text(&command(&binary).arg("components").output().unwrap().stdout);
    let names: Vec<&str> = components
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let sources = [
        "cpu",
        "process",
        "affinity",
        "job-network",
        "cgroup",
        "perf",
        "memory",
        "network",
        "disk",
        "pressure",
        "energy",
        "nvidia",
        "amd",
        "drm",
        "host",
        "cloud",
        "cpufreq",
        "disk-discard",
        "run-queue",
        "tcp",
    ];
    assert_eq!(
        names,
        [
            &sources[..],
            &["csv", "file", "otlp", "prometheus", "report", "s3", "sentinel-s3", "stdout-json", "summary"],
            &["host", "job-gpus", "job-limits"]
        ]
        .concat()
    );
    let schema: serde_json::Value =
        serde_json::from_slice(&command(&binary).arg("schema").output().unwrap().stdout).unwrap();
    for section in [
        "cpu",
        "cgroup",
        "perf",
        "memory",
        "pressure",
        "network",
        "disk",
        "gpu",
        "energy",
        "host",
        "cloud",
        "tcp",
        "run_queue",
        "run",
        "outcome",
        "marks",
    ] {
        assert!(schema["properties"].get(section).is_some(), "{section}");
    }
    let recording = Recording::new();
    let script = recording.until_in(recording.stderr(), 3, "");
    let output = recording.run(command(&binary).args(["-i", "50ms", "--", "sh", "-c", &script]));
    assert!(samples(&output.stderr).len() >= 3);
}

/// What it may have, so that it can be copied to any machine.
#[test]
fn the_binary_has_eight_megabytes_at_most() {
    let size = std::fs::metadata(release_tracker()).unwrap().len();
    assert!(size <= 8_000_000, "{size} bytes");
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
    // Each sample is one write at least, and no tick comes sooner than a millisecond after the last.
    let start = Instant::now();
    let after = |ticks: u64| {
        wait_for(Duration::from_secs(60 + ticks / 200), "so many ticks", || {
            let io = std::fs::read_to_string(format!("/proc/{}/io", tracker.id())).unwrap();
            let writes = io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
            writes.parse::<u64>().unwrap() >= ticks && start.elapsed() >= Duration::from_millis(ticks)
        });
        anonymous()
    };
    // Without the variable a short check; the whole run of 200,000 ticks is what CI does.
    let more = if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some() { 200_000 } else { 8_000 };
    let (mut ticks, mut before) = (2_000, after(2_000));
    // Should the machine stand still, samples wait for the sink, and their memory is kept for later: once, and no more in
    // the ticks that follow. What leaks grows in all of them.
    in_time(|| {
        ticks += more;
        let early = std::mem::replace(&mut before, after(ticks));
        println!("{early} KiB of memory of its own, {before} KiB after {ticks} ticks");
        before <= early * 1.05
    });
    // The tracker passes it on: killing it would leave the command behind.
    let pid = nix::unistd::Pid::from_raw(tracker.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    tracker.wait().unwrap();
}
