//! Finds new processes by their ids, without opening the files of older ones.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Moment};

use super::descendants::{self, Parent};
use super::files::Files;
use super::member::{Member, is_of_a_process_that_is_gone};
use super::pid_allocations::{NewPids, PidAllocations};
use super::pids::Pids;
use super::stat::Stat;
use super::tracked::TrackedJob;
use crate::procfile::FASTEST;

/// New ids are tried one by one, which costs less than a list of all processes, if there are at most `FEW` of them, or
/// one for each `ONE_IN` processes.
const FEW: usize = 16;
const ONE_IN: usize = 4;

/// With so many more new processes than members, the tree's own are found in the lists of children of its members, so
/// often.
const MANY: usize = 256;
const FROM_ABOVE: Duration = Duration::from_millis(250);

pub(super) struct Newcomers {
    /// This program, as its procfs numbers it.
    own_pid: i32,
    allocations: PidAllocations,
    /// Of this tick; `None` where ids do not tell which processes are new.
    new_pids: Option<NewPids>,
    /// The id given out last at each of the two looks before.
    last: [Option<i32>; 2],
    /// When all of the new ids were last tried.
    whole_at: Option<Instant>,
    /// The ids to be read, in order.
    candidates: Vec<i32>,
    /// Processes that were looked at and do not belong to the tree, and are new enough to be looked at again.
    foreign: BTreeSet<i32>,
    /// Processes that hide from this user at this tick. They do not belong to the tree either.
    hidden: BTreeSet<i32>,
    unknown: Vec<Stat>,
    /// Whether a process that may exist could not be read, for want of a descriptor, say.
    is_incomplete: bool,
    found_from_above: Option<Instant>,
}

impl Newcomers {
    pub(super) fn new(host: &Host, own_pid: i32) -> Self {
        Self {
            own_pid,
            allocations: PidAllocations::new(host),
            new_pids: None,
            last: [None; 2],
            whole_at: None,
            candidates: Vec::new(),
            foreign: BTreeSet::new(),
            hidden: BTreeSet::new(),
            unknown: Vec::new(),
            is_incomplete: false,
            found_from_above: None,
        }
    }

    /// Takes only the root, which this program started: its descendants are newer, and are found later. `false` where
    /// ids do not tell what is older.
    pub(super) fn begin_with(&mut self, root: i32, moment: &Moment) -> bool {
        self.candidates.clear();
        self.candidates.push(root);
        self.allocations.begin_before(root, moment)
    }

    /// Takes this process for foreign, whatever its parent is.
    pub(super) fn leave_out(&mut self, pid: i32) {
        self.foreign.insert(pid);
    }

    /// Lists the processes that can be new. Fails when the processes cannot be listed; then nothing is read at this
    /// tick.
    pub(super) fn list(&mut self, pids: &mut Pids, moment: &Moment) -> anyhow::Result<()> {
        self.candidates.clear();
        self.new_pids = self.allocations.look(moment);
        let tried = self.new_pids.map(|new_pids| self.tried(new_pids, moment));
        let Self { candidates, foreign, new_pids, .. } = self;
        let limit = FEW.max(pids.last_count() / ONE_IN);
        if let Some(few) = tried.and_then(|tried| tried.few(limit)) {
            candidates.extend(few.filter(|pid| !foreign.contains(pid)));
            return Ok(());
        }
        let listed = pids.list()?;
        if new_pids.is_none() {
            if self.allocations.may_have_reused(moment) {
                foreign.clear();
            }
            foreign.retain(|pid| listed.binary_search(pid).is_ok());
        }
        let mut known = foreign.iter().copied().peekable();
        candidates.extend(listed.iter().copied().filter(|pid| {
            while known.next_if(|foreign| foreign < pid).is_some() {}
            known.peek() != Some(pid) && tried.is_none_or(|tried| tried.contains(*pid))
        }));
        Ok(())
    }

