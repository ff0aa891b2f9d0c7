//! The processes of the tree: the root, its descendants, and orphans that the tracker adopted as a subreaper.
//!
//! A process is looked at when it is new. Whether it belongs is decided by its parent then, and never changes.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use resource_tracker_core::{Host, Moment};

use super::files::Files;
use super::member::{Identity, Member};
use super::newcomers::Newcomers;
use super::pids::Pids;
use super::stat::Stat;
use super::status::{Budget, Status};
use super::tracked::TrackedJob;
use crate::fork_mark;
use crate::pid_namespace::own_pid;
use resource_tracker_scan::{number, words};

pub(super) struct Tree {
    /// The process id of this program in `Host::procfs`, which can show another pid namespace than its own; `None` where
    /// it is not in that namespace.
    pid_in_procfs: Option<i32>,
    /// The same, or its own.
    own_pid: i32,
    has_begun: bool,
    files: Files,
    newcomers: Newcomers,
    has_clock: bool,
    root: Option<Identity>,
    root_has_ended: bool,
    /// Parents come before their children, so that what a parent takes over from a child never counts twice.
    members: Vec<Member>,
    /// How many of them the walk before had found.
    known: usize,
    by_pid: HashMap<i32, Identity>,
    gone: Vec<FormerMember>,
    /// Members that have ended: the kernel has given their children to another parent.
    ended_parents: HashSet<i32>,
    budget: Budget,
    next_status: usize,
    status_summary: StatusSummary,
}

/// A member that is no longer in procfs.
#[derive(Debug)]
pub(crate) struct FormerMember {
    /// Its last reading.
    pub(crate) last: Member,
    pub(crate) heir: Heir,
}

/// The process that takes over the counters of an ended process by waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Heir {
    Member(Identity),
    Tracker,
    Nobody,
}

/// What the `status` files showed so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatusSummary {
    /// The most memory that one process of the tree ever had resident, in bytes.
    pub(crate) peak_rss: u64,
    /// Whether a process of the tree ever ignored `SIGCHLD`, so that its children vanish when they end.
    pub(crate) ignores_children: bool,
}

impl Tree {
    pub(super) fn new(host: &Host) -> anyhow::Result<Self> {
        let (pid_in_procfs, pid) = (own_pid(&host.procfs), std::process::id() as i32);
        let own_pid = pid_in_procfs.unwrap_or(pid);
        Ok(Self {
            pid_in_procfs,
            own_pid,
            has_begun: false,
            files: Files::new(&host.procfs)?,
            newcomers: Newcomers::new(host, own_pid),
            has_clock: pid_in_procfs == Some(pid),
            root: None,
            root_has_ended: false,
            members: Vec::new(),
            known: 0,
            by_pid: HashMap::new(),
            gone: Vec::new(),
            ended_parents: HashSet::new(),
            budget: Budget::new(),
            next_status: 0,
            status_summary: StatusSummary::default(),
        })
    }

    /// Whether the root was ever found.
    pub(super) fn was_seen(&self) -> bool {
        self.root.is_some()
    }

    /// The tree as the last walk found it.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The members that the last walk found new.
    pub(super) fn joined(&self) -> &[Member] {
        &self.members[self.known..]
    }

    /// The members that the last walk found no longer there.
    pub(super) fn gone(&self) -> &[FormerMember] {
        &self.gone
    }

    pub(super) fn status_summary(&self) -> StatusSummary {
        self.status_summary
    }

    /// Brings the tree up to date. `root_was_reaped`: whether this program had waited for the root before.
    ///
    /// # Errors
    /// When the processes of the machine cannot be listed. The tree then stays as it was, so that the next walk
    /// accounts for members that have ended.
    pub(super) fn walk(
        &mut self,
        job: &TrackedJob,
        root_was_reaped: bool,
        pids: &mut Pids,
        moment: &Moment,
    ) -> anyhow::Result<()> {
        let is_first = !self.has_begun;
        let own = self.left_out(job);
        if let Some(own) = own {
            self.newcomers.leave_out(own);
        }
        if !(is_first && job.is_spawned() && self.newcomers.begin_with(job.pid, moment)) {
            self.newcomers.list(pids, moment)?;
        }
        self.has_begun = true;
        self.root_has_ended |= root_was_reaped;
        self.refresh(moment.at);
        self.find_heirs(job);
        self.discover(job, own, is_first && !job.is_spawned(), moment);
        self.read_status(moment);
        Ok(())
    }

    /// This program, where it can be below the root: it belongs to the job only as its root.
    fn left_out(&self, job: &TrackedJob) -> Option<i32> {
        self.pid_in_procfs.filter(|own| !job.is_spawned() && *own != job.pid)
    }

    fn refresh(&mut self, now: Instant) {
        self.ended_parents.clear();
        let Self { members, files, by_pid, gone, ended_parents, root_has_ended, has_clock, .. } = self;
        gone.clear();
        gone.extend(
            members
                .extract_if(.., |member| {
                    let must = ended_parents.contains(&member.stat.parent);
                    let is_here = !(member.is_root && *root_has_ended) && member.refresh(files, *has_clock, must, now);
                    if !is_here || member.stat.is_dead() {
                        ended_parents.insert(member.stat.pid);
                    }
                    if !is_here {
                        member.close(files);
                        by_pid.remove(&member.stat.pid);
                    }
                    !is_here
                })
                .map(|last| FormerMember { last, heir: Heir::Nobody }),
        );
    }

