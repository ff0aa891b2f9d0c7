//! Which children are the command and its orphans: only those are reaped.
//!
//! What a plugin or a GPU library forks is waited for by whoever forked it. Orphans come to the thread that the process
//! began with, which started the command as well; a child of another thread is not seen by it.

use nix::libc;

use super::wait::{self, Ended};

/// The children of the first thread.
pub(super) struct Children {
    /// Those that were there before the command.
    others: Vec<i32>,
}

impl Children {
    /// Takes note of those that there are, before the command is started.
    pub(super) fn before_the_command() -> Self {
        // Without that file there is no telling them apart.
        Self { others: of_first_thread().unwrap_or_default() }
    }

    /// Reaps one of the command's processes that has ended. `None` when there is none.
    pub(super) fn next_ended(&self) -> Option<Ended> {
        if self.others.is_empty() {
            return wait::any();
        }
        let all = of_first_thread().unwrap_or_default();
        all.into_iter().filter(|pid| !self.others.contains(pid)).find_map(wait::one_if_ended)
    }
}

/// Also those that have ended and were not waited for.
fn of_first_thread() -> Option<Vec<i32>> {
    // SAFETY: it returns a number.
    let pid = unsafe { libc::getpid() };
    let text = std::fs::read_to_string(format!("/proc/self/task/{pid}/children")).ok()?;
    text.split_whitespace().map(|number| number.parse().ok()).collect()
}
