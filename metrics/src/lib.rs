//! The sections of the built-in sources of resource-tracker, as types: for the sources that write them, and for sinks and
//! programs that read them from a [`Sample`](resource_tracker_core::Sample).
//!
//! A field's doc comment is its description in the schema, and its source is the last thing the comment names.
//! `Option` is `null` where the machine does not tell. Deltas were counted in [`Sample::elapsed`]; a rate is over the
//! time between the two readings of its source.
//!
//! The structs get new fields in minor releases: who takes one apart ends the pattern with `..`, who makes one begins with its
//! default. They are not `#[non_exhaustive]`, so that a field which no source fills does not compile.
//!
//! [`Sample::elapsed`]: resource_tracker_core::Sample::elapsed

mod cgroup;
mod cloud;
mod cpu;
pub mod cpu_list;
mod cpufreq;
mod disk;
mod disk_discard;
mod energy;
mod gpu;
mod host;
mod job_limits;
mod job_network;
mod lenient;
mod mark;
mod memory;
mod network;
mod outcome;
mod perf;
mod pressure;
mod process;
mod run;
mod run_queue;
mod tcp;
mod top_processes;

pub use cgroup::CgroupMetrics;
pub use cloud::CloudMetrics;
pub use cpu::CpuMetrics;
pub use cpufreq::CpufreqMetrics;
pub use disk::{DiskKind, DiskMetrics, DiskMountMetrics, DiskType, Disks, full_pct};
pub use disk_discard::{DiskDiscardMetrics, DiskDiscards};
pub use energy::{Energy, EnergyMetrics};
pub use gpu::{GpuMetrics, GpuProcess, Gpus, NvLinkMetrics};
pub use host::{HostAllocation, HostMetrics};
pub use job_limits::JobLimitMetrics;
pub use job_network::JobNetworkMetrics;
pub use mark::{Mark, MarkKind, Marks};
pub use memory::MemoryMetrics;
pub use network::{NetworkMetrics, Networks};
pub use outcome::OutcomeMetrics;
pub use perf::PerfMetrics;
pub use pressure::{PressureMetrics, ResourcePressure, Stall};
pub use process::{CounterAccounting, JobGpuMetrics, PeakSource, ProcessAccounting, ProcessMetrics};
pub use run::{RunClock, RunGroup, RunLabels, RunMetrics};
pub use run_queue::RunQueueMetrics;
pub use tcp::TcpMetrics;
pub use top_processes::{TopProcess, TopProcesses};

/// Registers a section of this crate.
macro_rules! shared_section {
    ($type:ty) => {
        resource_tracker_core::register_section!(entry resource_tracker_core::SectionEntry::new::<$type>().shared());
    };
}
use shared_section;

/// A section that is a list of `$item`, which its sources fill in place.
macro_rules! list_section {
    ($(#[$doc:meta])* $list:ident($item:ty), $name:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $list(pub Vec<$item>);

        impl resource_tracker_core::Section for $list {
            const NAME: &'static str = $name;
        }

        crate::shared_section!($list);
    };
}
use list_section;