    /// Which of the new ids are tried: those given out since the look before the last, and all of them now and then.
    /// Most of the others belong to processes that have ended, or to threads; few processes are yet to appear.
    fn tried(&mut self, new_pids: NewPids, moment: &Moment) -> NewPids {
        let [before, last] = self.last;
        self.last = [last, Some(new_pids.last)];
        let is_due = |at| moment.at.saturating_duration_since(at) >= FASTEST;
        match before {
            Some(before) if !moment.last && !self.whole_at.is_none_or(is_due) => NewPids { after: before, ..new_pids },
            _ => {
                self.whole_at = Some(moment.at);
                new_pids
            }
        }
    }

    /// Reads `stat` of each candidate that is not a member. The caller takes out those that it accepts and calls
    /// [`settle`](Self::settle).
    pub(super) fn read(
        &mut self,
        files: &mut Files,
        job: &TrackedJob,
        moment: &Moment,
        members: &[Member],
        is_member: impl Fn(i32) -> bool,
    ) -> &mut Vec<Stat> {
        self.candidates.retain(|pid| !is_member(*pid));
        self.unknown.clear();
        self.hidden.clear();
        self.is_incomplete = false;
        // A root that is new is no child of a member, so it cannot be found from above.
        let has_root = self.candidates.binary_search(&job.pid).is_ok();
        let are_many = self.candidates.len() > MANY + 2 * members.len() && self.new_pids.is_some() && !has_root;
        if !(are_many && self.find_from_above(files, job, moment, members, is_member)) {
            self.read_candidates(files);
        }
        &mut self.unknown
    }

    fn read_candidates(&mut self, files: &mut Files) {
        let Self { candidates, foreign, hidden, unknown, is_incomplete, .. } = self;
        for pid in candidates.iter().copied() {
            match files.read(pid, "stat", &mut None, false) {
                Ok(text) => unknown.extend(Stat::parse(text).filter(|stat| !stat.is_taken_over())),
                // The process has ended by now.
                Err(error) if is_of_a_process_that_is_gone(&error) => (),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => _ = hidden.insert(pid),
                Err(_) => *is_incomplete = true,
            }
        }
        // Threads have ids as well. No list shows them, but a tried id can be one.
        let threads = unknown.extract_if(.., |stat| stat.is_thread());
        foreign.extend(threads.map(|stat| stat.pid));
    }

    /// Finds the new processes of the tree in lists of children, since other programs may start processes by the
    /// thousand. `false` where the kernel does not list children.
    fn find_from_above(
        &mut self,
        files: &mut Files,
        job: &TrackedJob,
        moment: &Moment,
        members: &[Member],
        is_member: impl Fn(i32) -> bool,
    ) -> bool {
        let is_recent = |at| moment.at.saturating_duration_since(at) < FROM_ABOVE;
        if self.found_from_above.is_some_and(is_recent) && !moment.last {
            return true;
        }
        let own_pid = self.own_pid;
        // Its children are read last: an orphan whose parent ends meanwhile comes here.
        let own = job.adopts_orphans.then_some(Parent { pid: own_pid, threads: 1 });
        let members = members.iter().map(|member| Parent { pid: member.stat.pid, threads: member.stat.threads });
        let Some(found) = descendants::new_ones(files, own.into_iter().chain(members), own_pid, is_member) else {
            return false;
        };
        self.unknown = found;
        self.found_from_above = Some(moment.at);
        true
    }

