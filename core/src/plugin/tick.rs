//! A tick as the contract has it.

use std::time::{Duration, SystemTime};

use super::abi::{RT_TICK_LAST, RT_TICK_SPAWNED, TickTable};
use crate::source::Tick;

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
