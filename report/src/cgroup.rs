//! What the cgroup says of the job's limits.

use resource_tracker_core::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::CgroupFields;
use crate::readable::Readable;
use crate::statistics::{Level, Total};

/// Sums over the cgroup's samples.
#[derive(Default)]
pub(crate) struct Cgroup {
    last: Option<CgroupFields>,
    throttled: Total<f64>,
    periods: Total<u64>,
    throttled_periods: Total<u64>,
    /// Of versions that did not tell periods.
    throttled_pct: Level,
    oom_kills: Total<u64>,
    read: Total<u64>,
    written: Total<u64>,
    cpu_pressure: Option<f64>,
    memory_pressure: Option<f64>,
    io_pressure: Option<f64>,
}

impl Cgroup {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        let Some(cgroup) = readable.first_fields::<CgroupFields>(sample) else { return };
        self.throttled.add(cgroup.cpu_throttled_secs);
        self.periods.add(cgroup.cpu_periods);
        self.throttled_periods.add(cgroup.cpu_throttled_periods);
        self.throttled_pct.add(cgroup.cpu_throttled_pct, secs);
        self.oom_kills.add(cgroup.oom_kills);
        self.read.add(cgroup.io_read_bytes);
        self.written.add(cgroup.io_write_bytes);
        // Samples have the seconds of their interval, or only the last one has those of the whole run: both add up.
        let add = |sum: &mut Option<f64>, secs: Option<f64>| {
            if let Some(secs) = secs {
                *sum = Some(sum.unwrap_or(0.0) + secs);
            }
        };
        add(&mut self.cpu_pressure, cgroup.cpu_pressure_some_secs);
        add(&mut self.memory_pressure, cgroup.memory_pressure_some_secs);
        add(&mut self.io_pressure, cgroup.io_pressure_some_secs);
        self.last = Some(cgroup);
    }

    /// `is_own`: whether the cgroup was made for the job. `None` when no sample has a cgroup.
    pub(crate) fn summary(&self, is_own: bool) -> Option<CgroupSummary> {
        let last = self.last.as_ref()?;
        Some(CgroupSummary {
            path: last.path.clone(),
            is_own,
            cpu_limit_cores: last.cpu_limit_cores,
            memory_limit_mib: last.memory_limit_mib,
            memory_high_mib: last.memory_high_mib,
            memory_peak_mib: last.memory_peak_mib,
            cpu_throttled_pct: self.throttled_pct(),
            cpu_throttled_secs: self.throttled.sum(),
            oom_kills: self.oom_kills.sum(),
            io_read_bytes: self.read.sum(),
            io_write_bytes: self.written.sum(),
            cpu_pressure_secs: self.cpu_pressure,
            memory_pressure_secs: self.memory_pressure,
            io_pressure_secs: self.io_pressure,
        })
    }

    fn throttled_pct(&self) -> Option<f64> {
        match self.periods.sum().zip(self.throttled_periods.sum()) {
            // Nothing is told where the quota is that of a group above.
            Some((0, _)) => None,
            Some((periods, throttled)) => Some(100.0 * throttled as f64 / periods as f64),
            None => self.throttled_pct.mean(),
        }
    }
}

/// The cgroup that the job was in, over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CgroupSummary {
    /// Its path. Last `path`
    pub path: Option<String>,
    /// Whether one was made for the job: waiting times are the job's then, and else those of all that is in the cgroup.
    pub is_own: bool,
    /// Cores that it may use. Last `cpu_limit_cores`
    pub cpu_limit_cores: Option<f64>,
    /// Memory that it may use. Last `memory_limit_mib`
    pub memory_limit_mib: Option<f64>,
    /// Memory above which it is slowed down. Last `memory_high_mib`
    pub memory_high_mib: Option<f64>,
    /// The most memory that it ever used, page cache included. Last `memory_peak_mib`
    pub memory_peak_mib: Option<f64>,
    /// Share of periods in which it ran out of its quota. `cpu_throttled_periods` of `cpu_periods`; the mean of `cpu_throttled_pct` of older
    /// versions
    pub cpu_throttled_pct: Option<f64>,
    /// Time in which its threads were held back by the quota, added up over the CPUs. Sum of `cpu_throttled_secs`
    pub cpu_throttled_secs: Option<f64>,
    /// Processes that were killed because memory ran out. Sum of `oom_kills`
    pub oom_kills: Option<u64>,
    /// Bytes read from storage. Sum of `io_read_bytes`
    pub io_read_bytes: Option<u64>,
    /// Bytes sent to storage. Sum of `io_write_bytes`
    pub io_write_bytes: Option<u64>,
    /// Time in which a task of it waited for a CPU. Sum of `cpu_pressure_some_secs`
    pub cpu_pressure_secs: Option<f64>,
    /// Time in which a task of it waited for memory. Sum of `memory_pressure_some_secs`
    pub memory_pressure_secs: Option<f64>,
    /// Time in which a task of it waited for storage. Sum of `io_pressure_some_secs`
    pub io_pressure_secs: Option<f64>,
}
