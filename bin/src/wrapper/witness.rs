//! A companion in the tracker's process group that blocks every signal and does nothing: what is pending there was sent to
//! the whole group.
//!
//! The kernel goes through a group from its youngest member to its oldest, so what the tracker has got of such a signal
//! the witness has had before. It is older than the command, so it knows of all that the command can have got; what it
//! got before the command was born, the command makes up for.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::libc;
use rustix::process::Pid;

use super::companion::{Companion, Life, Line};
use super::state::{is_stopped, pending_of};
use crate::inherited::CommandLine;

/// Those that can be caught.
const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

pub(super) struct Witness {
    companion: Companion,
}

#[derive(Clone, Copy)]
struct Testify;

impl Witness {
    /// Starts it, when all signals are blocked, from the thread that will start the command.
    pub(super) fn start(command_line: CommandLine) -> Self {
        if next_child_is_init() {
            return Self { companion: Companion::none(command_line) };
        }
        let mut companion = Companion::start(command_line, Testify);
        // Without that, what the group gets before the command is born would be lost.
        if companion.pid().is_some_and(|pid| pending_of(pid).is_none()) {
            companion.give_up();
        }
        Self { companion }
    }

    /// Makes room for a process of more use. `false` when there was none already.
    pub(super) fn give_up(&mut self) -> bool {
        self.companion.give_up()
    }

    /// Sends the calling process, which becomes the command, what the group was sent before there was that process.
    /// Async-signal-safe.
    pub(super) fn catch_up(&self) {
        let Some(pid) = self.companion.pid() else { return };
        // In this order: what comes in between is only here.
        let (witness, own) = (pending_of(pid), own_pending());
        let missed = witness.unwrap_or_default() & !own.unwrap_or(u64::MAX);
        for signal in (1..=64).filter(|signal| missed & (1 << (signal - 1)) != 0) {
            // SAFETY: a system call on numbers.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }

    /// Whether this signal, which has arrived here, went to the whole group. Each one is told of once.
    /// `None` where that is not known.
    pub(super) fn group_had(&mut self, signal: i32) -> Option<bool> {
        if signal == libc::SIGCONT {
            // It may not have come as far as the witness, and continues that as well.
            let_group_signals_arrive();
        }
        // The group's SIGCONT would have continued it.
        if self.goes_on_after_a_stop() && signal == libc::SIGCONT {
            return Some(false);
        }
        self.companion.ask(u8::try_from(signal).ok()?, Testify)
    }

    /// What the group was stopped by is done with: this process was continued alone. A `CONT` to the group makes it forgotten.
    pub(super) fn forget_stops(&mut self) {
        STOPS.into_iter().for_each(|stop| _ = self.group_had(stop));
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.companion.pid().is_some()
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
        self.companion.revive(Testify);
    }

    /// It is not needed any more.
    pub(super) fn dismiss(&self) {
        self.companion.dismiss();
    }

    /// Continues it where it is stopped: it was stopped alone, or the tracker was continued alone.
    fn goes_on_after_a_stop(&mut self) -> bool {
        let Some(pid) = self.companion.pid() else { return false };
        let was_stopped = is_stopped(pid) == Some(true);
        if was_stopped {
            // SAFETY: a system call on numbers; the process is ours and was not waited for.
            unsafe { libc::kill(pid, libc::SIGCONT) };
            // That one was not the group's.
            self.companion.ask(libc::SIGCONT as u8, Testify);
        }
        was_stopped
    }
}

impl Life for Testify {
    const NAME: &'static CStr = c"signal-witness";

    fn live(self, line: Line, _: Pid) -> ! {
        loop {
            line.answer(|signal| take_pending(signal.into()));
        }
    }

    fn keeps(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Whether the next child is the first process of another pid namespace (`unshare --pid`). That is to be the command: the
/// end of the first one ends all others. Until then there is nothing to read of that namespace.
fn next_child_is_init() -> bool {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    namespace("pid").is_some_and(|own| namespace("pid_for_children") != Some(own))
}

/// Waits until no signal is on its way through a group, having reached some of it and not all: meanwhile the kernel holds a
/// lock for reading that this call takes for writing, before it finds that there is no such process.
pub(super) fn let_group_signals_arrive() {
    // SAFETY: a system call on numbers.
    unsafe { libc::setpgid(i32::MAX, 1) };
}

/// Whether the signal was pending here. It is no longer.
fn take_pending(signal: i32) -> bool {
    // SAFETY: the set is valid, for which zeros are a value, and both outlive the call, which does not wait.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        let at_once: libc::timespec = std::mem::zeroed();
        libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) == signal
    }
}

/// Whether a stop of this process, or of the group, waits to be taken.
pub(super) fn is_stop_pending() -> bool {
    let_group_signals_arrive();
    let own = own_pending().unwrap_or_default();
    STOPS.iter().any(|stop| own & (1 << (stop - 1)) != 0)
}

/// The signals that are pending for this process, where all are blocked.
fn own_pending() -> Option<u64> {
    // SAFETY: zeros are a value of the set, which the call writes to, and which outlives it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let found = libc::sigpending(&mut set) == 0;
        let bits = (1..=64).filter(|signal| libc::sigismember(&set, *signal) == 1).map(|signal| 1 << (signal - 1));
        found.then(|| bits.sum())
    }
}
