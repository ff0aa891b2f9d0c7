//! Plugins that fail, hang, panic and crash, in the process of the tracker and in one of their own.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use resource_tracker_tests::plugin::{behaving, fake};
use resource_tracker_tests::{Recording, command, in_time, number, shared_library, text, tracker, wait_until};
use serde_json::Value as Json;

/// The first six leave the run whole, with one message.
#[test]
fn a_source_that_misbehaves_harms_only_its_own_section() {
    for (behaviour, said) in [
        ("garbage", "what it wrote is not usable: key must be a string"),
        ("huge", "it wrote more than 4 MiB"),
        ("utf8", "what it wrote is not usable: invalid unicode"),
        ("foreign", "\"memory\" is no section of the plugin (there are: fake)"),
        ("error", "the device does not answer"),
        ("silent-error", "it returned -77 without a reason"),
        ("no-open", "the port is taken"),
    ] {
        let recording = Recording::new();
        let script = format!("{}; {}; exit 7", recording.until_said("source fake: "), recording.until(8, ""));
        let output = behaving(&recording, behaviour, &[], &script);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains("source fake: ") && message.contains(said), "{behaviour}: {message}");
        let all = recording.samples();
        assert!(all.len() >= 8 && all.iter().all(|sample| sample["cpu"]["utime_secs"].is_number()), "{behaviour}");
    }
    for (behaviour, said) in
        [("absent", ""), ("says", "resource-tracker: warning: source fake: configured as says with a second line\n")]
    {
        let recording = Recording::new();
        let script = match said {
            "" => recording.until(8, ""),
            _ => recording.until_said("source fake: "),
        };
        let output = behaving(&recording, behaviour, &[], &script);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), said));
    }
}

#[test]
fn a_source_that_hangs_is_left_out() {
    std::thread::scope(|scope| {
        for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
            scope.spawn(move || in_time(|| one_that_hangs_is_left_out(isolate)));
        }
    });
}

fn one_that_hangs_is_left_out(isolate: &str) -> bool {
    let recording = Recording::new();
    let mut tracker = fake("", &["--enable=fake", "--set=sources.fake.behaviour=hang", isolate, "-i", "0.1", "-o"]);
    let said = recording.until_said("source fake has not answered for 2 s");
    let script = format!("{said}; {}; {}; exit 7", recording.until(34, ""), recording.note_waits());
    let start = Instant::now();
    let output = recording.run(tracker.arg(recording.path()).args(["--", "sh", "-c", &script]));
    let took = start.elapsed();
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
    assert!(message.contains("source fake has not answered for 2 s"), "{message}");
    let all = recording.samples();
    assert!(all[all.len() - 1].get("fake").is_none());
    took < Duration::from_secs(8) && recording.is_on_time(0.1)
}

/// The samples go on without it, and the sections of a later life are in them again.
#[test]
fn a_derivation_that_fails_is_left_out() {
    // Which of its answers came in time is gathered over the tries.
    let is_left_out = |behaviour: &str, isolate: &str, said: &str, in_time: &mut BTreeSet<u64>| {
        let recording = Recording::new();
        let mut tracker = fake("", &[isolate, "-i", "0.1", "-o"]);
        let script = format!("{}; {}; exit 7", recording.until_said(said), recording.until(8, ""));
        tracker.env("FAKE_DERIVATION", behaviour).arg(recording.path()).args(["--", "sh", "-c", &script]);
        let output = recording.run(&mut tracker);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains("derivation fake-derived: ") && message.contains(said), "{message}");
        let all = recording.samples();
        let derived: Vec<u64> = all.iter().filter_map(|sample| sample["fake"]["tick"].as_u64()).collect();
        let before = if behaviour == "no-open" { 0 } else { 3 };
        let expected = &[1, 2, 3][..before];
        assert!(
            all.len() >= 8 && derived.iter().take_while(|tick| **tick <= 3).all(|tick| expected.contains(tick)),
            "{derived:?}"
        );
        assert!(all[before].get("fake").is_none(), "{behaviour}");
        // A sample does not wait long for an answer.
        in_time.extend(derived);
        expected.iter().all(|tick| in_time.contains(tick))
    };
    let said_of = |behaviour: &str, isolate: &str, said: &str| {
        let mut seen = BTreeSet::new();
        in_time(|| is_left_out(behaviour, isolate, said, &mut seen));
    };
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        said_of("hang", isolate, "has not answered for 2 s");
        said_of("no-open", isolate, "nothing follows");
        said_of("fails", isolate, "it does not add up");
        said_of("garbage", isolate, "what it wrote is not usable");
        said_of("foreign", isolate, "\"memory\" is no section of the plugin");
    }
    said_of("abort", "--set=plugins.isolate=true", "its process was ended by signal 6");
}

