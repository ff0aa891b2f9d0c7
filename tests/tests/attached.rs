//! A run on a process that was there before (`--pid`) ends when that has ended, with all that it started.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use resource_tracker_tests::{
    Recording, command, has, is_root, number, samples, stop_after, text, tracker, wait_until,
};

/// A shell that waits for a line before it ends, and its descendant, which waits for one as well.
struct Family {
    root: Child,
    descendant: String,
}

impl Family {
    /// The descendant ends when its file is there.
    fn start(end: &std::path::Path) -> Self {
        let wait = format!("until test -e {}; do sleep 0.05; done", end.display());
        let script = format!("sh -c 'sleep 0; {wait}' & echo $!; read line");
        let mut root = command("sh");
        let mut root = root.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut descendant = String::new();
        BufReader::new(root.stdout.take().unwrap()).read_line(&mut descendant).unwrap();
        Self { root, descendant: descendant.trim().to_owned() }
    }

    fn end_root(&mut self) {
        self.root.stdin.take().unwrap().write_all(b"\n").unwrap();
        self.root.wait().unwrap();
    }
}

fn attach(pid: u32, interval: &str) -> Command {
    let mut tracker = command(tracker());
    tracker.args(["--pid", &pid.to_string(), "-i", interval]).stdout(Stdio::piped()).stderr(Stdio::piped());
    tracker
}

#[test]
fn it_ends_when_the_root_and_all_its_descendants_have() {
    let directory = tempfile::tempdir().unwrap();
    let end = directory.path().join("end");
    let mut family = Family::start(&end);
    let mut tracker = attach(family.root.id(), "50ms").spawn().unwrap();
    let mut lines = BufReader::new(tracker.stdout.take().unwrap()).lines().map(Result::unwrap);
    let children = |line: &str| samples(format!("{line}\n").as_bytes())[0]["cpu"]["process_child_count"].as_u64();
    assert!(lines.by_ref().any(|line| children(&line) >= Some(1)), "it sees the descendant");
    family.end_root();
    // The root is gone from the tree, and the samples go on.
    let tree = lines.by_ref().take(30).last().unwrap();
    assert!(children(&tree) >= Some(1), "{tree}");
    assert!(std::path::Path::new(&format!("/proc/{}", family.descendant)).exists());
    std::fs::write(&end, "").unwrap();
    let last = lines.last().unwrap();
    assert_eq!(children(&last), Some(0), "{last}");
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

/// As scripts do with `$$`.
#[test]
fn a_tracker_of_the_script_that_started_it_ends_with_that_and_does_not_count_itself() {
    for session in [&["sh"][..], &["setsid", "--wait", "sh"]] {
        let recording = Recording::new();
        // The tracker's own children are among them: those of a plugin, here in a life of its own.
        let script = format!(
            "'{}' -i 50ms --plugin '{}' --set plugins.isolate=true --pid $$ -o '{}' & {}; echo $!",
            tracker().display(),
            resource_tracker_tests::shared_library("infiniband").display(),
            recording.path().display(),
            recording.until(5, "")
        );
        let mut shell = command(session[0]);
        let output = shell.args(&session[1..]).args(["-c", &script]).output().unwrap();
        let tracker = text(&output.stdout);
        let tracker = std::path::PathBuf::from(format!("/proc/{}", tracker.trim()));
        wait_until("the tracker's end", || !tracker.exists());
        let samples = recording.samples();
        assert!(samples.last().unwrap()["outcome"]["wall_secs"].is_number(), "{session:?}");
        // The program that waits alone.
        let most = samples.iter().filter_map(|sample| sample["cpu"]["process_child_count"].as_u64()).max();
        assert!(most <= Some(1), "{session:?}: {most:?}");
    }
}

/// Else both would wait for each other for ever. And a shell that becomes the tracker is the parent of what it started
/// before.
#[test]
fn whoever_waits_for_the_tracker_is_not_waited_for() {
    for script in [
        "timeout 100 TRACKER --pid $$ & sleep 0.3",
        "(TRACKER --pid $$; :) & sleep 0.3",
        "TRACKER --pid $$ | cat | cat & sleep 0.3",
        "sleep 0.3 & exec TRACKER --pid $!",
        "mkfifo FIFO; cat FIFO >/dev/null & \
         TRACKER --set 'sinks.other={type=\"file\",path=\"FIFO\"}' --pid $$ & sleep 0.3",
    ] {
        let (recording, folder) = (Recording::new(), tempfile::tempdir().unwrap());
        let script = script.replace("FIFO", folder.path().join("fifo").to_str().unwrap());
        let tracker = format!("'{}' -i 50ms -o '{}'", tracker().display(), recording.path().display());
        let mut shell = command("sh");
        shell.args(["-c", &script.replace("TRACKER", &tracker)]).stdout(Stdio::null());
        assert_eq!(shell.status().unwrap().code(), Some(0), "{script}");
        let ended = || recording.samples().last().is_some_and(|last| last["outcome"]["wall_secs"].is_number());
        wait_until(&format!("the end of {script}"), ended);
    }
}

/// A script that started the tracker in the background goes on when the program above it was killed, with one step after the
/// other.
#[test]
fn a_script_that_goes_on_is_waited_for() {
    let (recording, folder) = (Recording::new(), tempfile::tempdir().unwrap());
    let done = folder.path().join("done");
    let steps = "i=0; while test $i -lt 60; do i=$((i + 1)); sleep 0.05; done; echo >\"$0\"";
    let script = format!(
        "'{}' -q -i 50ms --pid $PPID -o '{}' & {}; kill -KILL $PPID; {steps}",
        tracker().display(),
        recording.path().display(),
        recording.until(5, "")
    );
    let mut launcher = command("sh");
    let output = launcher.args(["-c", "sh -c \"$1\" \"$0\" & wait"]).arg(&done).arg(&script).output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9));
    let ended = || recording.samples().last().is_some_and(|last| last["outcome"]["wall_secs"].is_number());
    wait_until("the end of the run", ended);
    assert!(done.exists());
}