    /// Decides on the processes that are left. One is foreign if its parent is foreign or older than the tree. All
    /// others are looked at again: the parent could not be read, say, and may belong to the tree. So may a child of the
    /// `adopter`, which gets the orphans of the tree, because the kernel can leave some out of the list of its
    /// children.
    pub(super) fn settle(&mut self, adopter: Option<i32>) {
        let Self { foreign, hidden, unknown, new_pids, .. } = self;
        foreign.retain(|pid| new_pids.is_none_or(|new_pids| new_pids.contains(*pid)));
        let is_older = |pid| new_pids.is_some_and(|new_pids| !new_pids.contains(pid));
        // Repeats while it finds any, because a child can be listed before its parent.
        loop {
            let count = unknown.len();
            unknown.retain(|stat| {
                let parent = stat.parent;
                let is_child_of_foreign =
                    parent == 0 || is_older(parent) || foreign.contains(&parent) || hidden.contains(&parent);
                let is_foreign = is_child_of_foreign && Some(parent) != adopter;
                if is_foreign {
                    foreign.insert(stat.pid);
                }
                !is_foreign
            });
            if unknown.len() == count {
                break;
            }
        }
        if !self.is_incomplete {
            self.allocations.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    /// A stand-in for procfs, in which the tracker is this process.
    struct Procfs(tempfile::TempDir);

    impl Procfs {
        fn new() -> Self {
            let procfs = Self(tempfile::tempdir().unwrap());
            let own = std::process::id() as i32;
            std::os::unix::fs::symlink(own.to_string(), procfs.path().join("self")).unwrap();
            procfs.children(own, "");
            procfs
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn gave_out(&self, last: i32) {
            fs::write(self.path().join("loadavg"), format!("0.00 0.00 0.00 1/90 {last}\n")).unwrap();
        }

        fn children(&self, pid: i32, children: &str) {
            let thread = self.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("children"), children).unwrap();
        }

        fn process(&self, pid: i32, parent: i32, exit_signal: i32) {
            self.children(pid, "");
            let stat = format!(
                "{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 {exit_signal}"
            );
            fs::write(self.path().join(format!("{pid}/stat")), stat).unwrap();
        }
    }

    /// A command of process id 1000, looked at once a second.
    struct Looks {
        newcomers: Newcomers,
        pids: Pids,
        files: Files,
        job: TrackedJob,
        members: Vec<Member>,
        moment: Moment,
    }

    impl Looks {
        fn at(procfs: &Procfs) -> Self {
            let second = Duration::from_secs(1);
            Self {
                newcomers: Newcomers::new(&Host::new(procfs.path(), procfs.path()), std::process::id() as i32),
                pids: Pids::open(procfs.path()).unwrap(),
                files: Files::new(procfs.path()).unwrap(),
                job: TrackedJob { adopts_orphans: true, ..TrackedJob::spawned(1000) },
                members: Vec::new(),
                moment: Moment::new(0, Instant::now(), second, second),
            }
        }

        /// Whom it reads; all that descend from a member become members.
        fn look(&mut self) -> Vec<i32> {
            let Self { newcomers, pids, files, job, members, moment } = self;
            pids.begin_tick();
            if moment.number > 0 || !newcomers.begin_with(job.pid, moment) {
                newcomers.list(pids, moment).unwrap();
            }
            let pids: Vec<i32> = members.iter().map(|member| member.stat.pid).collect();
            let unknown = newcomers.read(files, job, moment, members, |pid| pids.contains(&pid));
            let read = unknown.iter().map(|stat| stat.pid).collect();
            let mut joined = pids.clone();
            loop {
                let joins = |stat: &mut Stat| stat.pid == 1000 || joined.contains(&stat.parent);
                let new: Vec<Stat> = unknown.extract_if(.., joins).collect();
                if new.is_empty() {
                    break;
                }
                joined.extend(new.iter().map(|stat| stat.pid));
                members.extend(new.into_iter().map(|stat| Member::new(stat, false, files, false, moment.at)));
            }
            newcomers.settle(job.adopts_orphans.then_some(std::process::id() as i32));
            moment.number += 1;
            moment.at += moment.interval;
            read
        }

        fn joined(&self) -> Vec<i32> {
            self.members.iter().map(|member| member.stat.pid).collect()
        }
    }

    #[test]
    fn who_was_there_before_the_command_is_not_read() {
        let procfs = Procfs::new();
        (1..1000).for_each(|pid| procfs.process(pid, 1, 17));
        procfs.process(1000, 7, 17);
        procfs.process(1002, 7, 17);
        procfs.gave_out(1002);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        procfs.process(1003, 1000, 17);
        procfs.process(1004, 1000, -1);
        procfs.gave_out(1004);
        assert_eq!(looks.look(), [1002, 1003], "1004 is a thread");
        assert!(looks.look().is_empty(), "all are known");
        // Ids began anew, and one of those that were there before has ended.
        procfs.process(30, 1000, 17);
        procfs.gave_out(40);
        assert!(looks.look().contains(&30));
    }

    /// It has its number, and cannot be seen yet.
    #[test]
    fn one_that_is_just_being_made_is_found_later() {
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        procfs.gave_out(1001);
        assert!(looks.look().is_empty());
        procfs.process(1001, 1000, 17);
        assert_eq!(looks.look(), [1001]);
    }

    /// A process that cannot be read for a moment, its child, and that one's child.
    #[test]
    fn who_descends_from_one_that_could_not_be_read_is_found_when_it_can() {
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        procfs.process(1001, 1000, 17);
        procfs.process(1002, 1001, 17);
        procfs.process(1003, 1002, 17);
        procfs.process(1004, 1, 17);
        procfs.process(1005, 1004, 17);
        procfs.gave_out(1005);
        let text = fs::read(procfs.path().join("1001/stat")).unwrap();
        fs::remove_file(procfs.path().join("1001/stat")).unwrap();
        fs::create_dir(procfs.path().join("1001/stat")).unwrap();
        assert_eq!(looks.look(), [1002, 1003, 1004, 1005]);
        fs::remove_dir(procfs.path().join("1001/stat")).unwrap();
        fs::write(procfs.path().join("1001/stat"), text).unwrap();
        assert_eq!(looks.look(), [1001, 1002, 1003], "1004 and its child are older's");
        assert_eq!(looks.joined(), [1000, 1001, 1002, 1003]);
    }

    /// An orphan came to the tracker, and the kernel has left it out of the list of the tracker's children.
    #[test]
    fn an_orphan_that_was_missed_is_looked_at_again() {
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        let own = std::process::id() as i32;
        procfs.process(1001, own, 17);
        procfs.process(1002, 1001, 17);
        procfs.gave_out(1002);
        assert_eq!(looks.look(), [1001, 1002]);
        assert_eq!(looks.look(), [1001, 1002], "they are not foreign");
        looks.job.adopts_orphans = false;
        looks.look();
        assert!(looks.look().is_empty(), "nobody adopts, and its parent is older");
    }

    #[test]
    fn who_is_not_told_apart_at_once_is_looked_at_now_and_then() {
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        looks.moment.interval = Duration::from_millis(10);
        assert_eq!(looks.look(), [1000]);
        looks.look();
        looks.look();
        // A child of the tracker, which is not seen to be an orphan.
        procfs.process(1001, std::process::id() as i32, 17);
        procfs.gave_out(1001);
        assert_eq!([looks.look(), looks.look(), looks.look()], [vec![1001], vec![1001], vec![]]);
        let count = (0..50).filter(|_| !looks.look().is_empty()).count();
        assert!((4..=6).contains(&count), "{count} times in half a second");
        looks.moment.last = true;
        assert_eq!(looks.look(), [1001]);
    }

    #[test]
    fn who_hides_and_his_children_are_foreign() {
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: root reads every file");
            return;
        }
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        procfs.process(1001, 1000, 17);
        procfs.process(1002, 1001, 17);
        fs::set_permissions(procfs.path().join("1001/stat"), fs::Permissions::from_mode(0o000)).unwrap();
        procfs.gave_out(1002);
        assert_eq!(looks.look(), [1002]);
        assert!(looks.look().is_empty());
    }

    #[test]
    fn thousands_of_others_are_not_read() {
        let procfs = Procfs::new();
        procfs.process(1000, 7, 17);
        procfs.gave_out(1000);
        let mut looks = Looks::at(&procfs);
        assert_eq!(looks.look(), [1000]);
        // Read, they would be members.
        (1001..2001).for_each(|pid| procfs.process(pid, 1000, 17));
        procfs.children(1000, "1500 ");
        procfs.children(1500, "1700 ");
        procfs.children(std::process::id() as i32, "1900 ");
        procfs.gave_out(2000);
        assert_eq!(looks.look(), [1500, 1700, 1900]);
        let own = std::process::id();
        fs::remove_file(procfs.path().join(format!("{own}/task/{own}/children"))).unwrap();
        assert_eq!(looks.look().len(), 1000 - 3, "the kernel lists no children, and three are known");
    }
}
