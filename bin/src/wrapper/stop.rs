//! The tracker stops when the command does, so that a shell sees what it sees without it.

use std::ffi::c_int;

use nix::libc;
use rustix::process::Pid;

use super::guardian::Guardian;
use super::state::is_stopped_by_signal;
use super::wait;

/// The signal that stopped the command, if it is stopped. Each stop is returned once.
pub(super) fn of_command(command: Pid) -> Option<c_int> {
    wait::stopped(command)
}

/// Whether the command is still stopped by a signal.
pub(super) fn is_in_force(command: Pid) -> bool {
    is_stopped_by_signal(command.as_raw_nonzero().get())
}

/// Stops this process as the command was stopped, until it is continued. If a SIGCONT is pending, it does not stop,
/// because that must be passed on first.
pub(super) fn with_command(signal: c_int, guardian: &mut Guardian) {
    // Without a guardian that wakes it, only a shell that stopped the command is sure to continue both.
    if !guardian.watch() && signal == libc::SIGSTOP {
        return;
    }
    if !is_continued() {
        by(signal);
    }
    guardian.end_watch();
}

/// Whether a SIGCONT is pending for this process, which a stop would discard.
fn is_continued() -> bool {
    // SAFETY: zeros are a value of the set, which the call writes to.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, libc::SIGCONT) == 1
    }
}

/// In an orphaned process group the kernel ignores all but SIGSTOP; the first process of a container ignores that too.
fn by(signal: c_int) {
    // SAFETY: plain system calls on values of this function, for whose types zeros are a value: the default action and
    // the empty set. What was in force is put back.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut found: libc::sigaction = std::mem::zeroed();
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::sigaction(signal, &default, &mut found);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::sigaction(signal, &found, std::ptr::null_mut());
    }
}
