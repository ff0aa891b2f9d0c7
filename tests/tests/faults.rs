//! What goes wrong harms nothing else: the command's exit code is right, the other sections arrive on time, and
//! standard error says once what is wrong.

use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_tests::{
    Recording, command, has, in_time, is_root, job, number, samples, text, tracker, wait_until,
};

const FAULTY: &str = env!("CARGO_BIN_EXE_faulty-tracker");

#[test]
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
        in_time(|| {
            let recording = Recording::new();
            let start = Instant::now();
            let script = format!("{}; {}; exit 3", recording.until(10, ""), recording.note_waits());
            let mut tracker = command(FAULTY);
            tracker.args(["-i", "0.1", "--enable", enable, "-o"]).arg(recording.path());
            let output = recording.run(tracker.args(["--", "sh", "-c", &script]));
            let took = start.elapsed();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{enable}: {said}");
            assert!(said.contains(message), "{enable}: {said}");
            assert!(said.lines().count() <= enable.split(',').count(), "{enable}: each thing once: {said}");
            let samples = recording.samples();
            for sample in &samples[..9] {
                assert!(sample.get("cpu").is_some() && sample.get("disk").is_some() && sample.get("faulty").is_none());
            }
            let is_late = |sample: &&serde_json::Value| (number(sample, "/elapsed_secs") - 0.1).abs() > 0.05;
            // One may be: the machine is shared. One that comes late makes the next one short.
            let excused = 1 + 2 * (recording.waited() / 0.05) as usize;
            samples[..9].iter().filter(is_late).count() <= excused
                && samples.len() <= 12
                && took < Duration::from_secs(6)
        });
    }
}

#[test]
fn the_end_is_known_without_its_sample() {
    let recording = Recording::new();
    let script = format!("{}; exit 1", recording.until(4, ""));
    let mut tracker = command(FAULTY);
    tracker.args(["--summary", "-i", "0.1", "--enable", "tiring", "-o"]).arg(recording.path());
    let output = recording.run(tracker.args(["--", "sh", "-c", &script]));
    let said = text(&output.stderr);
    assert!(recording.samples().iter().all(|sample| sample.get("outcome").is_none()));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("\nexited with 1 after at least ") && !said.contains("\nAsk for"), "{said}");
}

#[test]
fn a_source_that_hangs_for_long_is_named() {
    let recording = Recording::new();
    let script = format!("{}; sleep 0.5", recording.until_said("source sleeping has not answered for 2 s"));
    let mut tracker = command(FAULTY);
    tracker.args(["-q", "-i", "0.1", "--enable", "sleeping", "--", "sh", "-c", &script]);
    let output = recording.run(&mut tracker);
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(0), 1), "{}", text(&output.stderr));
}

/// Stopped by `docker pause`, a batch system, or Ctrl-Z: that is no time in which anyone could have answered.
#[test]
fn a_tracker_that_was_stopped_takes_nobody_for_stuck() {
    in_time(|| {
        let recording = Recording::new();
        let mut tracker = command(FAULTY);
        tracker.args(["-i", "0.1", "--enable", "sleeping", "-o"]).arg(recording.path());
        let start = Instant::now();
        let tracker = recording.start(&mut tracker);
        let pid = Pid::from_raw(tracker.id() as i32);
        wait_until("a sample", || recording.samples().len() >= 3);
        kill(pid, Signal::SIGSTOP).unwrap();
        let mut awake = start.elapsed();
        std::thread::sleep(Duration::from_secs(3));
        let again = Instant::now();
        kill(pid, Signal::SIGCONT).unwrap();
        let before = recording.samples().len();
        wait_until("more samples", || recording.samples().len() >= before + 5);
        kill(pid, Signal::SIGTERM).unwrap();
        let output = recording.end(tracker);
        awake += again.elapsed();
        assert_eq!(output.status.code(), Some(0));
        // Whoever was awake for two seconds may say so.
        let is_in_time = awake < Duration::from_millis(1900);
        assert!(!is_in_time || output.stderr.is_empty(), "{}", text(&output.stderr));
        is_in_time
    });
}

