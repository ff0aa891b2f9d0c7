//! A process that runs already (`--pid`), and whether it and its descendants have ended.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use resource_tracker_core::Members;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often is looked where the kernel does not tell, or where a process id can have been given to another process.
const LOOK: Duration = Duration::from_secs(1);

/// The root of the tree, and those who belong to it.
pub(crate) struct Attached {
    root: i32,
    procfs: PathBuf,
    members: Arc<Members>,
    /// Whether procfs tells of this program's own pid namespace. Only those processes can be waited for.
    is_own_namespace: bool,
    /// One that lives: readable when it has ended.
    living: Option<OwnedFd>,
    root_was_seen: bool,
    root_has_ended: bool,
}

impl Attached {
    /// Says so when there is no such process. It may still come.
    pub(crate) fn new(root: i32, procfs: &Path, members: Arc<Members>) -> Self {
        let own = PathBuf::from(std::process::id().to_string());
        let mut attached = Self {
            root,
            procfs: procfs.to_owned(),
            members,
            is_own_namespace: fs::read_link(procfs.join("self")).is_ok_and(|target| target == own),
            living: None,
            root_was_seen: false,
            root_has_ended: false,
        };
        attached.root_was_seen = attached.state(root).is_some();
        attached.living = attached.open(root);
        if !attached.root_was_seen {
            log::warn!("there is no process {root}; what is known of it stays null until there is one");
        }
        attached
    }

    /// What to wait for before it is asked again, and for how long at most.
    pub(crate) fn next_look(&self) -> (Option<BorrowedFd<'_>>, Option<Duration>) {
        let waits_for_root = self.living.is_some() && !self.root_has_ended;
        (self.living.as_ref().map(AsFd::as_fd), (!waits_for_root).then_some(LOOK))
    }

    /// Whether nothing is left of a tree that was seen. Who came since it was last walked is not known.
    pub(crate) fn has_ended(&mut self) -> bool {
        if !self.root_has_ended && self.living.as_ref().is_some_and(|root| !is_ready(root)) {
            return false;
        }
        let living = self.members.get(self.root).into_iter().find(|pid| self.lives(*pid));
        self.root_was_seen |= living.is_some();
        self.root_has_ended = self.root_was_seen && living != Some(self.root);
        self.living = living.and_then(|pid| self.open(pid));
        self.root_was_seen && living.is_none()
    }

    fn open(&self, pid: i32) -> Option<OwnedFd> {
        Pid::from_raw(pid).filter(|_| self.is_own_namespace).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    }

    /// Whether it is a process, not a thread of one, that is not only there to be reaped.
    fn lives(&self, pid: i32) -> bool {
        self.state(pid).is_some_and(|state| !state.starts_with(['Z', 'X']))
    }

    /// What `status` says of a process.
    fn state(&self, pid: i32) -> Option<String> {
        let status = fs::read_to_string(self.procfs.join(format!("{pid}/status"))).ok()?;
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        value("State:").filter(|_| value("Tgid:") == Some(&pid.to_string())).map(str::to_owned)
    }
}

fn is_ready(file: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(procfs: &Path, pid: i32, group: i32, state: &str) {
        let directory = procfs.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("status"), format!("Name:\tx\nState:\t{state}\nTgid:\t{group}\n")).unwrap();
    }

    #[test]
    fn a_tree_of_another_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let procfs = directory.path();
        let members = Arc::<Members>::default();
        let mut attached = Attached::new(7, procfs, Arc::clone(&members));
        assert!(!attached.has_ended() && attached.next_look().1.is_some(), "it may still come");
        write(procfs, 7, 5, "S (sleeping)");
        assert!(!attached.has_ended(), "a thread is none");
        write(procfs, 7, 7, "S (sleeping)");
        assert!(!attached.has_ended());
        write(procfs, 8, 8, "S (sleeping)");
        members.set([7, 8].into_iter());
        write(procfs, 7, 7, "Z (zombie)");
        assert!(!attached.has_ended(), "its child lives");
        fs::remove_file(procfs.join("8/status")).unwrap();
        assert!(attached.has_ended());
    }
}
