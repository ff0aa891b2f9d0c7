//! What goes wrong harms nothing else: the command's exit code is right, the other sections arrive on time, and
//! standard error says once what is wrong.

use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use flaky_test::flaky_test;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_tests::{command, has, is_root, number, samples, text, tracker};

const JOB: [&str; 4] = ["--", "sh", "-c", "sleep 1; exit 3"];

/// Runs the tracker with faulty components for a second, at ten samples a second, into a file.
fn with_faults(enable: &str) -> (Output, Vec<serde_json::Value>, Duration) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let start = Instant::now();
    let output = command(env!("CARGO_BIN_EXE_faulty-tracker"))
        .args(["-i", "0.1", "--enable", enable, "-o"])
        .arg(&path)
        .args(JOB)
        .output()
        .unwrap();
    (output, samples(&std::fs::read(&path).unwrap()), start.elapsed())
}

#[flaky_test]
fn components_that_fail_hang_and_panic() {
    let cases = [
        ("failing", "source failing: the sensor is on fire"),
        ("panicking", "source panicking panicked and is off from now on: index out of cheese"),
        ("sleeping", ""),
        ("failing-sink", "sink failing-sink: the sensor is on fire"),
        ("panicking-sink", "sink panicking-sink panicked and is off from now on: index out of cheese"),
        ("sleeping-sink", "sink sleeping-sink is stuck"),
        ("failing,sleeping,panicking,failing-sink,panicking-sink,sleeping-sink", ""),
    ];
    for (enable, message) in cases {
        let (output, samples, took) = with_faults(enable);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{enable}: {said}");
        assert!(said.contains(message), "{enable}: {said}");
        assert!(said.lines().count() <= enable.split(',').count(), "{enable}: each thing once: {said}");
        assert!((10..=12).contains(&samples.len()), "{enable}: {} samples", samples.len());
        let is_late = |sample: &&serde_json::Value| (number(sample, "/elapsed_secs") - 0.1).abs() > 0.05;
        // One may be: the machine is shared.
        assert!(samples[..9].iter().filter(is_late).count() <= 1, "{enable}: on time");
        for sample in &samples[..9] {
            assert!(sample.get("cpu").is_some() && sample.get("disk").is_some() && sample.get("faulty").is_none());
        }
        assert!(took < Duration::from_secs(6), "{enable}: {took:?}");
    }
}

