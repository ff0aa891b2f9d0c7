//! The descendants of a process that is no child of ours.
//!
//! The kernel gives the children of a process that ends to another parent. So descendants must be known before that, or
//! be recognized by what stays the same: the session and the process group.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use resource_tracker_sources::job::Stat;
use resource_tracker_sources::own_pid;

use crate::waits_for_us::readers;

/// What procfs shows of a process; `None` when the process is gone.
pub(crate) fn stat(procfs: &Path, pid: i32) -> Option<Stat> {
    Stat::parse(&fs::read(procfs.join(format!("{pid}/stat"))).ok()?)
}

/// A process id, and what changes when that process does something (`Stat::activity`).
pub(crate) type Activity = (i32, [u64; 4]);

/// A process and its descendants, as far as they were seen.
pub(crate) struct Family {
    procfs: PathBuf,
    root: i32,
    /// This program, unless it is the root. Neither it nor the processes that it started belong to the job.
    own: Option<i32>,
    /// The root as it was last seen.
    seen: Option<Stat>,
    /// The members by process id, each with its start time: a later process with the same id has another one.
    members: HashMap<i32, u64>,
    /// Processes above the root that may have got its orphans.
    adopters: HashSet<i32>,
    /// Members that may wait for the end of this program, which must not wait for theirs: what reads its output, and
    /// what started it, with what that had done by the last look.
    readers: HashSet<i32>,
    above: Vec<Activity>,
}

impl Family {
    pub(crate) fn new(procfs: &Path, root: i32) -> Self {
        let mut family = Self {
            procfs: procfs.to_owned(),
            root,
            own: own_pid(procfs).filter(|own| *own != root),
            seen: None,
            members: HashMap::new(),
            adopters: HashSet::new(),
            readers: HashSet::new(),
            above: Vec::new(),
        };
        family.look();
        family
    }

    /// Whether the root was ever there.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether the root, if it was seen, has ended.
    pub(crate) fn has_lost_root(&self) -> bool {
        let lives = |seen: Stat| {
            stat(&self.procfs, self.root).is_some_and(|stat| !stat.is_dead() && stat.start_time == seen.start_time)
        };
        self.seen.is_some_and(|seen| !lives(seen))
    }

    /// Adds processes that another observer found to be members: the process id and start time of each.
    pub(crate) fn join(&mut self, others: impl IntoIterator<Item = (i32, u64)>) {
        let Some(root) = self.seen else { return };
        self.members.extend(others.into_iter().filter(|(_, start)| *start >= root.start_time));
    }

    /// How many members there are, including those that have ended since the last look.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Looks at every process of the machine.
    pub(crate) fn look(&mut self) {
        let mut all = all(&self.procfs);
        let above = self.own.map(|own| ancestors(&all, own)).unwrap_or_default();
        if let Some(own) = self.own {
            self.remove_with_descendants(&mut all, own);
        }
        self.members.retain(|pid, start| all.get(pid).is_some_and(|stat| stat.start_time == *start));
        match (self.seen, all.get(&self.root)) {
            (None, Some(stat)) => self.meet(*stat, &all),
            (Some(seen), Some(stat)) if !stat.is_dead() && stat.start_time == seen.start_time => self.meet(*stat, &all),
            _ => (),
        }
        let Some(root) = self.seen else { return };
        let orphans = all.iter().filter(|(pid, stat)| self.is_orphan(&root, **pid, stat));
        let orphans: Vec<_> = orphans.map(|(pid, stat)| (*pid, stat.start_time)).collect();
        self.members.extend(orphans);
        // Repeats while it finds any, because a child can be listed before its parent.
        loop {
            let count = self.members.len();
            let children = all.iter().filter(|(pid, stat)| {
                self.members.get(&stat.parent).is_some_and(|start| stat.start_time >= *start)
                    && !self.members.contains_key(pid)
            });
            let children: Vec<_> = children.map(|(pid, stat)| (*pid, stat.start_time)).collect();
            self.members.extend(children);
            if self.members.len() == count {
                break;
            }
        }
        self.members.retain(|pid, _| all.get(pid).is_some_and(|stat| !stat.is_dead()));
        self.readers.clear();
        self.above.clear();
        if let Some(own) = self.own.filter(|_| !self.members.contains_key(&self.root)) {
            let (above, others): (Vec<i32>, Vec<i32>) = self.members.keys().partition(|pid| above.contains(*pid));
            self.above.extend(above.iter().filter_map(|pid| Some((*pid, all.get(pid)?.activity()))));
            self.above.sort_unstable();
            self.readers = readers(&self.procfs, own, others);
        }
    }

