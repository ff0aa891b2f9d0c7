//! What the job used, counted exactly: whatever its processes do, and whoever waits for them.

use resource_tracker_tests::{Recording, benchmarks, command, number, samples, text, tracker};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Runs a command under the tracker; it says nothing on standard error but these lines.
fn record(options: &[&str], job: &[&str]) -> (Vec<Json>, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let output = command(tracker()).arg("-o").arg(&path).args(options).arg("--").args(job).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (samples(&std::fs::read(&path).unwrap()), text(&output.stderr))
}

/// CPU seconds over the run. No interval has a negative figure, or more than the machine's CPUs can spend.
fn cpu_time(samples: &[Json]) -> f64 {
    let cpus =
        std::fs::read_to_string("/proc/cpuinfo").unwrap().lines().filter(|line| line.starts_with("processor")).count();
    let parts = samples.iter().map(|sample| {
        let (user, system) = (number(sample, "/cpu/process_utime_secs"), number(sample, "/cpu/process_stime_secs"));
        let cores = number(sample, "/cpu/process_cores_used");
        assert!(user >= 0.0 && system >= 0.0 && (0.0..=cpus as f64 + 1e-6).contains(&cores), "{sample}");
        user + system
    });
    parts.sum()
}

fn accounting(samples: &[Json]) -> &str {
    samples.last().unwrap()["cpu"]["process_accounting"].as_str().unwrap()
}

/// Each worker of a job burns a known time by its own clock; time above that is for starting and ending it.
#[track_caller]
fn is_exact(job: &str, secs: f64) {
    let path = benchmarks().to_str().unwrap();
    for interval in ["10ms", "100ms", "1s"] {
        let (samples, said) = record(&["--no-cgroup", "-i", interval], &[path, "job", job]);
        let counted = cpu_time(&samples);
        assert!((secs..secs * 1.25).contains(&counted), "{job} at {interval}: {counted} s instead of {secs} s");
        assert_eq!((accounting(&samples), said.as_str()), ("exact", ""));
    }
}

#[test]
fn children_that_live_shorter_than_an_interval() {
    is_exact("serial", 1.0);
}

#[test]
fn children_of_children_at_once() {
    is_exact("nested", 1.0);
}

#[test]
fn threads_that_end() {
    is_exact("threads", 1.6);
}

#[test]
fn a_process_that_becomes_another_one() {
    is_exact("exec", 3.0);
}

#[test]
fn a_long_child_that_is_reaped_at_the_end() {
    is_exact("long", 2.0);
}

#[test]
fn children_with_a_session_of_their_own() {
    is_exact("sessions", 1.0);
}

#[test]
fn daemons_whose_parent_has_ended() {
    is_exact("daemons", 4.0);
}

/// It is seen when it has used all that it will, and both end before the next sample.
#[test]
fn an_orphan_that_ends_in_the_interval_of_its_parent() {
    let recording = Recording::new();
    let path = recording.path();
    let job = r#"
        parent='
            (
                "$2" job long
                "$0" until "$1" $(($(wc -l <"$1") + 2)) ""
                echo >"$1.seen"
                while kill -0 $$; do sleep 0.01; done 2>/dev/null
            ) &
            "$0" until "$1.seen" 1 ""'
        sh -c "$parent" "$0" "$1" "$2"
        "$0" until "$1" $(($(wc -l <"$1") + 1)) ""
    "#;
    let mut tracker = command(tracker());
    tracker.args(["--no-cgroup", "-i", "1s", "-o"]).arg(&path).args(["--", "sh", "-c", job, JOB]);
    let output = recording.run(tracker.arg(&path).arg(benchmarks()));
    assert_eq!(text(&output.stderr), "");
    let samples = recording.samples();
    let counted = cpu_time(&samples);
    assert!((2.0..3.0).contains(&counted), "{counted} s instead of 2 s");
    assert_eq!(accounting(&samples), "exact");
}