#[flaky_test]
fn a_source_that_hangs_for_long_is_named() {
    let output = command(env!("CARGO_BIN_EXE_faulty-tracker"))
        .args(["-q", "-i", "0.1", "--enable", "sleeping", "--", "sleep", "2.5"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("source sleeping has not answered for 2 s"), "{said}");
}

/// Stopped by `docker pause`, a batch system, or Ctrl-Z: that is no time in which anyone could have answered.
#[flaky_test]
fn a_tracker_that_was_stopped_takes_nobody_for_stuck() {
    let mut tracker = command(env!("CARGO_BIN_EXE_faulty-tracker"));
    let tracker = tracker.args(["-q", "-i", "0.1", "--enable", "sleeping"]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(tracker.id() as i32);
    for (signal, millis) in [(Signal::SIGSTOP, 500), (Signal::SIGCONT, 3000), (Signal::SIGTERM, 500)] {
        std::thread::sleep(Duration::from_millis(millis));
        kill(pid, signal).unwrap();
    }
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

fn run_into(path: &Path, job: &[&str]) -> Output {
    command(tracker()).args(["-i", "20ms", "-o"]).arg(path).args(job).output().unwrap()
}

#[flaky_test]
fn a_full_disk() {
    let output = run_into(Path::new("/dev/full"), &JOB);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/dev/full") && said.contains("No space left"), "{said}");

    if !is_root("a small file system") || !has("unshare", "a small file system") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mkdir small && mount -t tmpfs -o size=1m tmpfs small && \"$@\"; code=$?; cp small/run.jsonl copy.jsonl; exit $code";
    let output = command("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(tracker())
        .args(["-i", "1ms", "-o", "small/run.jsonl", "--", "sh", "-c", "sleep 3; exit 3"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    let samples = samples(&std::fs::read(directory.path().join("copy.jsonl")).unwrap());
    assert!(samples.len() > 200, "{} whole lines fit", samples.len());
}

#[flaky_test]
fn a_reader_that_stops_reading() {
    let mut job = command(tracker());
    let start = Instant::now();
    let mut job =
        job.args(["-i", "2ms", "-o", "-"]).args(JOB).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = job.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(start.elapsed() < Duration::from_secs(5));
    let mut said = String::new();
    job.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("sink stdout-json is stuck"), "{said}");
    assert!(said.lines().count() <= 3, "{said}");
}

#[flaky_test]
fn a_reader_that_leaves() {
    let script = format!(
        "{} -i 20ms -o - -- sh -c 'sleep 1; exit 3' | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        tracker().display()
    );
    let output = command("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(text(&output.stdout), "3\n");
    assert_eq!(text(&output.stderr).matches("its reader has gone").count(), 1, "{}", text(&output.stderr));

    // A filter whose reader leaves ends by itself and says nothing.
    let script = format!("timeout 5 {} -i 20ms | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}", tracker().display());
    let output = command("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("0\n", ""));
}

#[flaky_test]
fn an_output_file_that_is_deleted_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let script = format!("sleep 0.5; rm {}; sleep 2; exit 3", path.display());
    let output = run_into(&path, &["--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr).matches("was deleted or moved away").count(), 1, "{}", text(&output.stderr));
    assert!(samples(&std::fs::read(&path).unwrap()).len() > 10);
}

#[test]
fn an_output_in_a_missing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let output = run_into(&directory.path().join("missing/run.jsonl"), &["--", "touch", started.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing/run.jsonl") && !started.exists());
}

#[flaky_test]
fn a_proc_that_hides_other_users() {
    if !is_root("hidepid") || !has("unshare", "hidepid") || !has("setpriv", "hidepid") {
        return;
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let directory = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
    let copy = directory.path().join("resource-tracker");
    std::fs::copy(tracker(), &copy).unwrap();
    let script = format!(
        "mount -o remount,hidepid=2 /proc && exec setpriv --reuid 54321 --regid 54321 --clear-groups {} -i 0.1 -o - -- sh -c 'sleep 0.5; exit 3'",
        copy.display()
    );
    let output =
        command("unshare").args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    let samples = samples(&output.stdout);
    assert!(
        number(&samples[1], "/cpu/process_rss_mib") > 0.0 && number(&samples[1], "/cpu/process_child_count") == 1.0
    );
}

#[flaky_test]
fn a_dead_fuse_mount_makes_its_own_numbers_null_and_nothing_late() {
    if !is_root("a FUSE mount") || !has("unshare", "a FUSE mount") || !Path::new("/dev/fuse").exists() {
        println!("skipped: a FUSE mount needs /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mount = directory.path().join("dead mount");
    std::fs::create_dir(&mount).unwrap();
    let tracker = tracker();
    let start = Instant::now();
    // In a mount namespace of its own, where no other test meets it.
    let script = "$0 dead-fuse \"$1\" > ready & while ! grep -q ready ready; do sleep 0.02; done; shift; \"$@\"; code=$?; \
                  kill -9 $!; exit $code";
    let output = command("unshare")
        .args(["--mount", "bash", "-c", script, env!("CARGO_BIN_EXE_job")])
        .arg(&mount)
        .arg(tracker)
        .args(["-i", "0.1", "-o", "-", "--", "sh", "-c", "sleep 2.5; exit 3"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(start.elapsed() < Duration::from_secs(5), "the end does not wait for it either");
    let said = text(&output.stderr);
    assert_eq!(said.matches("does not answer").count(), 1, "{said}");
    let samples = samples(&output.stdout);
    assert!((24..=27).contains(&samples.len()), "{}", samples.len());
    let last = samples.last().unwrap();
    let mounts = last["disk"].as_array().unwrap().iter().flat_map(|disk| disk["mounts"].as_array().unwrap());
    let path = mount.to_str().unwrap();
    let (dead, alive): (Vec<_>, Vec<_>) = mounts.partition(|mount| mount["mount_point"] == path);
    assert_eq!(dead.len(), 1, "{last}");
    assert!(dead[0]["total_bytes"].is_null() && dead[0]["used_pct"].is_null());
    assert!(alive.iter().all(|mount| mount["total_bytes"].is_u64()), "{alive:?}");
}