    /// For each former member, the nearest of its ancestors that is still here. Parents come first here as well.
    fn find_heirs(&mut self, job: &TrackedJob) {
        for index in 0..self.gone.len() {
            let (before, rest) = self.gone.split_at_mut(index);
            let gone = &mut rest[0];
            let parent = gone.last.stat.parent;
            gone.heir = if let Some(identity) = self.by_pid.get(&parent) {
                Heir::Member(*identity)
            } else if job.is_spawned() && gone.last.is_root || job.adopts_orphans && parent == self.own_pid {
                Heir::Tracker
            } else {
                let ancestor = before.iter().find(|other| other.last.stat.pid == parent);
                ancestor.map_or(Heir::Nobody, |ancestor| ancestor.heir)
            };
        }
    }

    /// Finds new members, except `left_out`. If they `were_there` before the tracker, their context switches count from
    /// now.
    fn discover(&mut self, job: &TrackedJob, left_out: Option<i32>, were_there: bool, moment: &Moment) {
        let (own_pid, tree_pid) = (self.own_pid, job.pid);
        self.known = self.members.len();
        let Self { files, newcomers, members, by_pid, root, root_has_ended, has_clock, .. } = self;
        let is_known = |pid, by_pid: &HashMap<i32, Identity>| by_pid.contains_key(&pid);
        let unknown = newcomers.read(files, job, moment, members, |pid| is_known(pid, by_pid));
        if root.is_none() {
            *root = unknown.iter().find(|stat| stat.pid == tree_pid).map(Stat::identity);
        }
        let Some(root) = *root else { return };
        // A child without an exit signal is a helper of the tracker's own.
        let may_be_adopted = |stat: &Stat| {
            stat.parent == own_pid && stat.exit_signal != 0 && stat.start_time >= root.1 && stat.pid != tree_pid
        };
        let candidates = unknown.iter().filter(|stat| job.adopts_orphans && may_be_adopted(stat));
        // The mark of a process is read by its process id.
        let mark = job.fork_mark.filter(|_| *has_clock);
        let candidates = candidates.filter(|stat| mark.is_none_or(|mark| !fork_mark::is_on(stat.pid, mark)));
        let orphans = adopted(files, own_pid, candidates.map(|stat| stat.pid).collect());
        let belongs = |stat: &Stat, by_pid: &HashMap<i32, Identity>| {
            let is_adopted = orphans.contains(&stat.pid);
            let is_root = stat.identity() == root;
            if is_root || stat.pid == tree_pid {
                is_root && !*root_has_ended
            } else {
                is_adopted || is_known(stat.parent, by_pid) && Some(stat.pid) != left_out
            }
        };
        // Repeats while it finds any, because a child can be listed before its parent.
        loop {
            let count = members.len();
            unknown.retain(|stat| {
                let belongs = belongs(stat, by_pid);
                if belongs {
                    by_pid.insert(stat.pid, stat.identity());
                    let mut member = Member::new(*stat, stat.identity() == root, files, *has_clock, moment.at);
                    member.was_there = were_there;
                    members.push(member);
                }
                !belongs
            });
            if members.len() == count {
                break;
            }
        }
        newcomers.settle(job.adopts_orphans.then_some(own_pid));
    }

    /// Reads `status` of the members that have run, in turn, as far as the budget goes.
    fn read_status(&mut self, moment: &Moment) {
        self.budget.earn(moment.elapsed);
        let count = self.members.len();
        for step in 0..count {
            let index = (self.next_status + step) % count;
            let member = &mut self.members[index];
            if !member.has_news || member.stat.is_dead() {
                continue;
            }
            let files = if member.stat.threads > 1 { member.stat.threads + 1 } else { 1 };
            if !self.budget.pay(files) {
                self.next_status = index;
                break;
            }
            (member.has_news, member.told_at) = (false, Some(moment.at));
            let (pid, threads) = (member.stat.pid, member.stat.threads);
            let Some(status) = Status::read(&mut self.files, pid, threads) else { continue };
            member.tell(status);
            self.status_summary.peak_rss = self.status_summary.peak_rss.max(status.peak_rss);
            self.status_summary.ignores_children |= status.ignores_children;
        }
    }
}

/// Which of these children of the tracker are adopted orphans: the kernel gives orphans to its main thread. Children of
/// its other threads, such as those of plugins and GPU libraries, are its own. All of them, where the kernel does not
/// show it (without `CONFIG_PROC_CHILDREN`).
fn adopted(files: &mut Files, own_pid: i32, candidates: HashSet<i32>) -> HashSet<i32> {
    let mut adopted = HashSet::new();
    // The kernel can leave some out while other children end.
    for _ in 0..3 {
        if adopted.len() == candidates.len() {
            break;
        }
        match files.read(own_pid, &format!("task/{own_pid}/children"), &mut None, false) {
            Ok(text) => {
                let listed = words(text).filter_map(number).filter_map(|pid| i32::try_from(pid).ok());
                adopted.extend(listed.filter(|pid| candidates.contains(pid)));
            }
            Err(_) => return candidates,
        }
    }
    adopted
}