fn fields(recording: &Recording, arguments: &[&str], script: &str) -> std::process::Output {
    let mut tracker = command(tracker());
    tracker.arg("--plugin").arg(shared_library("fake-fields")).args(["--enable=fields", "-i", "0.1", "-o"]);
    recording.run(tracker.arg(recording.path()).args(arguments).args(["--", "sh", "-c", script]))
}

#[test]
fn a_panic_of_rust_stays_in_the_plugin() {
    in_time(|| {
        let recording = Recording::new();
        let (said, enough) = (recording.until_said("it panicked"), recording.until(19, ""));
        let script = format!("{said}; {enough}; {}; exit 7", recording.note_waits());
        let output = fields(&recording, &["--set=sources.fields.panics=true"], &script);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
        assert!(message.contains("source fields: ") && message.contains("it panicked: the third reading"), "{message}");
        recording.is_on_time(0.1)
    });
}

#[test]
fn what_a_plugin_of_rust_logs_is_said_with_its_name() {
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        let recording = Recording::new();
        let script = format!("{}; {}", recording.until_said("the second reading"), recording.until(4, ""));
        let output = fields(&recording, &[isolate, "--set=sources.fields.says=true"], &script);
        assert_eq!(text(&output.stderr), "resource-tracker: warning: source fields: this is the second reading\n");
    }
}

/// In one process neither can be survived; in a process of its own both are.
#[test]
fn a_crash_is_survived_in_isolation() {
    for (behaviour, signal) in [("abort", 6), ("null", 11)] {
        let recording = Recording::new();
        let said = recording.until_said(&format!("its process was ended by signal {signal}"));
        let script = format!("{said}; {}; exit 7", recording.until(8, ""));
        let output = behaving(&recording, behaviour, &["--set=plugins.isolate=true"], &script);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains(&format!("its process was ended by signal {signal}")), "{message}");
        let all = recording.samples();
        assert!(all.len() >= 8, "{behaviour}");
        assert!(all.iter().any(|sample| sample.get("fake").is_some()), "it worked until then");
        // The processes of the plugin do not belong to the job.
        assert!(all.iter().all(|sample| number(sample, "/cpu/process_child_count") <= 1.0));
    }
}

/// It works for three readings, crashes, and is begun anew after 1 s, then after 2 s, never sooner.
#[test]
fn in_isolation_it_is_restarted() {
    in_time(|| {
        let recording = Recording::new();
        let mut tracker = fake("", &["--enable=fake", "--set=sources.fake.behaviour=abort", "-i", "0.1", "-o"]);
        tracker.arg(recording.path()).arg("--set=plugins.isolate=true");
        let script = format!("{}; exit 7", recording.until_told());
        tracker.args(["--", "sh", "-c", &script]);
        let output = recording.run_until(&mut tracker, "its third life", || pauses(&recording.samples()).len() >= 2);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        let pauses = pauses(&recording.samples());
        // A sample has the reading of the tick before it.
        assert!(pauses[0] >= 0.9 && pauses[1] >= 1.9, "{pauses:?}");
        pauses[0] < 2.0 && pauses[1] < 3.5
    });
}

/// The seconds without a reading between two lives.
fn pauses(samples: &[Json]) -> Vec<f64> {
    let told = samples.iter().filter(|sample| sample["fake"]["tick"].is_u64());
    let told: Vec<(u64, f64)> =
        told.map(|one| (one["fake"]["tick"].as_u64().unwrap(), number(one, "/timestamp_ms") / 1e3)).collect();
    let apart = told.windows(2).filter(|pair| pair[1].0 > pair[0].0 + 5);
    apart.map(|pair| pair[1].1 - pair[0].1).collect()
}

/// Also when the tracker has no time to tidy up.
#[test]
fn processes_of_plugins_do_not_outlive_the_tracker() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let plugin = folder.path().join("only-here.so");
        fs::copy(shared_library("fake-plugin"), &plugin).unwrap();
        let has_it = |maps: String| maps.contains(plugin.to_str().unwrap());
        let processes = || {
            let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
            entries.filter(|maps| fs::read_to_string(maps).is_ok_and(has_it)).count()
        };
        let mut longest = Duration::ZERO;
        for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGKILL] {
            let mut command = command(tracker());
            command.arg("--plugin").arg(&plugin).args(["--set=plugins.isolate=true", "--enable=fake", "-i", "0.1"]);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            // Not the process that only described the plugin.
            wait_until("its process, and that alone", || processes() == 1);
            let own = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
            assert!(!has_it(own), "the tracker has it as well");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
            child.wait().unwrap();
            let ended = Instant::now();
            wait_until("its end", || processes() == 0);
            longest = longest.max(ended.elapsed());
        }
        longest < Duration::from_millis(300)
    });
}