/// What a shell starts just before it ends, between two looks.
#[test]
fn descendants_that_came_last_are_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    for interval in ["1s", "1h"] {
        let [begin, end] = ["begin", "end"].map(|name| directory.path().join(format!("{name}-{interval}")));
        let wait = |file: &std::path::Path| format!("until test -e {}; do sleep 0.05; done", file.display());
        let script = format!("{}; sh -c 'sleep 0; {}' & echo $!", wait(&begin), wait(&end));
        let mut root = command("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut tracker = attach(root.id(), interval).spawn().unwrap();
        wait_until("the tracker waits for it", || holds_pidfd(tracker.id()));
        std::fs::write(&begin, "").unwrap();
        let mut descendant = String::new();
        BufReader::new(root.stdout.take().unwrap()).read_line(&mut descendant).unwrap();
        root.wait().unwrap();
        // It waits for another process now, and so for longer than a look takes.
        let since = std::time::Instant::now();
        wait_until("a second look", || {
            assert!(tracker.try_wait().unwrap().is_none(), "{interval}: its descendant {descendant} lives");
            since.elapsed() > std::time::Duration::from_secs(2)
        });
        std::fs::write(&end, "").unwrap();
        let output = tracker.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
}

/// One that the sampler never sees, and that shares neither session nor group with the root.
#[test]
fn descendants_are_known_however_long_the_interval() {
    if !has("setsid", "a descendant in a session of its own") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [begin, end] = ["begin", "end"].map(|name| directory.path().join(name));
    let wait = |file: &std::path::Path| format!("until test -e {}; do sleep 0.05; done", file.display());
    let script = format!("{}; setsid sh -c 'sleep 0; {}' & echo $!; read line", wait(&begin), wait(&end));
    let mut root = command("sh");
    let mut root = root.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut tracker = attach(root.id(), "1h").spawn().unwrap();
    wait_until("the tracker waits for it", || holds_pidfd(tracker.id()));
    std::fs::write(&begin, "").unwrap();
    BufReader::new(root.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    // As many wake-ups as show that it has looked once more since.
    let switches = |tracker: &Child| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", tracker.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = switches(&tracker);
    wait_until("three looks", || switches(&tracker) >= before + 3);
    drop(root.stdin.take());
    root.wait().unwrap();
    let before = switches(&tracker);
    wait_until("a look after the end", || tracker.try_wait().unwrap().is_some() || switches(&tracker) >= before + 2);
    assert!(tracker.try_wait().unwrap().is_none(), "its descendant lives");
    std::fs::write(&end, "").unwrap();
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

/// Whether a process waits for another one.
fn holds_pidfd(pid: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file.ends_with("anon_inode:[pidfd]"))
}

#[test]
fn the_end_has_a_last_sample_however_long_the_interval() {
    let mut job = command("sh");
    let mut job = job.args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
    let tracker = attach(job.id(), "1h").spawn().unwrap();
    wait_until("the tracker waits for it", || holds_pidfd(tracker.id()));
    drop(job.stdin.take());
    job.wait().unwrap();
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(samples(&output.stdout).len(), 1);
}

#[test]
fn a_zombie_has_ended() {
    let mut job = command("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", job.id());
    wait_until("its end", || std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    let output = attach(job.id(), "1h").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    job.wait().unwrap();
}

#[test]
fn one_that_does_not_exist_is_said_once_and_the_run_goes_on() {
    let none = (1 << 22) - 1;
    let output = stop_after(5, &mut attach(none, "50ms"));
    assert_eq!(output.status.code(), Some(0));
    let message = text(&output.stderr);
    assert!(message.lines().count() == 1 && message.contains(&format!("there is no process {none}")), "{message}");
    let all = samples(&output.stdout);
    assert!(all.len() >= 5 && all.iter().all(|sample| sample["cpu"]["process_cores_used"].is_null()));
}

/// `/proc` there is that of the outer namespace, in which the command has another number.
#[test]
fn a_command_in_a_namespace_of_its_own_with_the_outer_procfs() {
    if !is_root("a pid namespace") || !has("unshare", "a pid namespace") {
        return;
    }
    let recording = Recording::new();
    let mut unshare = command("unshare");
    unshare.args(["--pid", "--fork"]).arg(tracker()).args(["-i", "50ms", "-o"]).arg(recording.path());
    let output = unshare.args(["--", env!("CARGO_BIN_EXE_job"), "touch", "150", "600"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let rss: Vec<f64> =
        recording.samples().iter().filter_map(|sample| sample["cpu"]["process_rss_mib"].as_f64()).collect();
    let most = rss.iter().copied().fold(0.0, f64::max);
    assert!(rss.len() >= 3 && (150.0..170.0).contains(&most), "{rss:?}");
}

#[test]
fn the_process_of_another_namespace() {
    if !is_root("a pid namespace") || !has("unshare", "a pid namespace") {
        return;
    }
    let mut job = command("sh");
    let mut job = job.args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
    // Inside, the process has no number, and the procfs is that of the host.
    let inside = format!("exec {} --set tracker.procfs=/proc --pid {} -i 50ms", tracker().display(), job.id());
    let mut unshare = command("unshare");
    unshare.args(["--pid", "--fork", "sh", "-c", &inside]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tracker = unshare.spawn().unwrap();
    let mut lines = BufReader::new(tracker.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.by_ref().nth(2).unwrap();
    assert!(number(&samples(format!("{first}\n").as_bytes())[0], "/cpu/process_rss_mib") > 0.0, "{first}");
    drop(job.stdin.take());
    job.wait().unwrap();
    assert!(lines.last().is_some());
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}
