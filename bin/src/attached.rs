//! A process that runs already (`--pid`), and whether it and its descendants have ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use resource_tracker_sources::shows_own_pid_namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::family::Family;

/// How often is looked for descendants, whom only their living parent tells of.
const LOOK: Duration = Duration::from_secs(1);

/// How often is taken in what the sampler has found, where it looks often enough itself. Nobody is waited for meanwhile: the
/// end of the one who lives wakes.
const REST: Duration = Duration::from_secs(10);

/// A look, which reads every process of the machine, may take this part of the time.
const SHARE: u32 = 2000;

/// Among so many who have joined, those that have ended are looked for, so that they do not become ever more.
const MANY: usize = 4096;

/// The root of the tree, and those who belong to it.
pub(crate) struct Attached {
    family: Family,
    /// Whom the sampler has found: the process id of each, and when it started.
    joins: Receiver<(i32, u64)>,
    /// Whether the sampler looks so often that there is no need to look beside it.
    is_sampled: bool,
    /// Whether procfs tells of this program's own pid namespace. Only those processes can be waited for.
    is_own_namespace: bool,
    /// One that lives: readable when it has ended.
    living: Option<OwnedFd>,
    next_look: Instant,
}

impl Attached {
    /// Says so when there is no such process. It may still come.
    pub(crate) fn new(root: i32, procfs: &Path, joins: Receiver<(i32, u64)>, interval: Duration) -> Self {
        let mut attached = Self {
            family: Family::new(procfs, root),
            joins,
            is_sampled: interval <= LOOK,
            is_own_namespace: shows_own_pid_namespace(procfs),
            living: None,
            next_look: Instant::now() + LOOK,
        };
        attached.living = attached.open(root);
        if !attached.family.was_seen() {
            log::warn!("there is no process {root}; what is known of it stays null until there is one");
        }
        attached
    }

    /// What to wait for before it is asked again, and for how long at most.
    pub(crate) fn next_look(&self) -> (Option<BorrowedFd<'_>>, Duration) {
        (self.living.as_ref().map(AsFd::as_fd), if self.needs_no_look() { REST } else { LOOK })
    }

    /// Whether nothing is left of a tree that was seen.
    pub(crate) fn has_ended(&mut self) -> bool {
        let has_lost_one = match &self.living {
            Some(living) => is_ready(living),
            None => self.family.has_lost_root(),
        };
        let began = Instant::now();
        if self.family.was_seen() {
            // Before anything is looked at, so that one who is not there any more has ended.
            self.family.join(self.joins.try_iter());
        }
        let is_due = began >= self.next_look && !self.needs_no_look();
        if has_lost_one || is_due {
            self.family.look();
            self.living = self.family.living().and_then(|pid| self.open(pid));
            self.next_look = began + LOOK.max(began.elapsed() * SHARE);
        }
        self.family.was_seen() && self.family.living().is_none()
    }

    fn needs_no_look(&self) -> bool {
        self.is_sampled && self.living.is_some() && self.family.len() <= MANY
    }

    /// Opens a member, if it still is what was seen when the file is open: its number can have been given to another one.
    fn open(&self, pid: i32) -> Option<OwnedFd> {
        let pid = Pid::from_raw(pid).filter(|_| self.is_own_namespace)?;
        let file = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.family.is_there(pid.as_raw_nonzero().get()).then_some(file)
    }
}

fn is_ready(file: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_process_of_the_number_is_not_opened() {
        let procfs = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let begins_at = |start: u32| {
            let text = format!("{pid} (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0");
            fs::write(procfs.path().join(format!("{pid}/stat")), text).unwrap();
        };
        fs::create_dir(procfs.path().join(pid.to_string())).unwrap();
        std::os::unix::fs::symlink(pid.to_string(), procfs.path().join("self")).unwrap();
        begins_at(100);
        let (_, joins) = std::sync::mpsc::channel();
        let attached = Attached::new(pid as i32, procfs.path(), joins, LOOK);
        assert!(attached.living.is_some() && attached.open(pid as i32).is_some());
        begins_at(200);
        assert!(attached.open(pid as i32).is_none());
    }
}
