//! A tick on its way to another thread, or another process.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::observer::ObservedJob;
use crate::source::Tick;

/// A tick without what the sampler only lends.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OwnedTick {
    pub(crate) number: u64,
    pub(crate) elapsed: Duration,
    interval: Duration,
    last: bool,
    missed: u64,
    /// The root of the job, whether the tracker has started it, and its processes.
    job: Option<(i32, bool, Vec<i32>)>,
}

impl OwnedTick {
    pub(crate) fn of(tick: &Tick) -> Self {
        Self {
            number: tick.number,
            elapsed: tick.elapsed,
            interval: tick.interval,
            last: tick.last,
            missed: tick.missed,
            job: tick.job.map(|job| (job.root, job.spawned, job.members.to_vec())),
        }
    }

    /// The tick, with the present time.
    pub(crate) fn lend(&self) -> Tick<'_> {
        let job = self.job.as_ref().map(|(root, spawned, pids)| ObservedJob::new(*root, *spawned, pids));
        let tick = Tick::new(self.number, Instant::now(), self.elapsed, self.interval);
        Tick { last: self.last, missed: self.missed, job, ..tick }
    }
}
