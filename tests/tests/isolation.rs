//! Plugins that misbehave in a process of their own: nothing else is harmed, and the next life begins clean.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_core::{Host, Outcome, Run, Sample, Sink, Tracker};
use resource_tracker_metrics::ProcessMetrics;
use resource_tracker_sources::{JobObserver, ProcessConfig, TrackedJob};
use resource_tracker_tests::{command, number, shared_library, text, tracker, wait_until};
use serde_json::{Value as Json, json};

/// A tracker with the stand-in plugin.
fn with_plugin(program: &mut Command, arguments: &[&str]) {
    program.arg("--plugin").arg(shared_library("fake-plugin")).args(["-i", "0.05"]).args(arguments);
}

/// A tracker that is ended, with its job, also when the test fails.
struct Running(Child);

impl Running {
    fn spawn(program: &mut Command) -> Self {
        Self(program.spawn().unwrap())
    }

    fn end(&mut self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that was waited for gets no signal.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

/// Runs a tracker until its samples are as expected, and ends it.
fn run_until(what: &str, program: &mut Command, is_enough: impl Fn(&[Json]) -> bool) -> (Vec<Json>, String) {
    let mut running = Running::spawn(program.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let printed = Arc::new(Mutex::new(Vec::new()));
    let reader = std::thread::spawn({
        let (stdout, printed) = (BufReader::new(running.0.stdout.take().unwrap()), Arc::clone(&printed));
        move || {
            for line in stdout.lines() {
                let sample: Json = serde_json::from_str(&line.unwrap()).unwrap();
                printed.lock().unwrap().push(sample);
            }
        }
    });
    wait_until(what, || is_enough(&printed.lock().unwrap()));
    let mut stderr = running.0.stderr.take().unwrap();
    running.end();
    reader.join().unwrap();
    let mut message = String::new();
    stderr.read_to_string(&mut message).unwrap();
    (printed.lock().unwrap().clone(), message)
}

/// The sections of the plugin, one for each reading.
fn told(samples: &[Json]) -> Vec<&Json> {
    let mut told: Vec<&Json> = samples.iter().filter_map(|sample| sample.get("fake")).collect();
    told.dedup();
    told
}

/// The processes that the plugin was in.
fn lives(samples: &[Json]) -> BTreeSet<u64> {
    told(samples).iter().filter_map(|fake| fake["process"].as_u64()).collect()
}

fn behaving(behaviour: &str) -> Command {
    let mut program = command(tracker());
    let set = format!("--set=sources.fake.behaviour={behaviour}");
    with_plugin(&mut program, &["--set=plugins.isolate=true", "--enable=fake", &set]);
    program
}

/// However a life ends, there is one message that says how, and the next life works.
#[test]
fn every_end_of_a_life_is_told_and_the_next_one_is_clean() {
    for (behaviour, said) in [
        ("exit", "its process ended with exit code 0"),
        ("torn", "its process was ended by signal 6"),
        ("scribble", "its process was ended by signal 6"),
        ("close", "its process ended with exit code 0"),
        ("abort", "its process was ended by signal 6"),
    ] {
        let (samples, message) = run_until("a second life", &mut behaving(behaviour), |all| lives(all).len() >= 2);
        assert!(message.contains(said) && message.contains("source fake"), "{behaviour}: {message}");
        assert!(!message.contains("is gone") && !message.contains("usable"), "{behaviour}: {message}");
        assert!(samples.iter().all(|sample| sample["cpu"]["utime_secs"].is_number()), "{behaviour}");
    }
}

/// It has no counters from before, so no time has passed for it.
#[test]
fn a_new_life_is_not_told_of_time_that_another_one_has_seen() {
    let (samples, _) = run_until("a second life", &mut behaving("exit"), |all| lives(all).len() >= 2);
    let told = told(&samples);
    let first = told.windows(2).find(|pair| pair[0]["process"] != pair[1]["process"]).unwrap()[1];
    assert_eq!(first["elapsed_ns"], json!(0), "{first}");
    let later: Vec<&&Json> = told.iter().filter(|fake| fake["process"] != first["process"]).skip(1).collect();
    assert!(later.iter().all(|fake| fake["elapsed_ns"].as_u64() > Some(0)), "{later:?}");
}

#[test]
fn two_components_of_one_type_are_two() {
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let set = |name: &str| {
            [format!("--set=sinks.{name}.type=fake-file"), format!("--set=sinks.{name}.path={}", path(name).display())]
        };
        let (one, other) = (set("one"), set("other"));
        let mut program = command(tracker());
        with_plugin(&mut program, &[isolate, &one[0], &one[1], &other[0], &other[1], "--quiet"]);
        let output = program.args(["--", "sh", "-c", "sleep 0.5; exit 3"]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
        let calls = ["one", "other"].map(|name| fs::read_to_string(path(name)).unwrap());
        assert_eq!(calls[0], calls[1], "both got the same");
        let kinds: Vec<&str> = calls[0].lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!((kinds[0], kinds[1], kinds[kinds.len() - 1]), ("start", "sample", "finish"), "{kinds:?}");
    }
}

/// The crash of one leaves the other one whole.
#[test]
fn a_sink_that_crashes_in_any_call_harms_no_other() {
    for call in ["start", "sample", "finish"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let set = |name: &str, key: &str, value: &str| format!("--set=sinks.{name}.{key}={value}");
        let mut program = command(tracker());
        with_plugin(&mut program, &["--set=plugins.isolate=true", "--quiet"]);
        for name in ["whole", "broken"] {
            program.arg(set(name, "type", "fake-file")).arg(set(name, "path", path(name).to_str().unwrap()));
        }
        program.arg(set("broken", "behaviour", &format!("abort-{call}")));
        let output = program.args(["--", "sh", "-c", "sleep 0.5; exit 3"]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{call}: {message}");
        assert!(message.contains("sink broken: ") && message.contains("was ended by signal 6"), "{call}: {message}");
        assert!(!message.contains("sink whole"), "{call}: {message}");
        let whole = fs::read_to_string(path("whole")).unwrap();
        assert!(whole.starts_with("start ") && whole.contains("\nfinish {\"exit_code\":3"), "{call}: {whole}");
    }
}

/// The links of a process's descriptors.
fn open_in(pid: u64) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = entries.filter_map(|entry| {
        Some((entry.file_name().to_string_lossy().into_owned(), fs::read_link(entry.path()).ok()?))
    });
    links.collect()
}

fn parent_of(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// Neither standard input nor output of the job, nor any other file of the tracker, is open in the process of a plugin
/// or in its fork server, and no signal is blocked there.
#[test]
fn a_plugin_s_process_has_nothing_of_the_job_s() {
    let mine = tempfile::NamedTempFile::new().unwrap();
    let own = mine.path().display();
    let folder = tempfile::tempdir().unwrap();
    let samples = folder.path().join("samples");
    let mut shell = command("sh");
    shell.args(["-c", &format!("exec 9<{own} <{own} >>{own}; exec \"$@\""), "sh"]).arg(tracker());
    with_plugin(&mut shell, &["--set=plugins.isolate=true", "--enable=fake", "--set=sources.fake.behaviour=look"]);
    let sink = folder.path().join("calls");
    shell.arg(format!("--set=sinks.fake-file.path={}", sink.display()));
    shell.arg("--output").arg(&samples).args(["--", "sleep", "600"]);
    let mut running = Running::spawn(&mut shell);
    let last = || -> Option<Json> {
        let all = fs::read_to_string(&samples).ok()?;
        let mut whole = all.lines().filter(|_| all.ends_with('\n'));
        let sample: Json = serde_json::from_str(whole.next_back()?).ok()?;
        sample.get("fake").cloned()
    };
    wait_until("a reading", || last().is_some());
    let fake = last().unwrap();
    let process = fake["process"].as_u64().unwrap();
    assert_eq!(fake["blocked"], json!("0000000000000000"));
    wait_until("a sample in the sink", || fs::read_to_string(&sink).is_ok_and(|calls| calls.contains("\nsample ")));
    // Every process of this tracker but itself and the job: two for the source, two for the sink.
    let keepers: Vec<u64> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u64| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "resource-tracker\n" || name == "resource-tracke\n")
        })
        .filter(|pid| parent_of(*pid) == u64::from(running.0.id()))
        .collect();
    assert_eq!(keepers.len(), 2);
    assert!(keepers.contains(&parent_of(process)));
    let library = shared_library("fake-plugin").canonicalize().unwrap();
    let plugin_folder = library.parent().unwrap();
    for pid in keepers.into_iter().chain([process]) {
        let open = open_in(pid);
        assert!(open.iter().all(|(_, link)| link != mine.path()), "{open:?}");
        for number in ["0", "1"] {
            assert!(open.contains(&(number.to_owned(), "/dev/null".into())), "{number}: {open:?}");
        }
        let others = open.iter().filter(|(number, _)| !["0", "1", "2"].contains(&number.as_str()));
        let (lines, others): (Vec<_>, Vec<_>) =
            others.partition(|(_, link)| link.to_string_lossy().starts_with("socket:"));
        assert_eq!(lines.len(), 1, "its line to the tracker: {open:?}");
        // A library is loaded by way of its folder, which stays open.
        assert!(others.iter().all(|(_, link)| link == plugin_folder), "{open:?}");
    }
    running.end();
    assert_eq!(fs::read_to_string(mine.path()).unwrap(), "");
}

/// What a plugin prints is not among the samples, nor in the job's output.
#[test]
fn what_a_source_prints_goes_nowhere() {
    let mut program = behaving("print");
    let (_, message) = run_until("samples", &mut program, |all| all.len() >= 5);
    assert_eq!(message, "");
}

/// Processes that a plugin starts do not belong to the job, in isolation and without; in isolation neither do those
/// that it leaves behind.
#[test]
fn processes_of_a_plugin_are_none_of_the_job_s() {
    for (isolate, behaviour, lives_wanted, each) in
        [("true", "daemon", 1, 2), ("true", "daemon-abort", 2, 2), ("false", "helper", 1, 1)]
    {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("samples");
        let mut program = command(tracker());
        let (isolate, set) =
            (format!("--set=plugins.isolate={isolate}"), format!("--set=sources.fake.behaviour={behaviour}"));
        with_plugin(&mut program, &[&isolate, "--enable=fake", &set]);
        program.arg("--output").arg(&file).args(["--", "sleep", "600"]).stderr(Stdio::null());
        let mut running = Running::spawn(&mut program);
        let samples = || -> Vec<Json> {
            let all = fs::read_to_string(&file).unwrap_or_default();
            all.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        wait_until("its helpers", || lives(&samples()).len() >= lives_wanted && samples().len() >= 20);
        let all = samples();
        let helpers: BTreeSet<u64> =
            told(&all).iter().flat_map(|fake| fake["helpers"].as_array().unwrap()).filter_map(Json::as_u64).collect();
        assert_eq!(helpers.len(), lives_wanted * each);
        let alive = |pid: &u64| Path::new(&format!("/proc/{pid}")).exists();
        assert!(helpers.iter().any(alive));
        let counted: Vec<f64> = all.iter().map(|sample| number(sample, "/cpu/process_child_count")).collect();
        for helper in helpers.into_iter().filter(alive) {
            kill(Pid::from_raw(helper as i32), Signal::SIGKILL).unwrap();
        }
        running.end();
        assert!(counted.iter().all(|count| *count == 0.0), "{isolate} {behaviour}: {counted:?}");
    }
}

/// A reading that hangs from the start on: the run ends without a sample, and the sinks learn of the start and of the
/// end.
#[test]
fn a_run_without_a_reading_opens_and_closes_its_sinks() {
    let folder = tempfile::tempdir().unwrap();
    let (procfs, calls) = (folder.path().join("proc"), folder.path().join("calls"));
    fs::create_dir(&procfs).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, procfs.join("stat"), rustix::fs::Mode::RWXU).unwrap();
    let mut program = command(tracker());
    with_plugin(&mut program, &["--quiet", &format!("--set=tracker.procfs={}", procfs.display())]);
    program.arg(format!("--set=sinks.fake-file.path={}", calls.display()));
    let output = program.args(["--", "sh", "-c", "exit 3"]).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("the last sample could not be taken"), "{message}");
    let calls = fs::read_to_string(calls).unwrap();
    let kinds: Vec<&str> = calls.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(kinds, ["start", "finish"], "{calls}");
    assert!(calls.contains("finish {\"exit_code\":3"), "{calls}");
}