    /// Removes a process and its descendants, but no members. This program can be their parent too: a shell became this program
    /// by `exec`, or it adopted them.
    fn remove_with_descendants(&self, all: &mut HashMap<i32, Stat>, pid: i32) {
        let is_member = |pid: i32, stat: &Stat| pid == self.root || self.members.get(&pid) == Some(&stat.start_time);
        let mut open = vec![pid];
        while let Some(pid) = open.pop() {
            all.remove(&pid);
            let children = all.iter().filter(|(child, stat)| stat.parent == pid && !is_member(**child, stat));
            open.extend(children.map(|(child, _)| child));
        }
    }

    /// What the members above this program had done by the last look, if no others are left but such as read its output.
    pub(crate) fn left_above(&self) -> Option<&[Activity]> {
        self.living().is_none().then_some(&*self.above)
    }

    /// A member that was alive at the last look and cannot wait for this program, preferably the root.
    pub(crate) fn living(&self) -> Option<i32> {
        let is_member = self.members.contains_key(&self.root);
        let other = || {
            self.members
                .keys()
                .find(|pid| !self.readers.contains(*pid) && !self.above.iter().any(|(above, _)| above == *pid))
                .copied()
        };
        Some(self.root).filter(|_| is_member).or_else(other)
    }

    /// Whether the member with this process id is still the same process.
    pub(crate) fn is_there(&self, pid: i32) -> bool {
        let start = self.members.get(&pid);
        start.is_some_and(|start| stat(&self.procfs, pid).is_some_and(|stat| stat.start_time == *start))
    }

    fn meet(&mut self, root: Stat, all: &HashMap<i32, Stat>) {
        self.seen = Some(root);
        self.members.insert(self.root, root.start_time);
        let mut above = root.parent;
        self.adopters.clear();
        while let Some(stat) = all.get(&above).filter(|_| self.adopters.len() < all.len()) {
            self.adopters.insert(above);
            above = stat.parent;
        }
        // Children of the root's parent may be ones that it started itself. Only with process 1 as the parent, and in a
        // process group that the root leads, they are orphans.
        if root.parent != 1 || root.group != self.root {
            self.adopters.remove(&root.parent);
        }
    }

    /// Whether the process can only be a descendant whose parent has ended.
    fn is_orphan(&self, root: &Stat, pid: i32, stat: &Stat) -> bool {
        // Start times are too coarse to order processes that began close together; process ids rise.
        let is_younger = (stat.start_time, pid) > (root.start_time, self.root);
        let is_above = pid == root.parent || self.adopters.contains(&pid);
        let is_of_group = stat.group == root.group && self.adopters.contains(&stat.parent);
        !is_above && is_younger && stat.session == root.session && (root.session == self.root || is_of_group)
    }
}

fn all(procfs: &Path) -> HashMap<i32, Stat> {
    let entries = fs::read_dir(procfs).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(procfs, pid)?))).collect()
}

