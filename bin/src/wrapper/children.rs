//! Which children are the command and its orphans: only those are reaped.
//!
//! What a plugin or a GPU library forks is waited for by whoever forked it. Orphans come to the thread that the process
//! began with, which started the command as well; a child of another thread is not seen by it.

use std::collections::HashSet;

use nix::libc;

use super::wait::{self, Ended};

/// The children of the first thread.
pub(super) struct Children {
    /// Those that were there before the command.
    others: HashSet<i32>,
}

impl Children {
    /// Takes note of those that there are, before the command is started.
    pub(super) fn before_the_command() -> Self {
        // Without that file there is no telling them apart.
        Self { others: of_first_thread().unwrap_or_default().into_iter().collect() }
    }

    /// Reaps the command's processes that have ended.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        // The kernel can leave some out of the list while others end: until nobody is found.
        while !self.others.is_empty() {
            let all: HashSet<i32> = of_first_thread().unwrap_or_default().into_iter().collect();
            // The number of one that was waited for can be given to a process of the command.
            self.others.retain(|pid| all.contains(pid) || wait::is_child(*pid));
            let count = ended.len();
            ended.extend(all.into_iter().filter(|pid| !self.others.contains(pid)).filter_map(wait::one_if_ended));
            if ended.len() == count {
                return ended;
            }
        }
        ended.extend(std::iter::from_fn(wait::any));
        ended
    }
}

/// Also those that have ended and were not waited for.
fn of_first_thread() -> Option<Vec<i32>> {
    // SAFETY: it returns a number.
    let pid = unsafe { libc::getpid() };
    let text = std::fs::read_to_string(format!("/proc/self/task/{pid}/children")).ok()?;
    text.split_whitespace().map(|number| number.parse().ok()).collect()
}
