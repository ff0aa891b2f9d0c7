//! Processes that were not there before: found by their ids, without opening those that are older.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Tick, Tracked};

use super::descendants::{self, Parent};
use super::files::Files;
use super::issued::{Issued, Issuer};
use super::member::{Member, is_of_a_process_that_is_gone};
use super::stat::Stat;
use crate::pids::{Pids, lock};

/// So many ids are tried one by one, which costs less than a list.
const FEW: i32 = 16;

/// When many more are new than the tree has processes, its own are found from above, so often.
const MANY: usize = 256;
const FROM_ABOVE: Duration = Duration::from_millis(250);

pub(super) struct Newcomers {
    pids: Arc<Mutex<Pids>>,
    issuer: Issuer,
    /// Of the tick at hand; `None` where that does not tell who is new.
    issued: Option<Issued>,
    /// Those to be looked at, in order.
    candidates: Vec<i32>,
    /// Processes that were looked at, are new enough to be looked at again, and do not belong to the tree; in order.
    foreign: Vec<i32>,
    next_foreign: Vec<i32>,
    unknown: Vec<Stat>,
    /// Whether a process could not be read that may be there, for want of a descriptor, say.
    is_incomplete: bool,
    found_from_above: Option<Instant>,
}

impl Newcomers {
    pub(super) fn new(host: &Host) -> anyhow::Result<Self> {
        Ok(Self {
            pids: Pids::shared(host)?,
            issuer: Issuer::new(host),
            issued: None,
            candidates: Vec::new(),
            foreign: Vec::new(),
            next_foreign: Vec::new(),
            unknown: Vec::new(),
            is_incomplete: false,
            found_from_above: None,
        })
    }

    /// Names those that can be new. Fails when the processes cannot be listed at this tick, which is not to be read then.
    pub(super) fn list(&mut self, tracked: &Tracked, tick: &Tick) -> anyhow::Result<()> {
        self.candidates.clear();
        if tracked.spawned && tick.number == 0 && self.issuer.begin_before(tracked.pid, tick) {
            // Its descendants are as new as it is, and belong to the first interval.
            self.candidates.push(tracked.pid);
            return Ok(());
        }
        self.issued = self.issuer.look(tick);
        let Self { pids, candidates, foreign, issued, .. } = self;
        if let Some(few) = issued.and_then(|issued| issued.few(FEW)) {
            candidates.extend(few.filter(|pid| foreign.binary_search(pid).is_err()));
            return Ok(());
        }
        let mut pids = lock(pids);
        let listed = pids.list(tick.at)?;
        if issued.is_none() {
            if self.issuer.may_have_reused(tick) {
                foreign.clear();
            }
            foreign.retain(|pid| listed.binary_search(pid).is_ok());
        }
        let mut known = foreign.iter().copied().peekable();
        candidates.extend(listed.iter().copied().filter(|pid| {
            while known.next_if(|foreign| foreign < pid).is_some() {}
            known.peek() != Some(pid) && issued.is_none_or(|issued| issued.contains(*pid))
        }));
        Ok(())
    }

    /// Reads `stat` of each that may be new and is none of the `members`. The caller takes out those that it accepts
    /// and calls [`settle`](Self::settle).
    pub(super) fn read(
        &mut self,
        files: &mut Files,
        tracked: &Tracked,
        tick: &Tick,
        members: &[Member],
        is_member: impl Fn(i32) -> bool,
    ) -> &mut Vec<Stat> {
        self.candidates.retain(|pid| !is_member(*pid));
        self.unknown.clear();
        self.is_incomplete = false;
        // A root that is new itself is nobody's child here.
        let has_root = self.candidates.binary_search(&tracked.pid).is_ok();
        let are_many = self.candidates.len() > MANY + 2 * members.len() && self.issued.is_some() && !has_root;
        if !(are_many && self.find_from_above(files, tracked, tick, members, is_member)) {
            self.read_candidates(files);
        }
        &mut self.unknown
    }

