//! Who belongs to the tree: the root, its descendants, and orphans that the tracker adopted as a subreaper.

use std::collections::HashSet;
use std::path::PathBuf;

use resource_tracker_core::{Host, Tracked};

use super::stat::{Io, Stat, Switches};
use crate::procfile::read_into;

/// One process of the tree at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) stat: Stat,
    pub(super) io: Option<Io>,
    pub(super) switches: Switches,
    pub(super) is_root: bool,
}

impl Member {
    /// A pid alone can be given to another process later; with the start time it cannot.
    pub(super) fn identity(&self) -> (i32, u64) {
        (self.stat.pid, self.stat.start_time)
    }
}

pub(super) struct Tree {
    procfs: PathBuf,
    own_pid: i32,
    root: Option<(i32, u64)>,
    members: Vec<Member>,
    processes: Vec<Stat>,
    buffer: Vec<u8>,
}

impl Tree {
    pub(super) fn new(host: &Host) -> Self {
        Self {
            procfs: host.procfs.clone(),
            own_pid: std::process::id() as i32,
            root: None,
            members: Vec::new(),
            processes: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Whether the root has ever been there.
    pub(super) fn was_seen(&self) -> bool {
        self.root.is_some()
    }

    /// The tree as the last walk found it.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Reads every process of the machine and keeps those of the tree.
    pub(super) fn walk(&mut self, tracked: Tracked) -> anyhow::Result<()> {
        self.processes.clear();
        for entry in std::fs::read_dir(&self.procfs)?.flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
                && let Ok(text) = read_into(&entry.path().join("stat"), &mut self.buffer)
            {
                self.processes.extend(Stat::parse(text));
            }
        }
        let here = self.processes.iter().find(|process| process.pid == tracked.pid);
        let root = *self.root.get_or_insert(match here {
            Some(root) => (root.pid, root.start_time),
            None => {
                self.members.clear();
                return Ok(());
            }
        });
        let belonging = belonging(&self.processes, root, tracked.spawned.then_some(self.own_pid));
        self.members.clear();
        for stat in belonging {
            let directory = self.procfs.join(stat.pid.to_string());
            self.members.push(Member {
                stat,
                io: Io::read(&directory, &mut self.buffer),
                switches: Switches::read(&directory, stat.threads, &mut self.buffer),
                is_root: (stat.pid, stat.start_time) == root,
            });
        }
        Ok(())
    }
}

/// The root with its descendants, parents before children; with a `subreaper` also its other children, which are
/// orphans of the tree, and theirs. A child without an exit signal is the tracker's own helper.
fn belonging(processes: &[Stat], root: (i32, u64), subreaper: Option<i32>) -> Vec<Stat> {
    let is_root = |process: &Stat| (process.pid, process.start_time) == root;
    let is_adopted =
        |process: &Stat| Some(process.parent) == subreaper && process.exit_signal != 0 && process.start_time >= root.1;
    let mut found: Vec<Stat> =
        processes.iter().filter(|process| is_root(process) || is_adopted(process)).copied().collect();
    let mut pids: HashSet<i32> = found.iter().map(|process| process.pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process| process.pid) {
        // A process that ended while the others were read can leave two with the same pid.
        found.extend(processes.iter().filter(|process| process.parent == parent && pids.insert(process.pid)));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process(pid: i32, parent: i32, start_time: u64) -> Stat {
        Stat { pid, parent, start_time, exit_signal: 17, ..Stat::default() }
    }

    fn pids(processes: &[Stat], root: (i32, u64), subreaper: Option<i32>) -> Vec<i32> {
        belonging(processes, root, subreaper).iter().map(|process| process.pid).collect()
    }

    #[test]
    fn descendants_and_adopted_orphans() {
        let helper = Stat { exit_signal: 0, ..process(30, 10, 60) };
        let processes = [
            process(1, 0, 0),
            process(10, 1, 5),
            process(20, 10, 50),
            process(21, 20, 51),
            process(5, 21, 52),
            process(22, 10, 53),
            process(23, 22, 54),
            process(40, 1, 55),
            process(9, 10, 6),
            helper,
        ];
        assert_eq!(pids(&processes, (20, 50), Some(10)), [20, 22, 21, 23, 5]);
        assert_eq!(pids(&processes, (20, 50), None), [20, 21, 5]);
        assert_eq!(pids(&processes, (20, 49), None), [0; 0], "another process has the pid now");
    }

    proptest! {
        #[test]
        fn every_member_is_listed_once(parents in prop::collection::vec(0i32..20, 1..20)) {
            let processes: Vec<Stat> =
                parents.iter().enumerate().map(|(index, parent)| process(index as i32 + 1, *parent, index as u64)).collect();
            let found = pids(&processes, (1, 0), Some(2));
            let distinct: HashSet<i32> = found.iter().copied().collect();
            prop_assert_eq!(found.len(), distinct.len());
            prop_assert!(found.contains(&1));
        }
    }
}
