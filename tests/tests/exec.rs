//! Signals and stops while the command is not its program yet: a disk is slow, or `PATH` is long.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use resource_tracker_tests::bare::{GUARDIAN, WITNESS, another_companion, companion, is_pending, pid, state, stopped};
use resource_tracker_tests::{command, tracker, wait_until};
use tempfile::TempDir;

/// A tracker whose command is searched for in very many folders, each of which takes a millisecond: for longer than any
/// of these tests waits.
struct Searching {
    tracker: Child,
    command: Pid,
    _folder: TempDir,
}

impl Searching {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let links = 30;
        fs::create_dir(folder.path().join(links.to_string())).unwrap();
        for link in 0..links {
            symlink("./".repeat(2000) + &(link + 1).to_string(), folder.path().join(link.to_string())).unwrap();
        }
        let mut search = command(tracker());
        search.args(["-q", "--", "no-such-program"]).current_dir(folder.path()).process_group(0);
        let tracker = search.env("PATH", "0:".repeat(60_000)).spawn().unwrap();
        let mut command = None;
        wait_until("a process that searches", || {
            command = searching(&tracker);
            command.is_some()
        });
        another_companion(&tracker, WITNESS, None);
        Self { tracker, command: command.unwrap(), _folder: folder }
    }

    fn searches(&self) -> bool {
        searching(&self.tracker) == Some(self.command)
    }

    fn wait_until_stopped(&self, signal: Signal) {
        wait_until("the stop of both", || state(self.command) == "T" && state(self.tracker.id()) == "T");
        assert_eq!(stopped(&self.tracker), signal);
    }

    fn stop_alone(&self) {
        kill(self.command, Signal::SIGSTOP).unwrap();
        self.wait_until_stopped(Signal::SIGSTOP);
    }

    fn end(&mut self) -> ExitStatus {
        wait_until("the end", || self.tracker.try_wait().unwrap().is_some());
        self.tracker.wait().unwrap()
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        // Without effect where it has ended.
        let _ = kill(self.command, Signal::SIGKILL);
        let _ = self.tracker.kill();
        let _ = self.tracker.wait();
    }
}

/// The child of the tracker that bears its name still, and can be reached by signals.
fn searching(tracker: &Child) -> Option<Pid> {
    let read = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let id = tracker.id().to_string();
    let children = read(&id, &format!("task/{id}/children"));
    let found = children.split_whitespace().find(|pid| {
        let is_unblocked = read(pid, "status").lines().any(|line| line == "SigBlk:\t0000000000000000");
        read(pid, "comm") == read(&id, "comm") && is_unblocked
    })?;
    Some(Pid::from_raw(found.parse().unwrap()))
}

/// A shell gets its terminal back, and `fg` and `bg` work.
#[test]
fn what_stops_a_command_before_its_program_stops_the_tracker() {
    type Send = fn(Pid, Signal) -> nix::Result<()>;
    let (to_group, to_tracker): (Send, Send) = (|pid, signal| killpg(pid, signal), |pid, signal| kill(pid, signal));
    for (send, stop) in [(to_group, Signal::SIGTSTP), (to_tracker, Signal::SIGTSTP), (to_group, Signal::SIGSTOP)] {
        let mut run = Searching::start();
        for _ in 0..2 {
            send(pid(&run.tracker), stop).unwrap();
            run.wait_until_stopped(stop);
            send(pid(&run.tracker), Signal::SIGCONT).unwrap();
            wait_until("that both go on", || ![state(run.command), state(run.tracker.id())].contains(&"T".into()));
        }
        assert!(run.searches(), "it was stopped before its program began");
        send(pid(&run.tracker), Signal::SIGTERM).unwrap();
        assert_eq!(run.end().signal(), Some(Signal::SIGTERM as i32), "{stop}");
    }
}

/// Nobody wakes it but the guardian.
#[test]
fn a_command_that_goes_on_or_ends_before_its_program_wakes_the_tracker() {
    let mut run = Searching::start();
    let witness = companion(&run.tracker, WITNESS);
    run.stop_alone();
    kill(run.command, Signal::SIGCONT).unwrap();
    // Until it has noticed that, a new stop would be one of a tracker that goes on.
    wait_until("that the tracker goes on", || {
        let tracker = pid(&run.tracker);
        state(tracker) != "T" && ![Signal::SIGCONT, Signal::SIGCHLD].iter().any(|signal| is_pending(tracker, *signal))
    });
    assert!(run.searches() && companion(&run.tracker, GUARDIAN).is_some());
    assert_eq!(companion(&run.tracker, WITNESS), witness);
    run.stop_alone();
    kill(run.command, Signal::SIGKILL).unwrap();
    assert_eq!(run.end().signal(), Some(Signal::SIGKILL as i32));
}

#[test]
fn a_signal_to_the_tracker_reaches_a_command_before_its_program() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGABRT] {
        let mut run = Searching::start();
        kill(pid(&run.tracker), signal).unwrap();
        assert_eq!(run.end().signal(), Some(signal as i32));
    }
}
