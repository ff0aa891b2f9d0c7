//! A companion that nobody stops together with the tracker: it is in a session of its own.
//!
//! It sees to it that the tracker does not stay stopped when the command does not: nobody who is stopped can notice that
//! the other one goes on. That the command has ended is an event, which costs nothing to wait for. That it goes on is not, so
//! only a stop that the tracker asked for is watched over.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::companion::{Companion, Life, Line};
use super::state::is_stopped;
use crate::inherited::CommandLine;

/// How often it looks whether a command that is stopped goes on.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What can be asked: whether it can watch over a stop, from then on; and the end of that.
const WATCH: u8 = 1;
const ENOUGH: u8 = 2;

pub(super) struct Guardian {
    companion: Companion,
    command: Pid,
    /// The command's, which nobody has waited for yet.
    pidfd: Option<OwnedFd>,
}

#[derive(Clone, Copy)]
struct Guard<'a> {
    command: Pid,
    pidfd: Option<BorrowedFd<'a>>,
}

impl Guardian {
    pub(super) fn start(command_line: CommandLine, command: Pid) -> Self {
        // Before kernel 5.3 there is no such file, and it watches over the stops that are asked for.
        let pidfd = pidfd_open(command, PidfdFlags::empty()).ok();
        let guard = Guard { command, pidfd: pidfd.as_ref().map(OwnedFd::as_fd) };
        Self { companion: Companion::start(command_line, guard), command, pidfd }
    }

    /// There is none, and will be none.
    pub(super) fn none(command_line: CommandLine, command: Pid) -> Self {
        Self { companion: Companion::none(command_line), command, pidfd: None }
    }

    /// From now on it wakes this process when that is stopped and the command is not. `false` when it cannot.
    pub(super) fn watch(&mut self) -> bool {
        self.ask(WATCH)
    }

    /// This process goes on.
    pub(super) fn end_watch(&mut self) {
        self.ask(ENOUGH);
    }

    /// Whether this is its process id.
    pub(super) fn is(&self, pid: i32) -> bool {
        self.companion.pid() == Some(pid)
    }

    /// What hangs up when it is gone.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.companion.line()
    }

    /// Starts another one where this one is gone.
    pub(super) fn revive(&mut self) {
        let guard = Guard { command: self.command, pidfd: self.pidfd.as_ref().map(OwnedFd::as_fd) };
        self.companion.revive(guard);
    }

    fn ask(&mut self, question: u8) -> bool {
        let guard = Guard { command: self.command, pidfd: self.pidfd.as_ref().map(OwnedFd::as_fd) };
        self.companion.ask(question, guard).unwrap_or(false)
    }
}

impl Life for Guard<'_> {
    const NAME: &'static CStr = c"stop-guardian";

    fn keeps(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd
    }

    fn live(self, line: Line, tracker: Pid) -> ! {
        // What cannot leave the group is stopped with it, and no worse than that.
        let _ = rustix::process::setsid();
        // SAFETY: it is what `keeps` has named, which was put there.
        let pidfd = self.pidfd.map(|_| unsafe { BorrowedFd::borrow_raw(1) });
        let [tracker, command] = [tracker, self.command].map(|pid| pid.as_raw_nonzero().get());
        let (mut watches, mut has_ended) = (false, false);
        loop {
            let death = if has_ended { None } else { pidfd };
            let mut files = [
                PollFd::new(&line, PollFlags::IN),
                // Without it the line is there twice.
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
