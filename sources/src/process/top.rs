//! The processes of the tree that were most at work.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resource_tracker_metrics::TopProcess;
use rustix::time::{ClockId, clock_gettime};

use crate::job::{Identity, JobDetails, Member};
use crate::procfile::{attribute, mib};

/// A name changes when the process becomes another program, which is rare.
const NAME_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Top {
    procfs: PathBuf,
    count: usize,
    /// Of the clock, in nanoseconds.
    tick: u64,
    /// Of memory, in bytes.
    page: u64,
    /// CPU time of each in nanoseconds, when it was last looked, and the time before that.
    used: HashMap<Identity, u64>,
    before: HashMap<Identity, u64>,
    /// Those of this time, to be used again.
    busy: Vec<Busy>,
    /// Names of those who were among them last, and when they were read.
    names: HashMap<Identity, (String, Instant)>,
    has_begun: bool,
}

/// What one of them used.
struct Busy {
    identity: Identity,
    cores: f64,
    rss: u64,
}

impl Busy {
    /// The busiest first.
    fn order(&self, other: &Self) -> Ordering {
        other.cores.total_cmp(&self.cores).then(other.rss.cmp(&self.rss))
    }
}

/// When they are looked at.
#[derive(Clone, Copy)]
struct Now {
    at: Instant,
    /// Since the machine's start.
    uptime: Duration,
}

impl Top {
    pub(super) fn new(procfs: &Path, count: usize) -> Self {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let page = rustix::param::page_size() as u64;
        Self {
            procfs: procfs.to_owned(),
            count,
            tick,
            page,
            used: HashMap::new(),
            before: HashMap::new(),
            busy: Vec::new(),
            names: HashMap::new(),
            has_begun: false,
        }
    }

    /// Those who live; what they used since the last call counts. In the first one it counts from birth when the tree was
    /// `spawned` by the tracker, else from now.
    pub(super) fn read(&mut self, job: &JobDetails, spawned: bool, elapsed: Duration) -> Vec<TopProcess> {
        let uptime = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        self.read_of(job.alive(), spawned, elapsed, Now { at: job.observed_at(), uptime })
    }

    fn read_of<'a>(
        &mut self,
        members: impl Iterator<Item = &'a Member>,
        spawned: bool,
        elapsed: Duration,
        now: Now,
    ) -> Vec<TopProcess> {
        std::mem::swap(&mut self.used, &mut self.before);
        self.used.clear();
        let mut busy = std::mem::take(&mut self.busy);
        busy.clear();
        let is_new = std::mem::replace(&mut self.has_begun, true) || spawned;
        for member in members {
            let (identity, total) = (member.identity(), self.cpu_time(member));
            let (used, time) = match self.before.get(&identity) {
                Some(then) => (total.saturating_sub(*then), elapsed),
                // It was born since, or before that, and was not found until now.
                None if is_new => (total, elapsed.max(self.least_age(member, now.uptime))),
                None => (0, elapsed),
            };
            self.used.insert(identity, total);
            let secs = time.as_secs_f64();
            let cores = if secs > 0.0 { used as f64 / 1e9 / secs } else { 0.0 };
            busy.push(Busy { identity, cores, rss: member.stat.rss });
        }
        if busy.len() > self.count {
            busy.select_nth_unstable_by(self.count, Busy::order);
            busy.truncate(self.count);
        }
        busy.sort_unstable_by(Busy::order);
        let mut names = std::mem::take(&mut self.names);
        let top = busy.iter().map(|one| {
            let pid = one.identity.0;
            let known =
                names.remove(&one.identity).filter(|(_, at)| now.at.saturating_duration_since(*at) < NAME_EVERY);
            let (name, at) = known.unwrap_or_else(|| (self.name(pid), now.at));
            self.names.insert(one.identity, (name.clone(), at));
            TopProcess {
                pid: pid.unsigned_abs(),
                name,
                cores_used: one.cores,
                rss_mib: mib(one.rss.saturating_mul(self.page)),
            }
        });
        let top = top.collect();
        self.busy = busy;
        top
    }

    /// For how long it lives at the least: it was born at any time of its clock tick.
    fn least_age(&self, member: &Member, uptime: Duration) -> Duration {
        let born = Duration::from_nanos(member.stat.start_time.saturating_add(1).saturating_mul(self.tick));
        uptime.saturating_sub(born)
    }

    fn cpu_time(&self, member: &Member) -> u64 {
        let by_stat = || member.stat.utime.saturating_add(member.stat.stime).saturating_mul(self.tick);
        member.clock.map_or_else(by_stat, |time| time.as_nanos() as u64)
    }

    /// Empty when it is gone.
    fn name(&self, pid: i32) -> String {
        attribute(&self.procfs.join(format!("{pid}/comm"))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_come_first_by_what_they_used_since() {
        let procfs = tempfile::tempdir().unwrap();
        let member = |pid: i32, millis: u64, rss: u64| {
            std::fs::create_dir_all(procfs.path().join(pid.to_string())).unwrap();
            std::fs::write(procfs.path().join(format!("{pid}/comm")), format!("name {pid}\n")).unwrap();
            let mut member = Member::default();
            (member.stat.pid, member.stat.rss, member.clock) = (pid, rss, Some(Duration::from_millis(millis)));
            member
        };
        let mut top = Top::new(procfs.path(), 2);
        let page = top.page;
        let second = Duration::from_secs(1);
        let now = Now { at: Instant::now(), uptime: Duration::ZERO };
        let mut read = |members: &[Member], spawned| top.read_of(members.iter(), spawned, second, now);
        let first = read(&[member(7, 5000, 1), member(8, 10, 2)], false);
        assert_eq!(first.iter().map(|one| (one.pid, one.cores_used)).collect::<Vec<_>>(), [(8, 0.0), (7, 0.0)]);
        // Another one has begun since, and used more than the oldest.
        let second = read(&[member(7, 5250, 1), member(8, 10, 2), member(9, 500, 3)], false);
        let expected = [(9, "name 9", 0.5, mib(3 * page)), (7, "name 7", 0.25, mib(page))];
        let found: Vec<_> =
            second.iter().map(|one| (one.pid, one.name.as_str(), one.cores_used, one.rss_mib)).collect();
        assert_eq!(found, expected);
        let mut spawned = Top::new(procfs.path(), 1);
        let members = [member(7, 100, 1)];
        assert_eq!(spawned.read_of(members.iter(), true, Duration::from_secs(1), now)[0].cores_used, 0.1);
    }

    #[test]
    fn one_that_is_found_late_has_used_no_more_than_it_could() {
        let procfs = tempfile::tempdir().unwrap();
        let mut top = Top::new(procfs.path(), 9);
        let tick = Duration::from_nanos(top.tick);
        let member = |pid: i32, born: u64, used: Duration| {
            let mut member = Member::default();
            (member.stat.pid, member.stat.start_time, member.clock) = (pid, born, Some(used));
            member
        };
        let now = Now { at: Instant::now(), uptime: tick * 1001 };
        let second = Duration::from_secs(1);
        assert!(top.read_of([].iter(), true, second, now).is_empty());
        // It has had one core all its life. Another one was born since the last time.
        let found = [member(1, 0, tick * 1000), member(2, 950, second / 4)];
        let cores = top.read_of(found.iter(), true, second, now);
        assert_eq!(cores.iter().map(|one| (one.pid, one.cores_used)).collect::<Vec<_>>(), [(1, 1.0), (2, 0.25)]);
    }
}