    fn read_candidates(&mut self, files: &mut Files) {
        let Self { candidates, foreign, unknown, is_incomplete, .. } = self;
        for pid in candidates.iter().copied() {
            match files.read(pid, "stat", &mut None, false) {
                Ok(text) => unknown.extend(Stat::parse(text).filter(|stat| !stat.is_taken_over())),
                // One that has ended by now, or that hides, is nobody.
                Err(error) if is_of_a_process_that_is_gone(&error) => (),
                Err(error) => *is_incomplete |= error.kind() != std::io::ErrorKind::PermissionDenied,
            }
        }
        // A thread has an id as well, which is in no list but can be tried.
        let threads = unknown.extract_if(.., |stat| stat.is_thread());
        foreign.extend(threads.map(|stat| stat.pid));
        foreign.sort_unstable();
    }

    /// Others may come by the thousand; the tree's own are descendants of its processes, or orphans. `false` where the
    /// kernel does not list children.
    fn find_from_above(
        &mut self,
        files: &mut Files,
        tracked: &Tracked,
        tick: &Tick,
        members: &[Member],
        is_member: impl Fn(i32) -> bool,
    ) -> bool {
        let is_recent = |at| tick.at.saturating_duration_since(at) < FROM_ABOVE;
        if self.found_from_above.is_some_and(is_recent) && !tick.last {
            return true;
        }
        let own_pid = std::process::id() as i32;
        // Read last: who loses a parent meanwhile comes here.
        let own = tracked.adopts_orphans.then_some(Parent { pid: own_pid, threads: 1 });
        let members = members.iter().map(|member| Parent { pid: member.stat.pid, threads: member.stat.threads });
        let Some(found) = descendants::new_ones(files, own.into_iter().chain(members), own_pid, is_member) else {
            return false;
        };
        self.unknown = found;
        self.found_from_above = Some(tick.at);
        true
    }

    /// Those that were left are foreign, except where the parent is not known: it can have ended before it was read,
    /// and have belonged to the tree. Its child is looked at again.
    pub(super) fn settle(&mut self) {
        let Self { foreign, next_foreign, unknown, issued, .. } = self;
        next_foreign.clear();
        next_foreign.extend(foreign.iter().copied().filter(|pid| issued.is_none_or(|issued| issued.contains(*pid))));
        let known = next_foreign.len();
        for stat in unknown.iter() {
            let is_read = |parent| unknown.binary_search_by_key(&parent, |stat| stat.pid).is_ok();
            let is_older = |parent| issued.is_some_and(|issued| !issued.contains(parent));
            let parent = stat.parent;
            if parent == 0
                || is_older(parent)
                || next_foreign[..known].binary_search(&parent).is_ok()
                || is_read(parent)
            {
                next_foreign.push(stat.pid);
            }
        }
        next_foreign.sort_unstable();
        next_foreign.dedup();
        std::mem::swap(foreign, next_foreign);
        if !self.is_incomplete {
            self.issuer.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        files: Files,
        tracked: Tracked,
        members: Vec<Member>,
        tick: Tick,
    }

    impl Looks {
        fn at(procfs: &Procfs) -> Self {
            let second = Duration::from_secs(1);
            Self {
                newcomers: Newcomers::new(&Host::new(procfs.path(), procfs.path())).unwrap(),
                files: Files::new(procfs.path()).unwrap(),
                tracked: Tracked {
                    pid: 1000,
                    spawned: true,
                    adopts_orphans: true,
                    fork_mark: None,
                    reaped: Default::default(),
                    cgroup: None,
                    members: Arc::default(),
                },
                members: Vec::new(),
                tick: Tick {
                    number: 0,
                    at: Instant::now(),
                    elapsed: second,
                    interval: second,
                    last: false,
                    tracked: None,
                },
            }
        }

        /// Whom it reads; all with a member as parent become members.
        fn look(&mut self) -> Vec<i32> {
            let Self { newcomers, files, tracked, members, tick } = self;
            newcomers.list(tracked, tick).unwrap();
            let pids: Vec<i32> = members.iter().map(|member| member.stat.pid).collect();
            let unknown = newcomers.read(files, tracked, tick, members, |pid| pids.contains(&pid));
            let read = unknown.iter().map(|stat| stat.pid).collect();
            let joins = |stat: &mut Stat| stat.pid == 1000 || pids.contains(&stat.parent);
            for stat in unknown.extract_if(.., joins) {
                members.push(Member::new(stat, false, files, false, tick.at));
            }
            newcomers.settle();
            tick.number += 1;
            tick.at += tick.interval;
            read
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
