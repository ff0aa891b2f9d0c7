//! From the command's start to its end: passes signals on and reaps orphans.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};

use crate::signals::{Arrived, Signals};

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Exited(i32),
    Killed(i32),
}

impl Ending {
    fn new(exit_status: Option<i32>, terminating_signal: Option<i32>) -> Option<Self> {
        exit_status.map(Self::Exited).or(terminating_signal.map(Self::Killed))
    }
}

/// Waits until the command has ended, and leaves it unreaped, so that its last figures can be read.
pub(super) fn until_exit(child: Pid, signals: &Signals) -> Ending {
    loop {
        match signals.next() {
            Ok(arrived) if arrived.number == nix::libc::SIGCHLD => {
                if let Some(ending) = look(child, WaitIdOptions::NOHANG).or_else(|| reap_orphans(child)) {
                    return ending;
                }
            }
            Ok(arrived) => pass_on(child, arrived),
            // Without signals, what is left is to wait for the command itself.
            Err(_) => return look(child, WaitIdOptions::empty()).unwrap_or(Ending::Exited(0)),
        }
    }
}

/// A signal from the terminal went to the whole group already, and with it to the command.
fn pass_on(child: Pid, arrived: Arrived) {
    if !arrived.by_kernel {
        // SAFETY: a system call on two numbers. (The safe wrappers do not know real-time signals.) The number cannot
        // be another process's by now, because nobody but this thread reaps the command.
        unsafe { nix::libc::kill(child.as_raw_nonzero().get(), arrived.number) };
    }
}

/// How the command ended, if it has.
fn look(child: Pid, wait: WaitIdOptions) -> Option<Ending> {
    loop {
        match waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | wait) {
            Err(rustix::io::Errno::INTR) => (),
            Ok(Some(status)) => return Ending::new(status.exit_status(), status.terminating_signal()),
            _ => return None,
        }
    }
}

/// Reaps every child that has ended. The command can be among them, when it ended only just now.
fn reap_orphans(child: Pid) -> Option<Ending> {
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Err(rustix::io::Errno::INTR) => (),
            Ok(Some((pid, status))) if pid == child => {
                return Ending::new(status.exit_status(), status.terminating_signal());
            }
            Ok(Some(_)) => (),
            _ => return None,
        }
    }
}

/// Takes the ended command out of the process table.
pub(super) fn reap(child: Pid) {
    // It has ended, so this neither waits nor fails, unless it was reaped with the orphans.
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}