/// A file of a driver that never answers: of a network card, of a drive.
#[test]
fn a_driver_that_hangs_keeps_no_sample_waiting() {
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    let names = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).filter(|name| *name != "lo");
    let links: Vec<String> = names.map(|name| format!("class/net/{name}/speed")).collect();
    if links.is_empty() {
        println!("skipped: no network interface beside loopback");
    }
    for files in [links, vec!["block/vda/size".to_owned()]] {
        in_time(|| {
            let sysfs = tempfile::tempdir().unwrap();
            for file in &files {
                let path = sysfs.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o644.into()).unwrap();
            }
            let recording = Recording::new();
            let mut tracker = command(tracker());
            tracker.args(["-i", "10ms", "--set", &format!("tracker.sysfs={:?}", sysfs.path()), "-o"]);
            tracker.arg(recording.path()).args(["--", "sh", "-c", &recording.until(60, "")]);
            let output = recording.run(&mut tracker);
            assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{files:?}");
            let mut intervals: Vec<f64> =
                recording.samples()[5..].iter().map(|sample| number(sample, "/elapsed_secs")).collect();
            intervals.sort_by(f64::total_cmp);
            let median = intervals[intervals.len() / 2];
            println!("{files:?}: {median} s");
            median < 0.015
        });
    }
}

