//! A companion in the tracker's process group that blocks every signal and does nothing. A signal that is pending there
//! was sent to the whole group.
//!
//! The kernel signals a group from its youngest member to its oldest, so the witness gets such a signal before the
//! tracker does. The witness is older than the command, so it also has all group signals that the command gets. Those
//! that it got before the command was born, the command sends itself.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::libc;
use rustix::process::Pid;

use super::companion::{Companion, CompanionTask, Line};
use super::state::{is_stopped, pending_of};
use crate::inherited::CommandLine;

/// The stop signals that can be caught.
const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

pub(super) struct Witness {
    companion: Companion,
}

#[derive(Clone, Copy)]
struct RecordGroupSignals;

impl Witness {
    /// Starts it. All signals must be blocked, and the calling thread must be the one that starts the command.
    pub(super) fn start(command_line: CommandLine) -> Self {
        if next_child_is_init() {
            return Self { companion: Companion::none(command_line) };
        }
        let mut companion = Companion::start(command_line, RecordGroupSignals);
        // It is of no use if its pending signals cannot be read: group signals from before the command would be lost.
        if companion.pid().is_some_and(|pid| pending_of(pid).is_none()) {
            companion.give_up();
        }
        Self { companion }
    }

    /// Ends it to make room for a more useful process. `false` when there was none.
    pub(super) fn give_up(&mut self) -> bool {
        self.companion.give_up()
    }

    /// Sends the calling process, which becomes the command, the signals that the group got before this process was
    /// born. Async-signal-safe.
    pub(super) fn catch_up(&self) {
        let Some(pid) = self.companion.pid() else { return };
        // In this order: a signal that comes in between shows only in the second reading.
        let (witness, own) = (pending_of(pid), own_pending());
        let missed = witness.unwrap_or_default() & !own.unwrap_or(u64::MAX);
        for signal in (1..=64).filter(|signal| missed & (1 << (signal - 1)) != 0) {
            // SAFETY: a system call on numbers.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }

    /// Whether this signal, which this process got, went to the whole group. The answer is given once for each signal.
    /// `None` where it is not known.
    pub(super) fn group_had(&mut self, signal: i32) -> Option<bool> {
        if signal == libc::SIGCONT {
            // The signal may not have reached the witness yet. It also continues the witness.
            let_group_signals_arrive();
        }
        // A SIGCONT to the group would have continued the witness.
        if self.goes_on_after_a_stop() && signal == libc::SIGCONT {
            return Some(false);
        }
        self.companion.ask(u8::try_from(signal).ok()?, RecordGroupSignals)
    }

    /// Forgets the stop signals of the group: this process was continued alone. A `CONT` to the group makes the kernel
    /// forget them.
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

    /// The line, which hangs up when the witness ends.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.companion.line()
    }

    /// Starts another one if this one has ended.
    pub(super) fn revive(&mut self) {
        self.companion.revive(RecordGroupSignals);
    }

    /// It is not needed any more.
    pub(super) fn dismiss(&self) {
        self.companion.dismiss();
    }

    /// Continues the witness if it is stopped: it was stopped alone, or the tracker was continued alone.
    fn goes_on_after_a_stop(&mut self) -> bool {
        let Some(pid) = self.companion.pid() else { return false };
        let was_stopped = is_stopped(pid) == Some(true);
        if was_stopped {
            // SAFETY: a system call on numbers; the process is ours and was not waited for.
            unsafe { libc::kill(pid, libc::SIGCONT) };
            // This SIGCONT did not go to the group.
            self.companion.ask(libc::SIGCONT as u8, RecordGroupSignals);
        }
        was_stopped
    }
}

impl CompanionTask for RecordGroupSignals {
    const NAME: &'static CStr = c"signal-witness";

    fn run(self, line: Line, _: Pid) -> ! {
        loop {
            line.answer(|signal| take_pending(signal.into()));
        }
    }

    fn inherited_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Whether the next child is the first process of another pid namespace (`unshare --pid`). That is to be the command: the
/// end of the first one ends all others. Until then there is nothing to read of that namespace.
fn next_child_is_init() -> bool {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    namespace("pid").is_some_and(|own| namespace("pid_for_children") != Some(own))
}

/// Waits until no signal is on its way through a group, delivered to some of its members and not to all. Meanwhile the
/// kernel holds a lock for reading, which this call takes for writing before it finds that there is no such process.
pub(super) fn let_group_signals_arrive() {
    // SAFETY: a system call on numbers.
    unsafe { libc::setpgid(i32::MAX, 1) };
}

/// Whether the signal was pending here. It is removed.
fn take_pending(signal: i32) -> bool {
    // SAFETY: the set is valid, for which zeros are a value, and both outlive the call, which does not wait.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        let at_once: libc::timespec = std::mem::zeroed();
        libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) == signal
    }
}

/// Whether a stop signal to this process or the group is pending.
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