fn ancestors(all: &HashMap<i32, Stat>, pid: i32) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut last = pid;
    while let Some(parent) = all.get(&last).map(|stat| stat.parent).filter(|parent| found.insert(*parent)) {
        last = parent;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A procfs of written files: the state, parent, group, session and start of each.
    struct Processes(tempfile::TempDir);

    impl Processes {
        /// A script with a child, the child of that child, and one more; one of them is this program.
        fn of_a_script(own: i32) -> Self {
            let processes = Self(tempfile::tempdir().unwrap());
            std::os::unix::fs::symlink(own.to_string(), processes.0.path().join("self")).unwrap();
            processes.write(1, "S", [0, 1, 1, 1]);
            processes.write(60, "S", [1, 60, 60, 60]);
            processes.write(61, "S", [60, 60, 60, 61]);
            processes.write(62, "S", [61, 60, 60, 62]);
            processes.write(63, "S", [60, 60, 60, 63]);
            processes
        }

        fn write(&self, pid: i32, state: &str, [parent, group, session, start]: [i32; 4]) {
            let threads = 1;
            let text = format!(
                "{pid} (a) (b) {state} {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 {start} 0 0"
            );
            fs::create_dir_all(self.0.path().join(pid.to_string())).unwrap();
            fs::write(self.0.path().join(format!("{pid}/stat")), text).unwrap();
        }

        fn end(&self, pid: i32) {
            fs::remove_file(self.0.path().join(format!("{pid}/stat"))).unwrap();
        }
    }

    fn members(family: &mut Family) -> Vec<i32> {
        family.look();
        let mut members: Vec<i32> = family.members.keys().copied().collect();
        members.sort_unstable();
        members
    }

    #[test]
    fn descendants_are_known_by_their_parents_and_orphans_by_their_group() {
        let processes = Processes(tempfile::tempdir().unwrap());
        processes.write(1, "S", [0, 1, 1, 1]);
        processes.write(50, "S", [1, 50, 50, 50]);
        let mut family = Family::new(processes.0.path(), 60);
        assert!(!family.was_seen() && !family.has_lost_root() && family.living().is_none(), "it may still come");
        processes.write(60, "S", [50, 60, 50, 60]);
        processes.write(61, "S", [50, 60, 50, 61]);
        processes.write(9, "S", [60, 9, 9, 70]);
        processes.write(8, "S", [9, 9, 9, 71]);
        assert_eq!(members(&mut family), [8, 9, 60], "the other process of a pipeline is none");
        processes.write(10, "S", [1, 60, 50, 72]);
        processes.write(11, "S", [1, 11, 50, 73]);
        processes.end(9);
        processes.write(8, "S", [1, 9, 9, 71]);
        processes.end(60);
        assert!(family.has_lost_root());
        assert_eq!(members(&mut family), [8, 10], "it was seen before, it shares the group");
        processes.write(8, "S", [1, 9, 9, 90]);
        processes.write(10, "Z", [1, 60, 50, 72]);
        assert!(members(&mut family).is_empty(), "another process of that number, and one that has ended");
    }

    #[test]
    fn the_other_process_of_a_pipeline_that_began_at_the_same_time_is_none() {
        let processes = Processes(tempfile::tempdir().unwrap());
        processes.write(1, "S", [0, 1, 1, 1]);
        processes.write(50, "S", [1, 50, 50, 50]);
        for pid in [59, 60] {
            processes.write(pid, "S", [50, 50, 50, 60]);
        }
        processes.write(61, "S", [60, 50, 50, 60]);
        let mut family = Family::new(processes.0.path(), 61);
        assert_eq!(members(&mut family), [61]);
        processes.write(62, "S", [50, 50, 50, 60]);
        assert_eq!(members(&mut family), [61, 62], "its parent can have ended");
    }

    #[test]
    fn whoever_is_in_the_session_of_a_root_that_leads_it_descends_from_it() {
        let processes = Processes(tempfile::tempdir().unwrap());
        processes.write(1, "S", [0, 1, 1, 1]);
        processes.write(60, "S", [1, 60, 60, 60]);
        let mut family = Family::new(processes.0.path(), 60);
        processes.end(60);
        processes.write(70, "S", [1, 70, 60, 70]);
        processes.write(71, "S", [1, 71, 71, 71]);
        assert_eq!(members(&mut family), [70]);
    }

    #[test]
    fn this_program_belongs_to_nobody_and_what_it_starts_neither() {
        let processes = Processes::of_a_script(61);
        let mut family = Family::new(processes.0.path(), 60);
        assert_eq!(members(&mut family), [60, 63]);
        processes.end(63);
        processes.end(60);
        processes.write(61, "S", [1, 60, 60, 61]);
        assert!(family.has_lost_root() && members(&mut family).is_empty());
        assert_eq!(members(&mut Family::new(processes.0.path(), 61)), [61, 62], "it was asked for");
        // A shell that became this program, by `exec`.
        processes.write(63, "S", [61, 60, 60, 63]);
        let mut family = Family::new(processes.0.path(), 63);
        assert!(family.was_seen());
        processes.write(64, "S", [63, 60, 60, 64]);
        assert_eq!(members(&mut family), [63, 64]);
        processes.write(64, "S", [61, 60, 60, 64]);
        processes.write(63, "Z", [61, 60, 60, 63]);
        assert_eq!(members(&mut family), [64], "it was adopted");
    }

    /// `timeout 1h resource-tracker --pid $$ &` in a script.
    #[test]
    fn whoever_waits_for_this_program_is_not_waited_for() {
        let processes = Processes::of_a_script(62);
        let mut family = Family::new(processes.0.path(), 60);
        assert_eq!((members(&mut family), family.living()), (vec![60, 61, 63], Some(60)));
        processes.end(60);
        processes.write(61, "S", [1, 60, 60, 61]);
        assert_eq!((members(&mut family), family.living()), (vec![61, 63], Some(63)));
        processes.end(63);
        assert_eq!((members(&mut family), family.living()), (vec![61], None));
    }
}
