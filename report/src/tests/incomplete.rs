//! Summaries of runs of which a part is missing, or that an older version has recorded.

use std::time::Duration;

use resource_tracker_core::Sample;
use serde_json::{Value as Json, json};

use super::{both, cgroup, gpu, machine, merge};
use crate::{Kinds, RunStatistics, Summary};

/// The paths of all members of objects in it.
fn members(value: &Json, path: &str, found: &mut Vec<String>) {
    match value {
        Json::Object(all) => all.iter().for_each(|(name, member)| {
            let path = format!("{path}/{name}");
            members(member, &path, found);
            found.push(path);
        }),
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| members(item, &format!("{path}/{index}"), found))
        }
        _ => (),
    }
}

#[test]
fn a_field_that_a_recording_lacks_makes_its_own_figure_unknown() {
    let disk = json!({
        "device": "sda", "is_counted": true, "read_bytes_per_sec": 10.0, "write_bytes_per_sec": 20.0,
        "read_bytes_total": 1000, "write_bytes_total": 2000, "utilization_pct": 30.0,
        "mounts": [{ "mount_point": "/", "filesystem": "ext4", "used_bytes": 40, "used_pct": 40.0, "available_bytes": 50 }],
    });
    let card = json!({
        "interface": "eth0", "is_counted": true, "rx_bytes_per_sec": 60.0, "tx_bytes_per_sec": 70.0, "rx_bytes_total": 8000,
        "tx_bytes_total": 9000,
    });
    let wait = json!({ "some": { "avg10_pct": 1.0, "interval_pct": 2.0 }, "full": null });
    let mut everything = both(gpu(95.0, 0.9, 900.0), &machine(3.0));
    merge(
        &mut everything,
        &cgroup(&json!({
            "oom_kills": 1, "memory_limit_mib": 4096.0, "cpu_limit_cores": 1.5, "cpu_throttled_pct": 30.0, "cpu_throttled_secs": 1.0,
            "cpu_pressure_some_secs": 0.1, "io_pressure_some_secs": 0.2, "io_read_bytes": 11, "io_write_bytes": 12,
        })),
    );
    merge(
        &mut everything,
        &json!({
            "timestamp_ms": 1_700_000_001_000_u64, "elapsed_secs": 1, "disk": [disk], "network": [card],
            "cpu": {
                "process_cores_used": 2.0, "process_utime_secs": 1.5, "process_stime_secs": 0.5, "process_memory_mib": 100.0,
                "process_peak_memory_mib": 120.0, "process_cpu_limit_cores": 2.0, "process_memory_limit_mib": 16384.0,
                "process_disk_read_bytes": 1000, "process_disk_write_bytes": 2000, "process_thread_count": 3, "process_child_count": 1,
            },
            "memory": { "total_mib": 16384, "unavailable_mib": 4096, "swap_used_mib": 7 },
            "pressure": { "cpu": wait, "memory": wait, "io": wait },
            "run": { "id": "1", "command": ["job"], "started_ms": 1, "interval_secs": 1, "version": "1", "labels": {}, "tags": {} },
            "outcome": { "exit_code": 0, "signal": null, "wall_secs": 1, "samples": 1, "missed_samples": 0 },
        }),
    );
    let figures = |sample: &Json| {
        let mut statistics = RunStatistics::default();
        statistics.add(&Sample::from_json(&sample.to_string()).unwrap(), &Kinds::of_schema(|| json!({})));
        let mut summary = statistics.summary();
        let unreadable = summary.problems.iter().find(|problem| problem.contains("could not be read")).cloned();
        assert_eq!(unreadable, None);
        // Left out: the times, and what follows from all figures together.
        (summary.bound, summary.advice) = (None, None);
        let mut figures = serde_json::to_value(summary).unwrap();
        figures["times"].take();
        figures
    };
    let whole = figures(&everything);
    let (mut fields, mut lost) = (Vec::new(), 0);
    members(&everything, "", &mut fields);
    for field in fields.iter().filter(|field| !["/timestamp_ms", "/elapsed_secs"].contains(&field.as_str())) {
        let mut older = everything.clone();
        let (parent, name) = field.rsplit_once('/').unwrap();
        older.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        let found = figures(&older);
        let mut paths = Vec::new();
        members(&found, "", &mut paths);
        for path in paths {
            let figure = found.pointer(&path).unwrap();
            let is_as_before = Some(figure) == whole.pointer(&path);
            assert!(!figure.is_number() || is_as_before, "without {field}, {path} is {figure}");
        }
        lost += usize::from(found != whole);
    }
    assert!(lost > 50, "{lost} of {} were looked at", fields.len());
}

