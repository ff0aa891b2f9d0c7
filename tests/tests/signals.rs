//! Signals in quick succession, and those that a command sends to its parent.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use resource_tracker_tests::bare::{bare_and_wrapped, heard, pid, shell, start, state};
use resource_tracker_tests::plugin::fake;
use resource_tracker_tests::{command, in_time, samples, stop_after, text, tracker, wait_until};
use rustix::fs::{FileType, Mode};

const JOB: &str = env!("CARGO_BIN_EXE_job");

fn send(to: i32, signal: i32) {
    // SAFETY: a system call on numbers; the process was not waited for.
    assert_eq!(unsafe { libc::kill(to, signal) }, 0);
}

/// Two signals of one number can become one on their way to any process. A third one never comes to a bare command.
#[test]
fn two_signals_to_the_group_in_a_moment_are_never_three() {
    for gap in [10, 30, 60, 200].map(Duration::from_micros) {
        let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
        let (mut child, _, mut lines) = start(wrapped.process_group(0));
        let mark = libc::SIGRTMIN();
        for pair in 0..80 {
            killpg(pid(&child), Signal::SIGUSR1).unwrap();
            let first = Instant::now();
            while first.elapsed() < gap {}
            killpg(pid(&child), Signal::SIGUSR1).unwrap();
            // Of what has arrived at the tracker the lowest number is passed on first.
            send(pid(&child).as_raw(), mark);
            let heard = lines.by_ref().map(Result::unwrap).take_while(|line| *line != mark.to_string()).count();
            assert!((1..=2).contains(&heard), "{gap:?}, pair {pair}: {heard}");
        }
        send(pid(&child).as_raw(), libc::SIGRTMAX());
        assert!(child.wait().unwrap().success());
    }
}

/// Those are queued one by one.
#[test]
fn real_time_signals_to_the_group_are_all_heard_once() {
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let (mut child, _, lines) = start(wrapped.process_group(0));
    let (group, signal) = (-pid(&child).as_raw(), libc::SIGRTMIN() + 3);
    for _ in 0..500 {
        send(group, signal);
    }
    // Later than all of these, by its number.
    send(pid(&child).as_raw(), libc::SIGRTMAX());
    let heard: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(heard.iter().filter(|line| **line == signal.to_string()).count(), 500);
    assert_eq!(heard.len(), 501);
}

/// Each is sent when the one before it was heard.
#[test]
fn many_signals_to_the_group_are_each_heard_once() {
    for command in &mut bare_and_wrapped(&[JOB, "hear"]) {
        let heard = heard(command, &[Signal::SIGUSR1; 150], |group, signal| killpg(group, signal).unwrap());
        assert_eq!(heard.len(), 151, "{command:?}");
    }
}

/// A thread that was there before the command could take what the tracker waits for, or end by it.
#[test]
fn a_thread_that_a_plugin_starts_when_it_is_loaded_takes_no_signal() {
    let signals = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGCONT, Signal::SIGTERM];
    let mut hearing = fake("thread", &["-q", "--", JOB, "hear"]);
    assert_eq!(heard(&mut hearing, &signals, |tracker, signal| kill(tracker, signal).unwrap()).len(), 5);
    // Which thread gets the SIGCHLD is as good as chance.
    for _ in 0..20 {
        let mut child = fake("thread", &["-q", "--", "sh", "-c", "exit 7"]).spawn().unwrap();
        let mut ended = None;
        wait_until("the end", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(7));
    }
    let asked = fake("thread", &["-q", "--", "grep", "SigBlk", "/proc/self/status"]).output().unwrap();
    assert_eq!(text(&asked.stdout), "SigBlk:\t0000000000000000\n");
}

