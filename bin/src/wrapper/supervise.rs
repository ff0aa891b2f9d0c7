//! From the command's start to its end: passes signals on, reaps orphans, and keeps account of what they used.

use resource_tracker_core::Ledger;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::wait::{self, Ending};
use crate::signals::{Arrived, Signals};

/// Waits until the command has ended, and reaps it.
pub(super) fn until_exit(child: Pid, signals: &Signals, ledger: &Ledger) -> Ending {
    loop {
        // Should it fail, the next line waits as well.
        let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], None);
        let ended = match signals.next() {
            Ok(arrived) if arrived.number == nix::libc::SIGCHLD => reap(child, ledger),
            Ok(arrived) => {
                pass_on(child, arrived);
                None
            }
            // Without signals, what is left is to wait for the command itself.
            Err(_) if wait::until_ended(child) => reap(child, ledger),
            Err(_) => return Ending::Exited(0),
        };
        if let Some(ending) = ended {
            return ending;
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

/// Reaps every child that has ended. The command itself is the one that is answered for.
fn reap(child: Pid, ledger: &Ledger) -> Option<Ending> {
    ledger.reap(|reaped| {
        let mut command = None;
        while let Some(ended) = wait::any() {
            if ended.pid == child.as_raw_nonzero().get() {
                reaped.root(ended.usage);
                command = Some(ended.ending);
            } else {
                reaped.orphan(ended.usage);
            }
        }
        command
    })
}
