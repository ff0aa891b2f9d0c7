//! Stops of the whole group, and companions of the tracker that are killed or stopped.

use std::io::{BufReader, Lines};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use resource_tracker_tests::bare::{
    GUARDIAN, WITNESS, another_companion, bare_and_wrapped, companion, pid, same_end, start, state, stopped,
};
use resource_tracker_tests::{command, has, is_root, shared_library, text, tracker, wait_until};

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Starts a job that prints signals, in a group of its own, and returns its process id.
fn hearing(command: &mut std::process::Command) -> (Child, Pid, Lines<BufReader<ChildStdout>>) {
    let (child, first, lines) = start(command.process_group(0));
    let job = first.strip_prefix("ready ").unwrap().parse().unwrap();
    (child, Pid::from_raw(job), lines)
}

/// This signal ends the job. Of pending signals, the one with the lowest number comes first.
fn last_signal(to: Pid) {
    // SAFETY: a system call on numbers; the process was not waited for.
    assert_eq!(unsafe { libc::kill(to.as_raw(), libc::SIGRTMAX()) }, 0);
}

fn is_wrapped(child: &Child, job: Pid) -> bool {
    pid(child) != job
}

fn stop_group(child: &Child, job: Pid) {
    if is_wrapped(child, job) {
        another_companion(child, GUARDIAN, None);
    }
    killpg(pid(child), Signal::SIGSTOP).unwrap();
    wait_until("the stop", || state(job) == "T" && state(child.id()) == "T");
}

/// A process that waits for the command learns of its end, though the whole group was stopped and only the command was
/// continued.
#[test]
fn no_tracker_stays_stopped_when_its_command_has_ended() {
    for (how, expected) in [("killed", libc::SIGKILL), ("continued", 0)] {
        let ended = same_end(bare_and_wrapped(&[JOB, "hear"]), how, |command| {
            let (mut child, job, _lines) = hearing(command);
            stop_group(&child, job);
            if how == "killed" {
                kill(job, Signal::SIGKILL).unwrap();
            } else {
                kill(job, Signal::SIGCONT).unwrap();
                last_signal(job);
            }
            wait_until("its end", || child.try_wait().unwrap().is_some());
            child.wait().unwrap()
        });
        assert_eq!(ended.into_raw(), expected, "{how}");
    }
}

#[test]
fn a_tracker_goes_on_though_the_companions_were_killed() {
    // Before the stop: there are others.
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, job, _lines) = hearing(&mut wrapped);
    for name in [WITNESS, GUARDIAN] {
        let first = another_companion(&child, name, None);
        kill(first, Signal::SIGKILL).unwrap();
        another_companion(&child, name, Some(first));
    }
    stop_group(&child, job);
    kill(job, Signal::SIGKILL).unwrap();
    wait_until("its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    // The witness meanwhile, when the tracker stopped because the command did.
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, job, lines) = hearing(&mut wrapped);
    another_companion(&child, GUARDIAN, None);
    kill(job, Signal::SIGSTOP).unwrap();
    assert_eq!(stopped(&child), Signal::SIGSTOP);
    kill(another_companion(&child, WITNESS, None), Signal::SIGKILL).unwrap();
    kill(job, Signal::SIGCONT).unwrap();
    wait_until("the tracker goes on", || state(child.id()) != "T");
    last_signal(pid(&child));
    assert!(child.wait().unwrap().success());
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["18".to_owned(), libc::SIGRTMAX().to_string()]);
}

/// Without the answer of a witness that is stopped still, which is not waited for.
#[test]
fn who_continues_a_stopped_group_by_the_tracker_continues_the_command() {
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, job, mut lines) = hearing(&mut wrapped);
    let witness = another_companion(&child, WITNESS, None);
    stop_group(&child, job);
    wait_until("its stop", || state(witness) == "T");
    kill(pid(&child), Signal::SIGCONT).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "18");
    assert_eq!(companion(&child, WITNESS), Some(witness), "it has answered");
    killpg(pid(&child), Signal::SIGTERM).unwrap();
    last_signal(pid(&child));
    assert!(child.wait().unwrap().success());
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["15".to_owned(), libc::SIGRTMAX().to_string()]);
}

/// The tracker hears of both at once, and of the first one last.
#[test]
fn a_command_that_is_stopped_again_at_once_stops_the_tracker_again() {
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, job, _lines) = hearing(&mut wrapped);
    another_companion(&child, GUARDIAN, None);
    kill(job, Signal::SIGSTOP).unwrap();
    assert_eq!(stopped(&child), Signal::SIGSTOP);
    for _ in 0..20 {
        killpg(pid(&child), Signal::SIGCONT).unwrap();
        kill(job, Signal::SIGSTOP).unwrap();
        // From its signal on the tracker was not.
        wait_until("the stop of both", || state(job) == "T" && state(child.id()) == "T");
    }
    kill(job, Signal::SIGKILL).unwrap();
    wait_until("its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// Whether a signal waits for the process.
fn has_pending(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .filter(|line| line.starts_with("ShdPnd:") || line.starts_with("SigPnd:"))
        .any(|line| !line.ends_with(":\t0000000000000000"))
}

#[test]
fn a_witness_that_was_killed_or_stopped_has_a_signal_heard_once() {
    for done in [Signal::SIGKILL, Signal::SIGSTOP] {
        let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
        let (mut child, _, mut lines) = hearing(&mut wrapped);
        let witness = another_companion(&child, WITNESS, None);
        kill(witness, done).unwrap();
        match done {
            Signal::SIGKILL => _ = another_companion(&child, WITNESS, Some(witness)),
            _ => wait_until("its stop", || state(witness) == "T"),
        }
        for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCONT] {
            killpg(pid(&child), signal).unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), (signal as i32).to_string(), "{done}");
            // The command can hear it before the tracker does, which continues a witness that is stopped by a signal as well.
            wait_until("the end of it", || {
                ![pid(&child), companion(&child, WITNESS).unwrap()].into_iter().any(has_pending)
            });
        }
        last_signal(pid(&child));
        assert!(child.wait().unwrap().success());
        assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), [libc::SIGRTMAX().to_string()], "{done}");
    }
}

