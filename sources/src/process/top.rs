//! The processes of the tree that were most at work.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resource_tracker_metrics::TopProcess;

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
    /// CPU time of each in nanoseconds, when it was last looked.
    used: HashMap<Identity, u64>,
    /// Names of those who were among them last, and when they were read.
    names: HashMap<Identity, (String, Instant)>,
    has_begun: bool,
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
            names: HashMap::new(),
            has_begun: false,
        }
    }

    /// Those who live; what they used since the last call counts. In the first one it counts from birth when the tree was
    /// `spawned` by the tracker, else from now.
    pub(super) fn read(&mut self, job: &JobDetails, spawned: bool, elapsed: Duration) -> Vec<TopProcess> {
        self.read_of(job.alive(), spawned, elapsed, job.observed_at())
    }

    fn read_of<'a>(
        &mut self,
        members: impl Iterator<Item = &'a Member>,
        spawned: bool,
        elapsed: Duration,
        now: Instant,
    ) -> Vec<TopProcess> {
        let before = std::mem::take(&mut self.used);
        let is_new = std::mem::replace(&mut self.has_begun, true) || spawned;
        let mut busy = Vec::new();
        for member in members {
            let total = self.cpu_time(member);
            let then = before.get(&member.identity()).copied().unwrap_or(if is_new { 0 } else { total });
            self.used.insert(member.identity(), total);
            busy.push((total.saturating_sub(then), member));
        }
        busy.sort_unstable_by_key(|(used, member)| Reverse((*used, member.stat.rss)));
        busy.truncate(self.count);
        let mut names = std::mem::take(&mut self.names);
        let secs = elapsed.as_secs_f64();
        let top = busy.into_iter().map(|(used, member)| {
            let known =
                names.remove(&member.identity()).filter(|(_, at)| now.saturating_duration_since(*at) < NAME_EVERY);
            let (name, at) = known.unwrap_or_else(|| (self.name(member.stat.pid), now));
            self.names.insert(member.identity(), (name.clone(), at));
            TopProcess {
                pid: member.stat.pid.unsigned_abs(),
                name,
                cores_used: if secs > 0.0 { used as f64 / 1e9 / secs } else { 0.0 },
                rss_mib: mib(member.stat.rss.saturating_mul(self.page)),
            }
        });
        top.collect()
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
        let now = Instant::now();
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
}