/// When the file can be read again, its counters make no 10,000 s of CPU time that no process used.
#[test]
fn a_file_of_the_kernel_that_is_garbage_for_a_moment() {
    let procfs = tempfile::tempdir().unwrap();
    let stat = |ticks: &str, of_one: &str| {
        let times = format!("{ticks} 0 {ticks} {ticks} 0 0 0 0 0 0");
        format!("cpu  {times}\ncpu0 {of_one}\nctxt {ticks}\nprocesses 9\nprocs_running 1\nprocs_blocked 0\n")
    };
    let file = |name: &str, text: String| {
        let path = procfs.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let path = file("stat", stat("1000000", "1 0 1 1 0 0"));
    let garbage = file("garbage", stat("1000000", "1 0 jun 0 0"));
    let later = file("later", stat("1000100", "2 0 2 2 0 0"));
    // In place, and at once.
    let write = |from: &str| format!("dd if={from} of={path} bs=64k conv=notrunc status=none");
    let recording = Recording::new();
    let script = [
        recording.until(3, ""),
        write(&garbage),
        recording.until_said("cannot be read"),
        write(&later),
        recording.until_said("source cpu works again"),
        recording.until(20, ""),
    ];
    let mut tracker = command(tracker());
    tracker.args(["-i", "50ms", "--set", &format!("tracker.procfs={:?}", procfs.path()), "-o"]);
    let output = recording.run(tracker.arg(recording.path()).args(["--", "sh", "-c", &script.join("; ")]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let of_cpu: Vec<&str> = said.lines().filter(|line| line.contains("source cpu")).collect();
    assert_eq!(of_cpu.len(), 2, "why, and that it works again: {said}");
    assert!(of_cpu[0].ends_with("source cpu: /proc/stat: the line \"cpu0\" cannot be read"), "{said}");
    let samples = recording.samples();
    let told: Vec<_> = samples.iter().filter(|sample| sample.pointer("/cpu/utime_secs").is_some()).collect();
    assert!(told.len() < samples.len(), "absent meanwhile");
    let seconds = |path: &str| told.iter().map(|sample| number(sample, path)).sum::<f64>();
    assert_eq!((seconds("/cpu/utime_secs"), seconds("/cpu/stime_secs")), (1.0, 1.0));
    assert!(told.iter().all(|sample| number(sample, "/cpu/context_switches_per_sec") < 1e6));
}

fn run_into(path: &Path, job: &[&str]) -> Output {
    command(tracker()).args(["-i", "20ms", "-o"]).arg(path).args(job).output().unwrap()
}

#[test]
fn a_full_disk() {
    let output = run_into(Path::new("/dev/full"), &["--", "sh", "-c", "sleep 1; exit 3"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/dev/full") && said.contains("No space left"), "{said}");

    if !is_root("a small file system") || !has("unshare", "a small file system") {
        return;
    }
    let recording = Recording::new();
    let folder = recording.path().with_file_name("");
    // It is tried again after a second, without a second message.
    let job = format!("{}; sleep 1.5; exit 3", recording.until_said("No space left"));
    let script =
        "mkdir small && mount -t tmpfs -o size=1m tmpfs small && \"$@\"; code=$?; cp small/run.jsonl .; exit $code";
    let mut shell = command("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh"]).arg(tracker());
    shell.args(["-i", "1ms", "-o", "small/run.jsonl", "--", "sh", "-c", &job]);
    let output = recording.run(shell.current_dir(folder));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    let samples = samples(&std::fs::read(recording.path()).unwrap());
    assert!(samples.len() > 200, "{} whole lines fit", samples.len());
}

#[test]
fn a_reader_that_stops_reading() {
    in_time(|| {
        let recording = Recording::new();
        let script = format!("{}; exit 3", recording.until_told());
        let (unread, stdout) = std::io::pipe().unwrap();
        let size = rustix::pipe::fcntl_setpipe_size(&unread, 4096).unwrap();
        let mut tracker = command(tracker());
        tracker.args(["-i", "2ms", "-o", "-", "--", "sh", "-c", &script]).stdout(stdout).stderr(Stdio::piped());
        let mut tracker = tracker.spawn().unwrap();
        wait_until("a pipe without room for one more sample", || {
            size - (rustix::io::ioctl_fionread(&unread).unwrap() as usize) < 2048
        });
        recording.go_on();
        let start = Instant::now();
        assert_eq!(tracker.wait().unwrap().code(), Some(3));
        let took = start.elapsed();
        let mut said = String::new();
        tracker.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("sink stdout-json is stuck"), "{said}");
        assert!(said.lines().count() <= 3, "{said}");
        took < Duration::from_secs(4)
    });
}

#[test]
fn a_reader_that_leaves() {
    let recording = Recording::new();
    let job = format!("{}; sleep 0.2; exit 3", recording.until_said("its reader has gone"));
    let script = "\"$0\" -i 20ms -o - -- sh -c \"$1\" | head -1 >/dev/null; echo ${PIPESTATUS[0]}";
    let output = recording.run(command("bash").args(["-c", script]).arg(tracker()).arg(&job));
    assert_eq!(text(&output.stdout), "3\n");
    assert_eq!(text(&output.stderr).matches("its reader has gone").count(), 1, "{}", text(&output.stderr));

    // A filter whose reader leaves ends by itself, without a message.
    let script = format!("timeout 20 {} -i 20ms | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}", tracker().display());
    let output = command("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("0\n", ""));
}

#[test]
fn an_output_file_that_is_deleted_is_begun_anew() {
    let recording = Recording::new();
    let (begun, anew) = (recording.until(2, ""), recording.until(11, ""));
    let script = format!("{begun}; rm {}; {anew}; exit 3", recording.path().display());
    let output = recording
        .run(command(tracker()).args(["-i", "20ms", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr).matches("was deleted or moved away").count(), 1, "{}", text(&output.stderr));
    assert!(recording.samples().len() > 10);
}

#[test]
fn a_disk_that_has_no_room_for_another_file() {
    let test = "a disk without inodes";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let recording = Recording::new();
    let disk = recording.path().with_file_name("disk");
    std::fs::create_dir(&disk).unwrap();
    // One for the folder and one for the file; a file more when the next one has been missed for a while.
    let script = "mount -t tmpfs -o nr_inodes=2 none \"$0\" && cd \"$0\" && \"$@\"; code=$?; wc -l * >&3; exit $code";
    let mut shell = command("unshare");
    shell.args(["--mount", "sh", "-c", &format!("exec 3>&1; {script}")]).arg(&disk).arg(tracker());
    shell.args(["-q", "-i", "20ms", "-o", "run.jsonl", "--set", "sinks.output.rotate_bytes=20000"]);
    let beside = format!("sinks.all={{ type = 'file', path = '{}' }}", recording.path().display());
    shell.args(["--set", &beside, "--", "sh", "-c", &recording.until(40, "")]);
    let output = recording.run(&mut shell);
    let (said, lines) = (text(&output.stderr), text(&output.stdout));
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.contains("cannot write to run.jsonl: No space left"), "{said}");
    assert!(said.contains("samples are added to the file that was moved away"), "{said}");
    assert_eq!(lines.trim(), format!("{} run.1.jsonl", recording.samples().len()));
}

#[test]
fn an_output_in_a_missing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let output = run_into(&directory.path().join("missing/run.jsonl"), &["--", "touch", started.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing/run.jsonl") && !started.exists());
}

#[test]
fn a_proc_that_hides_other_users() {
    if !is_root("hidepid") || !has("unshare", "hidepid") || !has("setpriv", "hidepid") {
        return;
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let directory = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
    let copy = directory.path().join("resource-tracker");
    resource_tracker_tests::copy_tracker(&copy);
    // The job is two processes, and needs no others to wait.
    let gate = directory.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o644.into()).unwrap();
    let job = format!("sleep 100 & read line <{}; kill $!; exit 3", gate.display());
    let script =
        "mount -o remount,hidepid=2 /proc && exec setpriv --reuid 54321 --regid 54321 --clear-groups \"$0\" \"$@\"";
    let mut shell = command("unshare");
    shell.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script]).arg(&copy);
    let recording = Recording::new();
    let run = recording.start(shell.args(["-i", "0.1", "-o", "-", "--", "sh", "-c", &job]));
    let lines = || std::fs::read(recording.stdout()).unwrap().iter().filter(|byte| **byte == b'\n').count();
    wait_until("samples", || lines() >= 3);
    std::fs::write(&gate, "\n").unwrap();
    let output = recording.end(run);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    let samples = samples(&output.stdout);
    assert!(
        number(&samples[1], "/cpu/process_rss_mib") > 0.0 && number(&samples[1], "/cpu/process_child_count") == 1.0
    );
}

#[test]
fn a_dead_fuse_mount_makes_its_own_numbers_null_and_nothing_late() {
    if !is_root("a FUSE mount") || !has("unshare", "a FUSE mount") || !Path::new("/dev/fuse").exists() {
        println!("skipped: a FUSE mount needs /dev/fuse");
        return;
    }
    in_time(|| {
        let recording = Recording::new();
        let mount = recording.path().with_file_name("dead mount");
        std::fs::create_dir(&mount).unwrap();
        // In a mount namespace of its own, where no other test meets it.
        let script = "$0 dead-fuse \"$1\" > ready & while ! grep -q ready ready; do sleep 0.02; done; shift; \"$@\"; code=$?; \
                      kill -9 $!; exit $code";
        let (said, enough) = (recording.until_said("does not answer"), recording.until(25, ""));
        let mut shell = command("unshare");
        shell.args(["--mount", "bash", "-c", script]).arg(job()).arg(&mount).arg(tracker());
        shell.args(["-i", "0.1", "-o"]).arg(recording.path()).args([
            "--",
            "sh",
            "-c",
            &format!("{said}; {enough}; {}; exit 3", recording.note_waits()),
        ]);
        let start = Instant::now();
        let output = recording.run(shell.current_dir(recording.path().with_file_name("")));
        let took = start.elapsed();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert_eq!(said.matches("does not answer").count(), 1, "{said}");
        let samples = recording.samples();
        let last = samples.last().unwrap();
        let mounts = last["disk"].as_array().unwrap().iter().flat_map(|disk| disk["mounts"].as_array().unwrap());
        let path = mount.to_str().unwrap();
        let (dead, alive): (Vec<_>, Vec<_>) = mounts.partition(|mount| mount["mount_point"] == path);
        assert_eq!(dead.len(), 1, "{last}");
        assert!(dead[0]["total_bytes"].is_null() && dead[0]["used_pct"].is_null());
        assert!(alive.iter().all(|mount| mount["total_bytes"].is_u64()), "{alive:?}");
        // Neither a sample nor the end waits for it.
        took < Duration::from_secs(5) && samples.len() <= 27 && recording.is_on_time(0.1)
    });
}
