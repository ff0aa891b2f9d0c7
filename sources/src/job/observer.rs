//! Looks at the job at each tick, before the sources are read.

use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::Context;
use resource_tracker_core::{Host, Moment, Observation, ObservedJob, Observer};

use super::group::{Group, GroupReading};
use super::ledger::Reaped;
use super::member::Member;
use super::pids::Pids;
use super::tracked::{JobCgroup, TrackedJob};
use super::tree::{FormerMember, StatusSummary, Tree};

/// The owner of the job's process tree, and of the list of the machine's processes.
pub struct JobObserver {
    job: TrackedJob,
    host: Host,
    /// Opened at the first observation.
    open: Option<Open>,
    /// Process ids of the living members; before the first observation, that of the root.
    members: Vec<i32>,
    tell: Option<Sender<(i32, u64)>>,
}

struct Open {
    pids: Pids,
    details: JobDetails,
}

/// What the sources of this crate know of the job beyond the ids of its members.
pub(crate) struct JobDetails {
    began: Option<Instant>,
    observed_at: Instant,
    tree: Tree,
    reaped: Reaped,
    cgroup: JobCgroup,
    group: Group,
}

impl JobObserver {
    /// Observes this job on this machine.
    pub fn new(job: TrackedJob, host: Host) -> Self {
        let members = vec![job.pid];
        Self { job, host, open: None, members, tell: None }
    }

    /// Sends the id and the start time (field 22 of `/proc/PID/stat`) of each process that joins the job, so that
    /// another thread can know of it.
    pub fn tell_joins(mut self, to: Sender<(i32, u64)>) -> Self {
        self.tell = Some(to);
        self
    }
}

impl Observer for JobObserver {
    fn observe(&mut self, moment: &Moment) -> anyhow::Result<()> {
        // Before anything else is read, so that a process that is reaped meanwhile does not count twice.
        let reaped = self.job.ledger.reaped();
        let Open { pids, details } = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(Open::new(&self.host, &self.job, moment.at)?),
        };
        pids.begin_tick();
        details.tree.walk(&self.job, reaped.root, pids, moment)?;
        // Last, so that the cgroup has at least what its processes show.
        let anon = details.alive().filter_map(|member| member.status?.memory.anon).max();
        if let Err(error) = details.group.read(anon.unwrap_or(0), moment.at, moment.last) {
            log::warn!("the cgroup of the job is gone ({error:#}); its processes are added up instead");
        }
        details.reaped = reaped;
        details.observed_at = moment.at;
        self.members.clear();
        self.members.extend(details.alive().map(|member| member.stat.pid));
        if let Some(to) = &self.tell {
            // The receiver may be closed when the run ends.
            details.tree.joined().iter().for_each(|member| _ = to.send(member.identity()));
        }
        Ok(())
    }

    fn seen(&self) -> Observation<'_> {
        let job = ObservedJob::new(self.job.pid, self.job.is_spawned(), &self.members);
        match &self.open {
            Some(Open { pids, details }) => Observation::new(pids.listed(), Some(job.with_details(details))),
            None => Observation::new(None, Some(job)),
        }
    }
}

impl Open {
    fn new(host: &Host, job: &TrackedJob, observed_at: Instant) -> anyhow::Result<Self> {
        let (tree, group) = (Tree::new(host)?, Group::open(&job.cgroup));
        let (began, cgroup) = (job.began, job.cgroup.clone());
        let details = JobDetails { began, observed_at, tree, reaped: Reaped::default(), cgroup, group };
        Ok(Self { pids: Pids::open(&host.procfs)?, details })
    }
}

impl JobDetails {
    /// The details of a job.
    ///
    /// # Errors
    /// When the job was not observed at this tick.
    pub(crate) fn of<'a>(job: &ObservedJob<'a>) -> anyhow::Result<&'a Self> {
        job.details().context("the processes of the job could not be looked at")
    }

    /// When the job was started, if this program did that.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    /// When all this was observed.
    pub(crate) fn observed_at(&self) -> Instant {
        self.observed_at
    }

    /// Whether the root was ever there.
    pub(crate) fn was_seen(&self) -> bool {
        self.tree.was_seen() || self.reaped.root
    }

    /// The processes of the job, including zombies. Parents come before their children.
    pub(crate) fn members(&self) -> &[Member] {
        self.tree.members()
    }

    /// The members that have not ended.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members().iter().filter(|member| !member.stat.is_dead())
    }

    /// The members that have left procfs since the last tick.
    pub(crate) fn gone(&self) -> &[FormerMember] {
        self.tree.gone()
    }

    /// What the `status` files showed so far.
    pub(crate) fn status_summary(&self) -> StatusSummary {
        self.tree.status_summary()
    }

    /// What the processes used that this program had waited for when the tick began.
    pub(crate) fn reaped(&self) -> &Reaped {
        &self.reaped
    }

    /// What the kernel has counted of the cgroup of the job alone.
    pub(crate) fn group(&self) -> &GroupReading {
        self.group.reading()
    }

    /// The cgroup of the job alone.
    pub(crate) fn cgroup(&self) -> &JobCgroup {
        &self.cgroup
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn moment(number: u64) -> Moment {
        let second = Duration::from_secs(1);
        Moment::new(number, Instant::now(), second, second)
    }

    /// A stand-in for procfs, which does not tell who is new: it is listed at each tick.
    fn process(procfs: &Path, pid: i32, parent: i32) {
        let stat =
            format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid}5 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17");
        std::fs::create_dir_all(procfs.join(pid.to_string())).unwrap();
        std::fs::write(procfs.join(format!("{pid}/stat")), stat).unwrap();
    }

    #[test]
    fn members_are_seen_and_told_once() {
        let procfs = tempfile::tempdir().unwrap();
        let (to, joins) = mpsc::channel();
        let host = Host::new(procfs.path(), procfs.path());
        let mut observer = JobObserver::new(TrackedJob::attached(30), host).tell_joins(to);
        let seen = observer.seen();
        assert_eq!((seen.processes, seen.job.unwrap().members), (None, &[30][..]), "nobody has looked yet");
        process(procfs.path(), 1, 0);
        process(procfs.path(), 30, 1);
        process(procfs.path(), 31, 30);
        observer.observe(&moment(0)).unwrap();
        let seen = observer.seen();
        assert_eq!((seen.processes, seen.job.unwrap().members), (Some(&[1, 30, 31][..]), &[30, 31][..]));
        assert!(JobDetails::of(&seen.job.unwrap()).unwrap().was_seen());
        std::fs::remove_file(procfs.path().join("31/stat")).unwrap();
        process(procfs.path(), 32, 30);
        observer.observe(&moment(1)).unwrap();
        assert_eq!(observer.seen().job.unwrap().members, [30, 32]);
        drop(observer);
        assert_eq!(joins.iter().collect::<Vec<_>>(), [(30, 305), (31, 315), (32, 325)]);
    }

    #[test]
    fn without_a_procfs_it_fails_until_there_is_one() {
        let root = tempfile::tempdir().unwrap();
        let procfs = root.path().join("proc");
        let mut observer = JobObserver::new(TrackedJob::spawned(30), Host::new(&procfs, &procfs));
        assert!(observer.observe(&moment(0)).is_err());
        assert!(JobDetails::of(&observer.seen().job.unwrap()).is_err());
        process(&procfs, 30, 1);
        observer.observe(&moment(1)).unwrap();
        assert_eq!(observer.seen().job.unwrap().members, [30]);
    }
}
