//! The job that is tracked, as the program that starts the tracker knows it.

use std::path::PathBuf;
use std::time::Instant;

use super::ledger::Ledger;

/// A process and its descendants, and what only the program that tracks them can know.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrackedJob {
    /// Process id of the root.
    pub pid: i32,
    /// How the root came to be.
    pub origin: JobOrigin,
    /// When this program started the root, if it did: what the job uses is counted over the time since then. The time
    /// of the call, unless it is set.
    pub began: Option<Instant>,
    /// Whether orphans of the job become children of this program's main thread (`PR_SET_CHILD_SUBREAPER`, or process 1), so
    /// that new children of that thread belong to the job. True for one job of a program at most: without it, only
    /// descendants of the root are counted.
    pub adopts_orphans: bool,
    /// The soft `RLIMIT_RSS` that marks children which this program forked for itself: no process of the job has it.
    /// `None` if the program sets no such mark.
    pub fork_mark: Option<u64>,
    /// The cgroup that was made for this job alone, if there is one.
    pub cgroup: JobCgroup,
    /// The record of what the processes used that this program has waited for.
    pub ledger: Ledger,
}

/// How the root of a job came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobOrigin {
    /// This program started it for the run: what it used since its birth counts.
    Spawned,
    /// It was there before: what it uses from now on counts.
    Attached,
}

impl TrackedJob {
    /// A process that this program has started for the run.
    pub fn spawned(pid: i32) -> Self {
        Self::new(pid, JobOrigin::Spawned)
    }

    /// A process that is there already, or may still come.
    pub fn attached(pid: i32) -> Self {
        Self::new(pid, JobOrigin::Attached)
    }

    fn new(pid: i32, origin: JobOrigin) -> Self {
        let (cgroup, ledger) = (JobCgroup::default(), Ledger::default());
        let began = (origin == JobOrigin::Spawned).then(Instant::now);
        Self { pid, origin, began, adopts_orphans: false, fork_mark: None, cgroup, ledger }
    }

    pub(super) fn is_spawned(&self) -> bool {
        self.origin == JobOrigin::Spawned
    }
}

/// Directories of a cgroup that holds the tree and nothing else, in the hierarchies that were there to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobCgroup {
    /// In the unified hierarchy (v2).
    pub unified: Option<PathBuf>,
    /// In the `cpuacct` hierarchy of v1, where there is no v2.
    pub cpuacct: Option<PathBuf>,
    /// In the `memory` hierarchy of v1.
    pub memory: Option<PathBuf>,
}
