//! The cgroups that the job is in: it can move to others by itself.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::hierarchy::Hierarchy;
use crate::backoff::{BackoffSchedule, RARE_CHECK_INTERVAL};
use crate::procfile::read_into;
use resource_tracker_scan::lines;

/// The cgroups of the job's root at the last look.
pub(super) struct Membership {
    /// Its `/proc/PID/cgroup`, and what that said.
    path: PathBuf,
    text: Vec<u8>,
    buffer: Vec<u8>,
    looks: BackoffSchedule,
    hierarchy: Hierarchy,
}

impl Membership {
    /// The root is here `now`. A command that has just been started may not be here yet.
    pub(super) fn new(procfs: &Path, root: i32, hierarchy: Hierarchy, now: Instant) -> Self {
        let mut looks = BackoffSchedule::until(RARE_CHECK_INTERVAL);
        looks.is_due(now);
        let path = procfs.join(root.to_string()).join("cgroup");
        Self { path, text: Vec::new(), buffer: Vec::new(), looks, hierarchy }
    }

    /// The new cgroups of the root, if it has moved and it is time to look.
    pub(super) fn look(&mut self, procfs: &Path, now: Instant) -> Option<&Hierarchy> {
        if !self.looks.is_due(now) {
            return None;
        }
        let text = read_into(&self.path, &mut self.buffer).ok()?;
        if *text == self.text || is_of_one_that_ends(text) {
            return None;
        }
        self.text = text.to_owned();
        let hierarchy = Hierarchy::of_membership(procfs, text);
        if hierarchy == self.hierarchy {
            return None;
        }
        self.hierarchy = hierarchy;
        Some(&self.hierarchy)
    }
}

/// In v1, a process that is ending is in the root of each hierarchy.
fn is_of_one_that_ends(text: &[u8]) -> bool {
    let mut legacy = lines(text).filter(|line| !line.starts_with(b"0::")).peekable();
    legacy.peek().is_some() && legacy.all(|line| line.ends_with(b":/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_has_gone_nowhere() {
        assert!(is_of_one_that_ends(b"4:memory:/\n3:cpu,cpuacct:/\n0::/a/job\n"));
        assert!(!is_of_one_that_ends(b"4:memory:/a\n3:cpu,cpuacct:/\n0::/a/job\n"));
        assert!(!is_of_one_that_ends(b"0::/\n"));
    }
}