/// No process waits for them, so no process learns what they used: what was seen of them stays counted, and the sample
/// says that it is not all.
#[test]
fn children_that_nobody_waits_for() {
    let path = benchmarks().to_str().unwrap();
    let (samples, said) = record(&["--no-cgroup", "-i", "50ms"], &[path, "job", "ignored"]);
    let counted = cpu_time(&samples);
    assert!((1.5..3.3).contains(&counted), "{counted} s");
    assert_eq!((accounting(&samples), said.as_str()), ("sampled", ""));
}

/// 500 MiB for 50 ms, between two samples.
#[test]
fn a_peak_between_two_samples_is_in_the_last_one() {
    let path = benchmarks().to_str().unwrap();
    for options in [&["-i", "10s"][..], &["-i", "10s", "--no-cgroup"]] {
        let (samples, _) = record(options, &["sh", "-c", &format!("{path} job peak; sleep 0.1")]);
        let peak = number(samples.last().unwrap(), "/cpu/process_peak_rss_mib");
        assert!((500.0..520.0).contains(&peak), "{peak} MiB");
    }
}

/// Processes come and go faster than they can be read, and process ids begin anew.
#[test]
fn a_storm_of_twenty_thousand_processes() {
    for options in [&["-i", "10ms"][..], &["-i", "10ms", "--no-cgroup"]] {
        let (samples, said) = record(options, &[JOB, "storm", "20000"]);
        assert_eq!(said, "");
        assert!(cpu_time(&samples) > 0.2, "forking costs something");
        // The last one is taken when the command ends, which can be in the millisecond of a tick.
        for pair in samples[..samples.len() - 1].windows(2) {
            assert!(number(&pair[1], "/timestamp_ms") > number(&pair[0], "/timestamp_ms"), "no two at once");
        }
    }
}

/// Where there is no such counter, there is a warning for each source, and the run goes on.
#[test]
fn counters_of_the_hardware_on_request() {
    let recording = Recording::new();
    // What came before the counters was not counted.
    let job = format!("{}; exec {JOB} burn 1 500", recording.until_told());
    let clock = |sample: &Json| sample["perf"]["task_clock_secs"].as_f64();
    let said = || std::fs::read_to_string(recording.stderr()).unwrap();
    let counts = || recording.samples().iter().any(|sample| clock(sample).is_some()) || said().contains("no counter");
    let stolen = stolen_secs();
    let mut tracker = command(tracker());
    tracker.args(["-i", "100ms", "--enable", "perf,energy", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &job]);
    let output = recording.run_until(&mut tracker, "there are counters, or there are none here", counts);
    let (samples, said) = (recording.samples(), said());
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.lines().count() <= 2, "{said}");
    let Some(first) = samples.iter().position(|sample| clock(sample).is_some()) else {
        println!("skipped: perf events are not permitted here");
        assert!(said.contains("perf_event_paranoid"), "{said}");
        return;
    };
    // In between it is null where it cannot be sure that all was counted.
    let (known, unknown): (Vec<Json>, Vec<Json>) =
        samples[first..].iter().cloned().partition(|sample| clock(sample).is_some());
    let perf = &known.last().unwrap()["perf"];
    let clock: f64 = known.iter().filter_map(clock).sum();
    // The clock of perf runs on while the hypervisor has the CPU.
    let (counted, stolen) = (cpu_time(&known), stolen_secs() - stolen);
    let is_the_same = (counted - 0.1..counted + stolen + 0.1).contains(&clock);
    assert!(clock > 0.0 && is_the_same, "{clock} s of {counted} s, and {stolen} s were stolen");
    assert!(unknown.len() <= 1, "{unknown:?}");
    match perf["instructions"].is_null() {
        true => assert!(said.contains("no hardware counter"), "{said}"),
        false => assert!(number(perf, "/ipc") > 0.1),
    }
}

/// What the hypervisor gave to others, of the time of all CPUs.
fn stolen_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: f64 = stat.split_ascii_whitespace().nth(8).unwrap().parse().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}
