//! What the processes of others cost a run, and that its own are found among them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use resource_tracker_tests::{Recording, benchmarks, command, has, number, text, tracker, wait_until};

/// Processes that sleep, and are no concern of the tracker's.
struct Others {
    root: Child,
    pids: Vec<u32>,
}

impl Others {
    fn come(count: usize) -> Self {
        let mut root = command(benchmarks());
        let mut root = root.args(["tree", &count.to_string(), "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(root.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), count);
        Self { root, pids }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // Its children go with it.
        let _ = self.root.kill();
        let _ = self.root.wait();
    }
}

/// The interval is long, so that forks are counted, however long this machine stands still.
#[test]
fn processes_that_were_there_before_the_command_are_not_opened() {
    if !has("strace", "the calls that the tracker makes") {
        return;
    }
    let others = Others::come(400);
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    for options in [&["-q"][..], &["-o", "/dev/null"], &["-q", "--no-cgroup"]] {
        let mut strace = command("strace");
        strace.args(["-f", "-e", "trace=open,openat,execve,readlink", "-o"]).arg(&log).arg(tracker());
        let output = strace.args(options).args(["-i", "10", "--", "true"]).output().unwrap();
        let calls = std::fs::read_to_string(&log).unwrap_or_default();
        if calls.is_empty() {
            eprintln!("skipped: strace may not trace here: {}", text(&output.stderr));
            return;
        }
        assert!(calls.contains("/stat\""), "the command's own is seen: {calls}");
        for pid in &others.pids {
            let named = [format!("\"{pid}/"), format!("/proc/{pid}/")];
            assert!(!named.iter().any(|name| calls.contains(name)), "{options:?} {pid}: {calls}");
        }
    }
}

#[test]
fn a_child_is_found_among_thousands_that_have_just_come() {
    let recording = Recording::new();
    let mut run = command(tracker());
    run.args(["-i", "1", "-o"]).arg(recording.path());
    run.args(["--", "sh", "-c", "read begin; sleep 1000 & read end; kill $!"]).stdin(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut input = run.stdin.take().unwrap();
    let children =
        || recording.samples().iter().map(|sample| number(sample, "/cpu/process_child_count")).collect::<Vec<_>>();
    wait_until("a sample without a child", || !children().is_empty());
    let others = Others::come(1500);
    input.write_all(b"begin\n").unwrap();
    let known = children().len();
    wait_until("three samples with the child", || children().iter().filter(|count| **count == 1.0).count() >= 3);
    drop(others);
    input.write_all(b"end\n").unwrap();
    assert!(run.wait().unwrap().code().is_some());
    let children = children();
    assert!(
        children[..known].iter().all(|count| *count == 0.0) && children.iter().all(|count| *count <= 1.0),
        "{children:?}"
    );
}
