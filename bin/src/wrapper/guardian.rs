//! A companion in a session of its own, so that what stops the tracker does not stop it.
//!
//! It wakes the tracker when the tracker is stopped and the command goes on: a stopped tracker cannot notice that. The
//! end of the command is an event, which costs nothing to wait for. That it goes on is none, so only a stop that the
//! tracker asked for is watched.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::companion::{Companion, CompanionTask, Line};
use super::state::is_stopped;
use crate::inherited::CommandLine;

/// How often it looks whether a stopped command goes on.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The questions: to watch a stop from now on, answered with whether it can; and to end that.
const WATCH: u8 = 1;
const ENOUGH: u8 = 2;

pub(super) struct Guardian {
    companion: Companion,
    command: Pid,
    /// The pidfd of the command, which was not waited for yet.
    pidfd: Option<OwnedFd>,
}

#[derive(Clone, Copy)]
struct WatchStops<'a> {
    command: Pid,
    pidfd: Option<BorrowedFd<'a>>,
}

impl Guardian {
    pub(super) fn start(command_line: CommandLine, command: Pid) -> Self {
        // Kernels before 5.3 have no such file. Then it watches only the stops that it is asked for.
        let pidfd = pidfd_open(command, PidfdFlags::empty()).ok();
        let task = WatchStops { command, pidfd: pidfd.as_ref().map(OwnedFd::as_fd) };
        Self { companion: Companion::start(command_line, task), command, pidfd }
    }

    /// No guardian, now and later.
    pub(super) fn none(command_line: CommandLine, command: Pid) -> Self {
        Self { companion: Companion::none(command_line), command, pidfd: None }
    }

    /// From now on it wakes this process when this is stopped and the command is not. `false` when it cannot.
    pub(super) fn watch(&mut self) -> bool {
        self.ask(WATCH)
    }

    /// Ends the watch, because this process goes on.
    pub(super) fn end_watch(&mut self) {
        self.ask(ENOUGH);
    }

    /// Whether this is its process id.
    pub(super) fn is(&self, pid: i32) -> bool {
        self.companion.pid() == Some(pid)
    }

    /// The line, which hangs up when the guardian ends.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.companion.line()
    }

    /// Starts another one if this one has ended.
    pub(super) fn revive(&mut self) {
        let task = WatchStops { command: self.command, pidfd: self.pidfd.as_ref().map(OwnedFd::as_fd) };
        self.companion.revive(task);
    }

    fn ask(&mut self, question: u8) -> bool {
        let task = WatchStops { command: self.command, pidfd: self.pidfd.as_ref().map(OwnedFd::as_fd) };
        self.companion.ask(question, task).unwrap_or(false)
    }
}

impl CompanionTask for WatchStops<'_> {
    const NAME: &'static CStr = c"stop-guardian";

    fn inherited_file(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd
    }

    fn run(self, line: Line, tracker: Pid) -> ! {
        // If it cannot leave the group, it is stopped with it, which does no further harm.
        let _ = rustix::process::setsid();
        // SAFETY: it is the `inherited_file`, which was put there.
        let pidfd = self.pidfd.map(|_| unsafe { BorrowedFd::borrow_raw(1) });
        let [tracker, command] = [tracker, self.command].map(|pid| pid.as_raw_nonzero().get());
        let (mut watches, mut has_ended) = (false, false);
        loop {
            let death = if has_ended { None } else { pidfd };
            let mut files = [
                PollFd::new(&line, PollFlags::IN),
                // Without a pidfd the line is there twice.
                death.map_or(PollFd::new(&line, PollFlags::IN), |file| PollFd::from_borrowed_fd(file, PollFlags::IN)),
            ];
            let _ = poll(&mut files, (watches || has_ended).then_some(&LOOK));
            let is_ready = files.map(|file| !file.revents().is_empty());
            if is_ready[0] {
                line.answer(|question| {
                    watches = question == WATCH && is_stopped(tracker).is_some() && is_stopped(command).is_some();
                    watches || question == ENOUGH
                });
                continue;
            }
            has_ended |= death.is_some() && is_ready[1];
            let goes_on = has_ended || watches && is_stopped(command) != Some(true);
            if goes_on && is_stopped(tracker) == Some(true) {
                // SAFETY: a system call on numbers; it is the parent, with whom this process would have ended.
                unsafe { libc::kill(tracker, libc::SIGCONT) };
            }
        }
    }
}
