//! Which process ids the kernel gave out since the last look.

use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Moment};

use crate::pid_namespace::shows_own_pid_namespace;
use crate::procfile::{ProcFile, attribute};
use resource_tracker_scan::{number, value_of, words};

/// After this time the kernel may have given out all process ids and begun at the first one again.
const LONG: Duration = Duration::from_secs(5);

/// A process has its id a moment before procfs shows it. After this time procfs shows it for certain.
const APPEARS: Duration = Duration::from_secs(1);

/// Finds the ids that are new.
pub(super) struct PidAllocations {
    /// `None` where procfs shows another pid namespace than the one that `loadavg` counts in.
    loadavg: Option<ProcFile>,
    stat: Option<ProcFile>,
    /// How many ids there are.
    largest: u64,
    /// All ids up to this one were looked at.
    settled: Option<LastPid>,
    /// Becomes `settled` when procfs shows all processes with ids up to this one.
    latest: Option<LastPid>,
    now: Option<LastPid>,
}

/// The process id given out last, when that was, and how many were ever given out, where that is of interest.
#[derive(Debug, Clone, Copy)]
struct LastPid {
    pid: i32,
    at: Instant,
    forks: Option<u64>,
}

impl PidAllocations {
    pub(super) fn new(host: &Host) -> Self {
        let open = |name: &str| ProcFile::open_if_present(host.procfs.join(name));
        let is_ours = shows_own_pid_namespace(&host.procfs);
        let largest = attribute(&host.procfs.join("sys/kernel/pid_max")).and_then(|text| text.parse().ok());
        Self {
            loadavg: is_ours.then(|| open("loadavg")).flatten(),
            stat: open("stat"),
            largest: largest.unwrap_or(0),
            settled: None,
            latest: None,
            now: None,
        }
    }

    /// Begins with this process: older ones are of no interest. `false` where ids do not tell what is older.
    pub(super) fn begin_before(&mut self, pid: i32, moment: &Moment) -> bool {
        let last = self.read_last(moment).map(|last| LastPid { pid: pid.saturating_sub(1), ..last });
        (self.settled, self.latest) = (last, last);
        last.is_some()
    }

    /// The ids that are not settled; `None` where any id can be new.
    pub(super) fn look(&mut self, moment: &Moment) -> Option<NewPids> {
        self.now = self.read_last(moment);
        let (settled, now) = (self.settled?, self.now?);
        (!is_round(settled, now, self.largest)).then_some(NewPids { after: settled.pid, last: now.pid })
    }

    /// Whether an id may belong to another process by now. It matters when any id can be new.
    pub(super) fn may_have_reused(&self, moment: &Moment) -> bool {
        let began_anew = self.latest.zip(self.now).is_some_and(|(latest, now)| now.pid < latest.pid);
        began_anew || self.settled.is_some() || moment.elapsed >= LONG
    }

    /// The ids that [`look`](Self::look) named were looked at.
    pub(super) fn settle(&mut self) {
        let Some(now) = self.now else { return };
        match self.latest {
            Some(latest) if now.at.saturating_duration_since(latest.at) < APPEARS => (),
            latest => (self.settled, self.latest) = (latest, Some(now)),
        }
    }

    fn read_last(&mut self, moment: &Moment) -> Option<LastPid> {
        let pid = last_pid(self.loadavg.as_mut()?.read().ok()?)?;
        let is_slow = moment.interval * 2 >= LONG;
        let forks = || value_of(self.stat.as_mut()?.read().ok()?, "processes");
        Some(LastPid { pid, at: moment.at, forks: is_slow.then(forks).flatten() })
    }
}

/// Whether all ids may have been given out in between. Then they do not tell what is new.
fn is_round(before: LastPid, now: LastPid, largest: u64) -> bool {
    let given_out = now.forks.zip(before.forks).map(|(now, before)| now.saturating_sub(before));
    // The kernel skips ids in use; there are not nearly as many of them.
    now.at.saturating_duration_since(before.at) >= LONG && given_out.is_none_or(|count| count >= largest / 4)
}

/// The process id given out last: the fifth word of `/proc/loadavg`.
fn last_pid(text: &[u8]) -> Option<i32> {
    i32::try_from(number(words(text).nth(4)?)?).ok()
}