/// Keeps what the process source told.
struct Keeps(Arc<Mutex<Vec<ProcessMetrics>>>);

impl Sink for Keeps {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.0.lock().unwrap().extend(sample.get::<ProcessMetrics>().cloned());
        Ok(())
    }
}

/// Two trackers in one program, each around a command of its own.
#[test]
fn trackers_in_one_program_do_not_count_each_other_s_children() {
    let start = |program: &mut Command| {
        let child = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut run = Run::default();
        (run.command, run.pid) = (vec!["command".into()], Some(child.id() as i32));
        run.interval = Duration::from_millis(50);
        let job = JobObserver::new(TrackedJob::spawned(child.id() as i32), Host::default());
        let tracker = Tracker::new(run).observer(job).source("process", Box::new(ProcessConfig::default()));
        (child, tracker.sink("kept", Keeps(Arc::clone(&kept))).start().unwrap(), kept)
    };
    let (mut idle, of_idle, idle_kept) = start(&mut Command::new("cat"));
    // Later, so that it could be taken for an orphan of the first.
    let (mut busy, of_busy, busy_kept) = start(Command::new("sh").args(["-c", "while :; do :; done"]));
    // And a process that no tracker tracks.
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let used = |kept: &Mutex<Vec<ProcessMetrics>>| -> f64 {
        let kept = kept.lock().unwrap();
        let secs = |process: &ProcessMetrics| process.process_utime_secs.unwrap() + process.process_stime_secs.unwrap();
        kept.iter().map(secs).sum()
    };
    wait_until("some work", || used(&busy_kept) > 0.5 && idle_kept.lock().unwrap().len() >= 5);
    for running in [of_idle, of_busy] {
        running.take_last_sample(Duration::from_secs(60));
        running.finish(Outcome::default());
    }
    for child in [&mut idle, &mut busy, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for kept in [&idle_kept, &busy_kept] {
        let kept = kept.lock().unwrap();
        assert!(kept.iter().all(|process| process.process_child_count == Some(0)), "{kept:?}");
    }
    assert!(used(&idle_kept) < 0.25, "{}", used(&idle_kept));
}
