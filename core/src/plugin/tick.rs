//! A tick on its way to a plugin: to another thread, to another process, and as the contract has it.

use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::abi::{RT_TICK_LAST, RT_TICK_SPAWNED, TickTable};
use crate::observer::ObservedJob;
use crate::source::Tick;

/// A tick without what the sampler only lends.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct OwnedTick {
    pub(super) number: u64,
    pub(super) elapsed: Duration,
    interval: Duration,
    last: bool,
    /// Its root, whether the tracker has started it, and its processes.
    job: Option<(i32, bool, Vec<i32>)>,
}

impl OwnedTick {
    pub(super) fn of(tick: &Tick) -> Self {
        Self {
            number: tick.number,
            elapsed: tick.elapsed,
            interval: tick.interval,
            last: tick.last,
            job: tick.job.map(|job| (job.root, job.spawned, job.members.to_vec())),
        }
    }

    /// The tick as it is now.
    pub(super) fn lend(&self) -> Tick<'_> {
        let job = self.job.as_ref().map(|(root, spawned, pids)| ObservedJob::new(*root, *spawned, pids));
        Tick { last: self.last, job, ..Tick::new(self.number, Instant::now(), self.elapsed, self.interval) }
    }
}

impl TickTable {
    /// The table of this tick, whose list of processes it points to.
    pub(super) fn of(tick: &Tick) -> Self {
        let pids = tick.job.map_or(&[][..], |job| job.members);
        let spawned = if tick.job.is_some_and(|job| job.spawned) { RT_TICK_SPAWNED } else { 0 };
        Self {
            size: size_of::<Self>(),
            number: tick.number,
            timestamp_ns: nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            elapsed_ns: nanos(tick.elapsed),
            flags: spawned | if tick.last { RT_TICK_LAST } else { 0 },
            root_pid: tick.job.map_or(0, |job| job.root),
            pids: pids.as_ptr(),
            pid_count: pids.len(),
            interval_ns: nanos(tick.interval),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
