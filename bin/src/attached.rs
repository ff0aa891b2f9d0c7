//! A process that runs already (`--pid`), and whether it and its descendants have ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use resource_tracker_sources::shows_own_pid_namespace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::family::{Activity, Family};

/// How often to look for descendants: only a living parent shows whose child a process is.
const LOOK: Duration = Duration::from_secs(1);

/// How often to take over the processes that the sampler found, where the sampler looks often enough. That delays
/// nothing: the end of the watched process wakes this one at once.
const REST: Duration = Duration::from_secs(10);

/// A look reads every process of the machine, and may take one part in so many of the time; one in so many when a process has
/// ended that the run may end with.
const SHARE: u32 = 2000;
const SHARE_AT_END: u32 = 20;

/// With more members than this, a look removes those that have ended, so that they do not pile up.
const MANY: usize = 4096;

/// The root of the tree, and its members.
pub(crate) struct Attached {
    family: Family,
    /// Processes that the sampler found: the process id and start time of each.
    joins: Receiver<(i32, u64)>,
    /// Whether the sampler looks often enough that no look beside it is needed.
    is_sampled: bool,
    /// Whether procfs shows this program's own pid namespace. It can wait only for processes of that.
    is_own_namespace: bool,
    /// The pidfd of a living member: readable when that has ended.
    living: Option<OwnedFd>,
    next_look: Instant,
    /// When to look if the member that was waited for has ended.
    next_urgent_look: Instant,
    /// Whether a member has ended that was waited for, and nobody has looked for another one since.
    has_lost_one: bool,
    has_lost_root: bool,
    /// Since when those above this program, the only ones that are left, have done nothing.
    at_rest: Option<(Instant, Vec<Activity>)>,
}

impl Attached {
    /// Warns when there is no such process. It may still come.
    pub(crate) fn new(root: i32, procfs: &Path, joins: Receiver<(i32, u64)>, interval: Duration) -> Self {
        let mut attached = Self {
            family: Family::new(procfs, root),
            joins,
            is_sampled: interval <= LOOK,
            is_own_namespace: shows_own_pid_namespace(procfs),
            living: None,
            next_look: Instant::now() + LOOK,
            next_urgent_look: Instant::now(),
            has_lost_one: false,
            has_lost_root: false,
            at_rest: None,
        };
        attached.living = attached.open(root);
        if !attached.family.was_seen() {
            log::warn!("there is no process {root}; what is known of it stays null until there is one");
        }
        attached
    }

    /// The file to wait for until the next call, and for how long at most.
    pub(crate) fn next_look(&self) -> (Option<BorrowedFd<'_>>, Duration) {
        let limit = match self.has_lost_one {
            true => self.next_urgent_look.saturating_duration_since(Instant::now()),
            false if self.needs_no_look() => REST,
            false => LOOK,
        };
        (self.living.as_ref().map(AsFd::as_fd), limit)
    }

    /// Whether no process is left of a tree that was seen.
    pub(crate) fn has_ended(&mut self) -> bool {
        let began = Instant::now();
        self.notice_ends();
        if self.family.was_seen() {
            // Before the look: a member that the look does not find has ended.
            self.family.join(self.joins.try_iter());
        }
        let is_due = began >= self.next_look && !self.needs_no_look();
        let looks = self.has_lost_one && began >= self.next_urgent_look || is_due;
        if looks {
            self.family.look();
            self.living = self.family.living().and_then(|pid| self.open(pid));
            self.has_lost_one = false;
            // Those that are left may all wait for this program.
            let may_have_ended = self.has_lost_root && self.living.is_none();
            let took = began.elapsed();
            self.next_urgent_look = began + took * SHARE_AT_END;
            self.next_look = began + LOOK.max(took * if may_have_ended { SHARE_AT_END } else { SHARE });
        }
        self.family.was_seen() && self.only_waiting_are_left(looks.then_some(began))
    }

    /// Whether no member is left but such as wait for this program. A shell that started it in the background can also be
    /// about to start something else: it waits if it does nothing for a while.
    /// `looked`: when this call looked, if it did.
    fn only_waiting_are_left(&mut self, looked: Option<Instant>) -> bool {
        let Some(above) = self.family.left_above() else {
            self.at_rest = None;
            return false;
        };
        let Some(now) = looked.filter(|_| !above.is_empty()) else { return above.is_empty() };
        match &self.at_rest {
            Some((since, before)) if before == above => now.duration_since(*since) >= LOOK,
            _ => {
                self.at_rest = Some((now, above.to_vec()));
                false
            }
        }
    }

    fn notice_ends(&mut self) {
        if self.living.as_ref().is_some_and(is_ready) {
            self.living = None;
            self.has_lost_one = true;
        }
        if !self.has_lost_root && self.living.is_none() && self.family.has_lost_root() {
            (self.has_lost_root, self.has_lost_one) = (true, true);
        }
    }

    fn needs_no_look(&self) -> bool {
        self.is_sampled && self.living.is_some() && self.family.len() <= MANY
    }

    /// Opens a member, if it is still the same process once the file is open: its process id may have been reused.
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
