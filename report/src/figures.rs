//! The figures of a summary by name, for comparisons and budgets.

use crate::summary::Summary;
use crate::units::{bytes, memory, time};

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// MiB of memory.
    Mebibytes,
    /// Bytes that were transferred.
    Bytes,
    /// Something that is counted, or has no unit.
    Count,
    /// Joules.
    Joules,
}

impl Unit {
    /// What it is called.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Mebibytes => "MiB",
            Self::Bytes => "bytes",
            Self::Joules => "joules",
            Self::Count => "",
        }
    }

    /// The value as people read it.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => time(value),
            Self::Mebibytes => memory(value),
            Self::Bytes => bytes(value),
            Self::Joules => format!("{value:.0} J"),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.2}"),
        }
    }
}

/// A figure that has a name.
#[derive(Debug, Clone, Copy)]
pub struct NamedFigure {
    /// Its name, as in `peak_memory > 2GiB`.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether it is a sum over the whole run, which is unknown if a part of the run is missing.
    is_total: bool,
    /// Reads it from a summary.
    of: fn(&Summary) -> Option<f64>,
}

impl NamedFigure {
    /// Its value. `None` where the summary does not have it, or where it is a sum and a part of the run is missing.
    pub fn of(&self, run: &Summary) -> Option<f64> {
        (self.of)(run).filter(|_| run.is_whole || !self.is_total)
    }
}

/// The values of all figures of a run, which is less to keep than its summary.
#[derive(Debug, Clone)]
pub struct Figures([Option<f64>; FIGURES.len()]);

impl Figures {
    /// The figures of a run.
    pub fn of(run: &Summary) -> Self {
        Self(FIGURES.map(|figure| figure.of(run)))
    }

    /// The value of the figure at this place in [`FIGURES`].
    pub(crate) fn get(&self, place: usize) -> Option<f64> {
        *self.0.get(place)?
    }
}

const fn figure(name: &'static str, unit: Unit, of: fn(&Summary) -> Option<f64>) -> NamedFigure {
    NamedFigure { name, unit, is_total: false, of }
}

const fn total(name: &'static str, unit: Unit, of: fn(&Summary) -> Option<f64>) -> NamedFigure {
    NamedFigure { name, unit, is_total: true, of }
}

/// All of them, in the order in which they are shown.
pub const FIGURES: [NamedFigure; 19] = [
    // A recording that has the end of the run has this, whatever else is missing.
    figure("wall_time", Unit::Seconds, |run| {
        run.known_wall_secs().or_else(|| run.is_whole.then_some(run.times.sampled_secs))
    }),
    total("cpu_time", Unit::Seconds, |run| run.job.as_ref()?.cpu_secs()),
    total("user_time", Unit::Seconds, |run| run.job.as_ref()?.user_secs),
    total("system_time", Unit::Seconds, |run| run.job.as_ref()?.system_secs),
    figure("mean_cores", Unit::Count, |run| Some(run.job.as_ref()?.cores?.mean)),
    figure("peak_cores", Unit::Count, |run| Some(run.job.as_ref()?.cores?.peak)),
    figure("peak_memory", Unit::Mebibytes, |run| run.job.as_ref()?.peak_memory_mib),
    figure("mean_memory", Unit::Mebibytes, |run| Some(run.job.as_ref()?.memory_mib?.mean)),
    total("disk_read", Unit::Bytes, |run| Some(run.job.as_ref()?.disk_read_bytes? as f64)),
    total("disk_written", Unit::Bytes, |run| Some(run.job.as_ref()?.disk_write_bytes? as f64)),
    total("major_faults", Unit::Count, |run| Some(run.job.as_ref()?.major_faults? as f64)),
    total("context_switches", Unit::Count, |run| {
        let job = run.job.as_ref()?;
        Some(job.voluntary_context_switches? as f64 + job.involuntary_context_switches? as f64)
    }),
    figure("peak_processes", Unit::Count, |run| run.job.as_ref()?.peak_processes),
    total("throttled_time", Unit::Seconds, |run| run.cgroup.as_ref()?.cpu_throttled_secs),
    total("oom_kills", Unit::Count, |run| Some(run.cgroup.as_ref()?.oom_kills? as f64)),
    figure("mean_gpus", Unit::Count, |run| Some(run.job.as_ref()?.gpus?.mean)),
    figure("peak_gpu_memory", Unit::Mebibytes, |run| Some(run.job.as_ref()?.gpu_memory_mib?.peak)),
    total("gpu_energy", Unit::Joules, |run| {
        // A part of a GPU has no energy of its own.
        let whole: Vec<_> = run.gpus.iter().filter(|gpu| gpu.parent_uuid.is_none()).collect();
        let joules: Option<Vec<f64>> = whole.iter().map(|gpu| gpu.energy_joules).collect();
        joules.filter(|joules| !joules.is_empty()).map(|joules| joules.iter().sum())
    }),
    figure("exit_code", Unit::Count, |run| run.outcome.as_ref()?.exit_code.map(f64::from)),
];
