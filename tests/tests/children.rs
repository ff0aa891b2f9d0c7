//! Children of the tracker: the tracker reaps and counts those of the command, and leaves those of a plugin to it.

use std::collections::BTreeSet;

use resource_tracker_tests::{Recording, command, in_time, number, samples, shared_library, text, tracker};
use serde_json::Value as Json;

#[test]
fn children_of_a_plugin_are_its_own() {
    for kind in ["", "forks"] {
        let mut tracker = command(tracker());
        tracker.env("FAKE_PLUGIN", kind).arg("--plugin").arg(shared_library("fake-plugin"));
        tracker.args(["-i", "0.1", "--output=/dev/stdout", "--enable=fake", "--set=sources.fake.behaviour=forks"]);
        // Orphans, which the tracker is to reap meanwhile.
        let orphans = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.1 &); sleep 0.1; done; \
            for i in $(seq 200); do count=$(ps -o stat= --ppid $PPID | grep -c Z); test $count = 0 && break; done; echo $count";
        let output = tracker.args(["--", "sh", "-c", &format!("{orphans} >&2; exit 3")]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), "0\n"), "{kind}");
        let codes: Vec<f64> = samples(&output.stdout)
            .iter()
            .filter(|sample| sample.get("fake").is_some())
            .map(|sample| number(sample, "/fake/tick"))
            .collect();
        assert!(codes.len() >= 3 && codes.iter().all(|code| *code == 9.0), "{kind}: {codes:?}");
    }
}

/// The kernel gives a child of a thread that has ended to the first thread, as it does with orphans of the command.
#[test]
fn a_child_of_a_plugin_s_thread_that_has_ended_is_left_to_the_plugin() {
    in_time(children_of_threads_that_ended);
}

/// Whether the plugin answered in time.
fn children_of_threads_that_ended() -> bool {
    let recording = Recording::new();
    let pids = recording.stdout();
    // Orphans, some of which end while a child of the plugin is there to be waited for.
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do (sleep 0.$i & echo $!); done; {}; \
         for pid in $(cat {}); do for i in $(seq 1000); do test -e /proc/$pid || break; sleep 0.02; done; \
         test -e /proc/$pid && echo $pid stays >&2; done; exit 3",
        recording.until_told(),
        pids.display()
    );
    let mut tracker = command(tracker());
    tracker.arg("--plugin").arg(shared_library("fake-plugin")).args(["-i", "0.1", "-o"]).arg(recording.path());
    tracker.args(["--no-cgroup", "--enable=fake", "--set=sources.fake.behaviour=thread-forks", "--"]);
    let told = || -> BTreeSet<u64> {
        let samples = recording.samples();
        samples.iter().filter_map(|sample| sample.pointer("/fake/pids")?.as_u64()).collect()
    };
    let output = recording.run_until(tracker.args(["sh", "-c", &script]), "five readings", || told().len() >= 5);
    let said = text(&output.stderr);
    let (late, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.contains("has not answered for"));
    assert_eq!((output.status.code(), others.as_slice()), (Some(3), &[][..]));
    let samples = recording.samples();
    let codes: Vec<&Json> = samples.iter().filter_map(|sample| sample.pointer("/fake/tick")).collect();
    assert!(codes.iter().all(|code| **code == 9), "{codes:?}");
    // Each of them has worked for 0.2 s; the job has started some small programs.
    let secs = |name: &str| samples.iter().map(|sample| number(sample, name)).sum::<f64>();
    let job = secs("/cpu/process_utime_secs") + secs("/cpu/process_stime_secs");
    assert!(job < 0.5, "{job}");
    late.is_empty()
}