/// The first thread has its own signals.
#[test]
fn a_run_without_a_command_ends_by_the_signals_that_it_ends_by_without_such_a_plugin() {
    for _ in 0..5 {
        let output = stop_after(1, &mut fake("thread", &["-i", "50ms"]));
        assert!(output.status.success(), "{output:?}");
    }
    for signal in [Signal::SIGUSR1, Signal::SIGABRT] {
        let (mut child, ..) = start(&mut fake("thread", &["-i", "50ms"]));
        kill(pid(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
    }
}

/// What the run still waits for is not worth more than the user's patience, from the end of the command on.
#[test]
fn a_request_to_stop_during_the_last_sample_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    // A reading of these does not return.
    for file in ["meminfo", "vmstat", "loadavg", "stat"] {
        rustix::fs::mknodat(rustix::fs::CWD, folder.path().join(file), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut run = command(tracker());
    run.args(["-q", "--disable=cloud"]).arg(format!("--set=tracker.procfs={}", folder.path().display()));
    run.arg(format!("--set=sinks.sentinel-s3.api_url=http://{}", silent.local_addr().unwrap()));
    run.args(["--set=sinks.sentinel-s3.finish_timeout_secs=100", "--", "sh", "-c", "echo $$; read line; exit 7"]);
    run.env("SENTINEL_API_TOKEN", "x".repeat(20)).env("XDG_STATE_HOME", folder.path());
    let (mut child, job, _lines) = start(run.stdin(Stdio::piped()));
    drop(child.stdin.take());
    wait_until("the end of the command", || state(&job).is_empty());
    kill(pid(&child), Signal::SIGTERM).unwrap();
    let mut ended = None;
    wait_until("the end", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(7));
}

/// Batch systems and service managers send it to every process of a job, in any order.
#[test]
fn a_request_that_reaches_the_command_first_costs_no_last_sample() {
    let folder = tempfile::tempdir().unwrap();
    for exec in ["exec sleep 60", "sleep 60; exit 143"] {
        for number in 0..20 {
            let recording = folder.path().join("run.jsonl");
            let mut run = command(tracker());
            run.args(["-q", "-i", "20ms", "-o"]).arg(&recording);
            run.args(["--set=sinks.output.if_exists=overwrite", "--", "sh", "-c", &format!("echo $$; {exec}")]);
            let (mut child, job, _lines) = start(&mut run);
            wait_until("a sample", || fs::metadata(&recording).is_ok_and(|file| file.len() > 0));
            let job = Pid::from_raw(job.parse().unwrap());
            kill(job, Signal::SIGTERM).unwrap();
            std::thread::sleep(Duration::from_millis(number % 5));
            kill(pid(&child), Signal::SIGTERM).unwrap();
            child.wait().unwrap();
            let last = samples(&fs::read(&recording).unwrap()).pop().unwrap();
            assert!(last["outcome"].is_object(), "{exec}, {number}: {last}");
        }
    }
}

fn words(command: &Command) -> Vec<OsString> {
    [command.get_program()].into_iter().chain(command.get_args()).map(OsStr::to_owned).collect()
}

/// A shell that prints the name of a signal that reaches it, and else how its child ended.
fn parent_of(words: Vec<OsString>) -> Command {
    let mut parent = command("sh");
    let script = "trap 'echo TERM' TERM; trap 'echo USR1' USR1; trap 'echo URG' URG; \"$@\"; echo $?";
    parent.args(["-c", script, "sh"]).args(words);
    parent
}

#[test]
fn a_signal_of_the_command_to_its_parent_goes_to_who_started_the_tracker() {
    for signal in ["TERM", "USR1", "URG", "40"] {
        let script = format!("kill -{signal} $PPID; exit 7");
        let [bare, wrapped] = shell(&script).each_ref().map(|command| {
            let output = parent_of(words(command)).output().unwrap();
            (output.status.code(), output.status.signal(), text(&output.stdout))
        });
        assert_eq!(wrapped, bare, "{signal}");
    }
}

/// The shell that started the tracker has ended, so that the tracker's parent is a process that adopts orphans.
#[test]
fn a_signal_of_the_command_to_its_parent_reaches_nobody_who_has_adopted_the_tracker() {
    let job = "trap 'kill -USR1 $PPID; echo sent' HUP; trap 'echo USR1' USR1; trap 'echo USR2; exit' USR2; echo ready; \
               while :; do sleep 0.02; done";
    let mut parent = command("sh");
    parent.args(["-c", "\"$@\" & echo $!; read line", "sh"]).args(words(&shell(job)[1]));
    let (mut parent, first, mut lines) = start(parent.stdin(Stdio::piped()));
    let mut said = || lines.next().unwrap().unwrap();
    let mut both = [first, said()];
    both.sort();
    let tracker = Pid::from_raw(both[0].parse().unwrap());
    assert_eq!(both[1], "ready");
    drop(parent.stdin.take());
    parent.wait().unwrap();
    kill(tracker, Signal::SIGHUP).unwrap();
    assert_eq!(said(), "sent");
    // What the tracker got before is passed on before, if it is.
    kill(tracker, Signal::SIGUSR2).unwrap();
    assert_eq!(said(), "USR2");
}

/// `timeout` sends the signal to the program, and then to its group.
#[test]
fn a_request_to_stop_that_comes_twice_in_a_moment_is_one() {
    in_time(|| {
        let mut tracker = command(tracker());
        let mut child = tracker.args(["-i", "2ms"]).stdout(Stdio::piped()).spawn().unwrap();
        // More than the pipe holds is on its way.
        std::thread::sleep(Duration::from_millis(500));
        kill(pid(&child), Signal::SIGTERM).unwrap();
        let first = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
        kill(pid(&child), Signal::SIGTERM).unwrap();
        let is_moment = first.elapsed() < Duration::from_millis(50);
        let mut written = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut written).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let is_whole = written.len() > 80 << 10 && written.ends_with(b"}\n");
        assert!(is_whole || !is_moment, "{}", written.len());
        is_moment
    });
}