/// The ids after `after`, up to `last`. The kernel gives out ids in ascending order and begins again after the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewPids {
    pub(super) after: i32,
    pub(super) last: i32,
}

impl NewPids {
    /// Whether the id is one of these. The ids of all younger processes are.
    pub(super) fn contains(self, pid: i32) -> bool {
        match self.after <= self.last {
            true => self.after < pid && pid <= self.last,
            false => self.after < pid || pid <= self.last,
        }
    }

    /// All of them, when they are no more than `limit`.
    pub(super) fn few(self, limit: usize) -> Option<impl Iterator<Item = i32>> {
        let count = usize::try_from(self.last.checked_sub(self.after)?).ok()?;
        (count <= limit).then_some(self.after + 1..=self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(new_pids: NewPids) -> Vec<i32> {
        (1..=9).filter(|pid| new_pids.contains(*pid)).collect()
    }

    #[test]
    fn those_after_the_last_look() {
        assert_eq!(of(NewPids { after: 3, last: 6 }), [4, 5, 6]);
        assert!(of(NewPids { after: 3, last: 3 }).is_empty());
        assert_eq!(of(NewPids { after: 7, last: 2 }), [1, 2, 8, 9], "they began anew");
    }

    #[test]
    fn a_few_are_named() {
        let few = |after, last| NewPids { after, last }.few(3).map(|pids| pids.collect::<Vec<_>>());
        assert_eq!(few(3, 6), Some(vec![4, 5, 6]));
        assert_eq!(few(3, 3), Some(vec![]));
        assert_eq!([few(3, 7), few(7, 2)], [None, None]);
    }

    fn moment(at: Instant, interval: Duration) -> Moment {
        Moment::new(1, at, interval, interval)
    }

    /// The ids of a stand-in for procfs, at looks that are so far apart.
    fn looks(interval: Duration, looks: &[(i32, u64)]) -> Vec<Option<(i32, i32)>> {
        let procfs = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(procfs.path().join(name), text).unwrap();
        std::fs::create_dir_all(procfs.path().join("sys/kernel")).unwrap();
        write("sys/kernel/pid_max", "32768\n".into());
        std::os::unix::fs::symlink(std::process::id().to_string(), procfs.path().join("self")).unwrap();
        write("loadavg", "0.00 0.00 0.00 1/90 102\n".into());
        write("stat", "cpu 1\nprocesses 0\n".into());
        let mut allocations = PidAllocations::new(&Host::new(procfs.path(), procfs.path()));
        let mut at = Instant::now();
        assert!(allocations.begin_before(100, &moment(at, interval)));
        let mut look = |(last, forks): &(i32, u64)| {
            write("loadavg", format!("0.00 0.00 0.00 1/90 {last}\n"));
            write("stat", format!("cpu 1\nprocesses {forks}\n"));
            at += interval;
            let new_pids = allocations.look(&moment(at, interval));
            allocations.settle();
            new_pids.map(|new_pids| (new_pids.after, new_pids.last))
        };
        looks.iter().map(&mut look).collect()
    }

    /// A process is looked for at two looks at least, and for a second.
    #[test]
    fn what_is_settled_follows_behind() {
        let second = Duration::from_secs(1);
        let ids = [(110, 0), (120, 0), (30, 0), (40, 0)];
        assert_eq!(looks(second, &ids), [Some((99, 110)), Some((99, 120)), Some((110, 30)), Some((120, 40))]);
        let ids = [(110, 0), (120, 0), (130, 0), (140, 0), (150, 0)];
        let afters = looks(second * 2 / 5, &ids).into_iter().map(|new_pids| new_pids.map(|(after, _)| after));
        assert_eq!(afters.collect::<Vec<_>>(), [Some(99); 5]);
    }

    #[test]
    fn after_a_long_time_forks_tell_whether_ids_began_anew() {
        let long = Duration::from_secs(60);
        let forks = [(110, 10), (120, 20), (130, 30), (140, 9000), (150, 9010), (160, 9020)];
        let after = |pid, last| Some((pid, last));
        assert_eq!(looks(long, &forks), [after(99, 110), after(99, 120), after(110, 130), None, None, after(140, 160)]);
    }
}