/// Its end would be the end of all others there.
#[test]
fn the_first_process_of_another_namespace_is_the_command() {
    if !is_root("a pid namespace") || !has("unshare", "a pid namespace") {
        return;
    }
    // In a shell that ends, should it hang: `timeout` kills what it started.
    let mut shell = command("timeout");
    shell.args(["-s", "KILL", "100", "unshare", "--pid"]).arg(tracker()).args(["-q", "--", "sh", "-c"]);
    let output = shell.arg("sh -c 'echo child'; exit 6").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(6), "child\n"), "{}", text(&output.stderr));
    // A plugin in isolation would be there before.
    let mut isolated = command("timeout");
    isolated.args(["-s", "KILL", "100", "unshare", "--pid"]).arg(tracker()).args(["-q", "--enable=fake", "--plugin"]);
    isolated.arg(shared_library("fake-plugin")).args(["--set=plugins.isolate=true", "--", "echo", "runs"]);
    let output = isolated.output().unwrap();
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{message}");
    assert!(message.contains("unshare --pid --fork") && message.lines().count() == 1, "{message}");
}

#[test]
fn a_command_that_asks_to_be_traced_gets_its_signals() {
    let traced = |signal: i32| format!("{JOB} traced {signal} 4");
    let code = |script: &str| {
        let output = command("sh").args(["-c", &format!("{script}; echo $?")]).output().unwrap();
        text(&output.stdout).trim().parse::<i32>().unwrap()
    };
    let wrapped = |signal: i32| code(&format!("{} -q -- {}", tracker().display(), traced(signal)));
    for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGTRAP] {
        // The shell, as its tracer, gets notice of the stop, and takes it for the end.
        assert_eq!([code(&traced(signal)), wrapped(signal)], [128 + signal; 2]);
    }
    assert_eq!(wrapped(libc::SIGWINCH), 4, "one that does nothing");
}

/// The state of its first thread does not show that.
#[test]
fn a_command_whose_first_thread_has_ended_stops_the_tracker() {
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "without-leader", "1", "100000"]);
    let mut child = wrapped.process_group(0).stdout(Stdio::null()).spawn().unwrap();
    another_companion(&child, GUARDIAN, None);
    let mut job = None;
    wait_until("the end of the first thread", || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        job = pids.map(Pid::from_raw).find(|pid| state(pid) == "Z");
        job.is_some()
    });
    killpg(pid(&child), Signal::SIGTSTP).unwrap();
    assert_eq!(stopped(&child), Signal::SIGTSTP);
    // The guardian looks every 50 ms.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(state(child.id()), "T");
    killpg(pid(&child), Signal::SIGCONT).unwrap();
    wait_until("that it goes on", || state(child.id()) != "T");
    kill(job.unwrap(), Signal::SIGKILL).unwrap();
    wait_until("its end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_stop_of_the_group_that_is_caught_is_heard_once_after_another_one() {
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, job, mut lines) = hearing(&mut wrapped);
    another_companion(&child, GUARDIAN, None);
    for _ in 0..10 {
        kill(job, Signal::SIGSTOP).unwrap();
        assert_eq!(stopped(&child), Signal::SIGSTOP);
        killpg(pid(&child), Signal::SIGCONT).unwrap();
        killpg(pid(&child), Signal::SIGTSTP).unwrap();
        // A stop that comes before CONT was taken makes that forgotten.
        assert!(lines.by_ref().any(|line| line.unwrap() == "20"));
        wait_until("that the tracker has taken all", || !has_pending(pid(&child)));
    }
    last_signal(pid(&child));
    assert!(child.wait().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(!rest.contains(&"20".to_owned()), "each of them once: {rest:?}");
}

#[test]
fn a_traced_command_goes_on_after_a_stop() {
    if !has("strace", "a traced command") {
        return;
    }
    let [_, mut wrapped] = bare_and_wrapped(&["sh", "-c", "echo $$; while :; do :; done"]);
    let (mut child, first, _lines) = start(wrapped.process_group(0));
    let job = Pid::from_raw(first.parse().unwrap());
    another_companion(&child, GUARDIAN, None);
    let mut strace = command("strace").args(["-qq", "-o", "/dev/null", "-p", &first]).spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{job}/status")).unwrap();
    wait_until("strace", || !status().contains("TracerPid:\t0"));
    for _ in 0..10 {
        killpg(pid(&child), Signal::SIGTSTP).unwrap();
        assert_eq!(stopped(&child), Signal::SIGTSTP);
        killpg(pid(&child), Signal::SIGCONT).unwrap();
        wait_until("that it goes on", || !has_pending(pid(&child)) && state(job) == "R");
        assert_ne!(state(child.id()), "T");
    }
    strace.kill().unwrap();
    strace.wait().unwrap();
    kill(job, Signal::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}
