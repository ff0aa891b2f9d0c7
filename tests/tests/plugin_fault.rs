//! Plugins that fail, hang, panic and crash, in the process of the tracker and in one of their own.

use std::fs;
use std::time::{Duration, Instant};

use flaky_test::flaky_test;
use resource_tracker_tests::plugin::{behaving, fake, run};
use resource_tracker_tests::{command, in_time, number, samples, shared_library, text, tracker, wait_until};

/// The first six leave the run whole, with one message.
#[flaky_test]
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
        let output = behaving(behaviour, &[]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains("source fake: ") && message.contains(said), "{behaviour}: {message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 8 && all.iter().all(|sample| sample["cpu"]["utime_secs"].is_number()), "{behaviour}");
    }
    let output = behaving("absent", &[]);
    assert_eq!(text(&output.stderr), "");
    let output = behaving("says", &[]);
    assert_eq!(text(&output.stderr), "resource-tracker: warning: source fake: configured as says with a second line\n");
}

#[flaky_test]
fn a_source_that_hangs_is_left_out() {
    let set = ["--enable=fake", "--set=sources.fake.behaviour=hang", "--", "sh", "-c", "sleep 3.5; exit 7"];
    for isolate in ["false", "true"] {
        let isolate = format!("--set=plugins.isolate={isolate}");
        let start = Instant::now();
        let output = fake("", &[&[isolate.as_str()], &set[..]].concat());
        assert!(start.elapsed().as_secs_f64() < 8.0);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
        assert!(message.contains("source fake has not answered for 2 s"), "{message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 34, "{}", all.len());
        assert!(all[all.len() - 1].get("fake").is_none());
    }
}

#[flaky_test]
fn a_panic_of_rust_stays_in_the_plugin() {
    let set = ["--enable=fields", "--set=sources.fields.panics=true", "--", "sh", "-c", "sleep 2; exit 7"];
    let output = run(&shared_library("fake-fields"), &set);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
    assert!(message.contains("source fields: ") && message.contains("it panicked: the third reading"), "{message}");
    assert!(samples(&output.stdout).len() >= 19);
}

/// In one process neither can be survived; in a process of its own both are.
#[flaky_test]
fn a_crash_is_survived_in_isolation() {
    for (behaviour, signal) in [("abort", 6), ("null", 11)] {
        let output = behaving(behaviour, &["--set=plugins.isolate=true"]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains(&format!("its process was ended by signal {signal}")), "{message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 8, "{behaviour}");
        assert!(all.iter().any(|sample| sample.get("fake").is_some()), "it worked until then");
        // The processes of the plugin are none of the job's.
        assert!(all.iter().all(|sample| number(sample, "/cpu/process_child_count") <= 1.0));
    }
}

#[flaky_test]
fn in_isolation_it_is_restarted() {
    let set = ["--enable=fake", "--set=sources.fake.behaviour=abort", "--set=plugins.isolate=true"];
    let output = fake("", &[&set[..], &["--", "sh", "-c", "sleep 7; exit 7"]].concat());
    assert_eq!(output.status.code(), Some(7));
    let all = samples(&output.stdout);
    let readings: Vec<u64> = all.iter().filter_map(|sample| sample["fake"]["tick"].as_u64()).collect();
    // It works for three readings, crashes, and is begun anew after 1, 2 and 4 s, of which the last is too late.
    let lives = 1 + readings.windows(2).filter(|pair| pair[1] > pair[0] + 5).count();
    assert_eq!(lives, 3, "{readings:?}");
}

/// Also when the tracker has no time to tidy up.
#[test]
fn processes_of_plugins_do_not_outlive_the_tracker() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let plugin = folder.path().join("only-here.so");
        fs::copy(shared_library("fake-plugin"), &plugin).unwrap();
        let processes = || {
            let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
            entries.filter(|maps| fs::read_to_string(maps).is_ok_and(|maps| maps.contains("only-here.so"))).count()
        };
        let mut longest = Duration::ZERO;
        for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGKILL] {
            let mut command = command(tracker());
            command.arg("--plugin").arg(&plugin).args(["--set=plugins.isolate=true", "--enable=fake", "-i", "0.1"]);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            wait_until("its process", || processes() > 0);
            assert_eq!(processes(), 1, "one, and none of them the tracker");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
            child.wait().unwrap();
            let ended = Instant::now();
            wait_until("its end", || processes() == 0);
            longest = longest.max(ended.elapsed());
        }
        longest < Duration::from_millis(300)
    });
}
