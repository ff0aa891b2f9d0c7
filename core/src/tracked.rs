//! The process tree that is tracked, and what only the tracker can know of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The root of the process tree that is tracked.
#[derive(Debug, Clone)]
pub struct Tracked {
    /// Its process id.
    pub pid: i32,
    /// Whether the tracker started it. What it used before the baseline then belongs to the run as well.
    pub spawned: bool,
    /// Whether orphans of it become children of this program's main thread, and nothing else does.
    pub adopts_orphans: bool,
    /// The soft `RLIMIT_RSS` that children of this program have which it forked itself, and nobody of the tree, if the program
    /// has set such a mark.
    pub fork_mark: Option<u64>,
    /// What the tracker itself has waited for, as of the moment before this tick's reading.
    pub reaped: Reaped,
    /// The cgroup that was made for the tree alone, if one was.
    pub cgroup: Option<Arc<JobCgroup>>,
    /// The processes of the tree, for the sources that look for them elsewhere.
    pub members: Arc<Members>,
}

/// The process ids of a tree. Whoever walks the tree writes them down at each tick; until then, and where nobody does,
/// there is only the root.
#[derive(Debug, Default)]
pub struct Members(Mutex<Option<Vec<i32>>>);

impl Members {
    /// Writes down who belongs to the tree now.
    pub fn set(&self, pids: impl Iterator<Item = i32>) {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let members = members.get_or_insert_default();
        members.clear();
        members.extend(pids);
    }

    /// Who belonged to the tree when it was last walked; `root` when nobody walks it.
    pub fn get(&self, root: i32) -> Vec<i32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| vec![root])
    }
}

impl Tracked {
    /// The processes of the tree, as of the last time that it was walked, in no particular order.
    pub fn pids(&self) -> Vec<i32> {
        self.members.get(self.pid)
    }
}

/// What processes used whose end the tracker saw as their parent: the root, and orphans that it adopted. Each has the
/// children that it had waited for included, as in `getrusage(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Their sum.
    pub usage: Usage,
    /// Whether the root is among them. It may still be a zombie, which is not to be counted again.
    pub root: bool,
}

/// What ended processes used: `struct rusage` of `wait4(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub utime: Duration,
    /// CPU time in the kernel.
    pub stime: Duration,
    /// The most memory that one of them had resident, in bytes.
    pub max_rss: u64,
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes written to storage.
    pub write_bytes: u64,
}

impl Usage {
    /// Both together; the larger peak.
    pub fn plus(self, other: Self) -> Self {
        Self {
            utime: self.utime + other.utime,
            stime: self.stime + other.stime,
            max_rss: self.max_rss.max(other.max_rss),
            major_faults: self.major_faults + other.major_faults,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
        }
    }
}

impl Reaped {
    /// An orphan was reaped.
    pub fn orphan(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
    }

    /// The root was reaped.
    pub fn root(&mut self, usage: Usage) {
        *self = Self { usage: self.usage.plus(usage), root: true };
    }
}

/// Where whoever waits for processes writes down what they used, and each tick looks it up.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Reaped>>);

impl Ledger {
    /// Calls `reap`, which waits for processes and writes down what they used. No tick looks meanwhile, so none finds
    /// one that is neither there nor written down, however long this thread is held up between the two. `reap` is not
    /// to wait for a process that has not ended.
    pub fn reap<T>(&self, reap: impl FnOnce(&mut Reaped) -> T) -> T {
        reap(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sum so far.
    pub fn reaped(&self) -> Reaped {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_between_the_end_of_a_process_and_its_entry() {
        let ledger = Ledger::default();
        let has_begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ledger.reap(|reaped| {
                    has_begun.wait();
                    std::thread::sleep(Duration::from_millis(50));
                    reaped.root(Usage { max_rss: 7, ..Usage::default() });
                });
            });
            has_begun.wait();
            assert_eq!(ledger.reaped(), Reaped { usage: Usage { max_rss: 7, ..Usage::default() }, root: true });
        });
    }
}

/// Directories of a cgroup that holds the tree and nothing else, in the hierarchies that were there to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCgroup {
    /// In the unified hierarchy (v2).
    pub unified: Option<PathBuf>,
    /// In the `cpuacct` hierarchy of v1, where there is no v2.
    pub cpuacct: Option<PathBuf>,
    /// In the `memory` hierarchy of v1.
    pub memory: Option<PathBuf>,
}