/// Samples as (end, length) in milliseconds, added as the samples of a file. The first one may have a `run`.
fn machine_samples(run: bool, times: &[(u64, u64)]) -> Vec<Summary> {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut runs = vec![RunStatistics::default()];
    for (number, (at, took)) in times.iter().enumerate() {
        let mut line = json!({ "timestamp_ms": 1_700_000_000_000_u64 + at, "elapsed_secs": Duration::from_millis(*took).as_secs_f64() });
        if run && number == 0 {
            line["run"] = json!({ "id": "1", "command": [], "started_ms": 1, "interval_secs": 1, "version": "1", "labels": {}, "tags": {} });
        }
        let sample = Sample::from_json(&line.to_string()).unwrap();
        if runs.last().unwrap().is_followed_by_another(&sample, false) {
            runs.push(RunStatistics::default());
        }
        runs.last_mut().unwrap().add(&sample, &kinds);
    }
    runs.iter().map(RunStatistics::summary).collect()
}

#[test]
fn what_is_missing_is_said_without_an_end_as_well() {
    // The tracker was late, and the clock crept; then five samples are not there.
    let good = [(1000, 1000), (3100, 2050), (4150, 1000)];
    let [whole] = &machine_samples(true, &good)[..] else { panic!("one run") };
    assert_eq!((whole.is_whole, &whole.problems[..]), (true, &[][..]));
    let with_hole = [&good[..], &[(10_150, 1000)]].concat();
    let [holed] = &machine_samples(true, &with_hole)[..] else { panic!("one run") };
    assert!(!holed.is_whole && holed.problems[0].starts_with("5.00 s in between are not here"), "{:?}", holed.problems);
}

#[test]
fn runs_of_older_versions_are_told_apart_by_time() {
    let runs = machine_samples(false, &[(1000, 1000), (2000, 1000), (60_000, 1000), (61_000, 1000)]);
    let counts: Vec<_> = runs.iter().map(|run| (run.times.samples, run.is_whole)).collect();
    assert_eq!(counts, [(2, false), (2, false)]);
}

/// Two runs that write to one file at the same time: the second one's beginning ends the first.
#[test]
fn runs_that_are_mixed_in_one_file_are_said() {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut statistics = RunStatistics::default();
    let mut add = |ms: u64, outcome: &Json| {
        let mut line = json!({ "timestamp_ms": 1_000_000 + ms, "elapsed_secs": 1, "cpu": { "process_cores_used": 1 } });
        if !outcome.is_null() {
            line["outcome"] = outcome.clone();
        }
        statistics.add(&Sample::from_json(&line.to_string()).unwrap(), &kinds);
        statistics.summary()
    };
    let mixed = "runs that went on at the same time wrote to one file, and these figures are of all of them";
    assert!(!add(0, &Json::Null).problems.iter().any(|problem| problem.contains(mixed)));
    // A clock that is slewed makes no overlap, and one that is set back makes one.
    assert!(!add(990, &Json::Null).problems.iter().any(|problem| problem.contains(mixed)));
    assert!(!add(1400, &Json::Null).problems.iter().any(|problem| problem.contains(mixed)));
    let summary = add(1900, &Json::Null);
    assert!(
        !summary.is_whole && summary.problems.iter().any(|problem| problem.ends_with(mixed)),
        "{:?}",
        summary.problems
    );
    let end = json!({ "exit_code": 0, "signal": null, "wall_secs": 2, "samples": 2, "missed_samples": 0 });
    let Summary { problems, outcome, .. } = add(2400, &end);
    assert_eq!(outcome, None, "it may be that of the other one");
    assert!(
        problems.iter().any(|problem| problem.starts_with("5 samples are here, of which 2 are of this run")),
        "{problems:?}"
    );
}

/// Times are cut to milliseconds, and lengths are not: the last sample of a run can begin a moment after the one before.
#[test]
fn samples_that_follow_at_once_do_not_overlap() {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut statistics = RunStatistics::default();
    for (ms, secs) in [(1000, 1.0), (1000, 0.0002), (1001, 0.0014), (1002, 0.0009), (1003, 0.0019), (1005, 0.0019)] {
        let line = json!({ "timestamp_ms": ms, "elapsed_secs": secs, "cpu": { "process_cores_used": 1 } });
        statistics.add(&Sample::from_json(&line.to_string()).unwrap(), &kinds);
    }
    let problems = statistics.summary().problems;
    assert!(
        !problems.iter().any(|problem| problem.contains("overlap") || problem.contains("set back")),
        "{problems:?}"
    );
}

/// As a clock does that is corrected again and again.
#[test]
fn a_clock_that_is_set_back_twice_mixes_no_runs() {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut statistics = RunStatistics::default();
    let end = json!({ "exit_code": 3, "signal": null, "wall_secs": 4, "samples": 4, "missed_samples": 0 });
    for (ms, end) in [(1000, None), (1500, None), (2500, None), (3000, Some(end))] {
        let mut line = json!({ "timestamp_ms": ms, "elapsed_secs": 1, "cpu": { "process_cores_used": 1 } });
        if let Some(end) = end {
            line["outcome"] = end;
        }
        statistics.add(&Sample::from_json(&line.to_string()).unwrap(), &kinds);
    }
    let summary = statistics.summary();
    assert!(summary.is_whole && summary.outcome.unwrap().exit_code == Some(3), "{:?}", summary.problems);
    assert!(summary.problems[0].contains("the clock was set back") && summary.problems[0].ends_with("2 times"));
}
