//! The built-in sources. Linking this crate registers them; one file holds one source: its configuration, its state,
//! its parsing and its tests.

mod affinity;
mod backoff;
pub mod cgroup;
mod clock_error;
mod cloud;
mod counter_deltas;
mod cpu;
pub mod cpufreq;
mod derived;
mod disk;
pub mod disk_discard;
mod energy;
pub mod fork_mark;
#[doc(hidden)]
pub mod fuzzing;
mod gpu;
mod host;
pub mod job;
mod marks;
mod memory;
mod mountinfo;
mod network;
mod perf;
mod pid_namespace;
mod pressure;
mod process;
mod process_count;
mod procfile;
mod run;
pub mod run_queue;
pub mod tcp;

pub use affinity::AffinityConfig;
pub use cgroup::CgroupConfig;
pub use clock_error::clock_error;
pub use cloud::CloudConfig;
pub use cpu::CpuConfig;
pub use disk::DiskConfig;
pub use energy::EnergyConfig;
pub use gpu::{AmdConfig, DrmConfig, NvidiaConfig};
pub use host::{HostConfig, HostField};
pub use job::{JobObserver, TrackedJob};
pub use marks::{MARK_DESCRIPTORS, MarkLine, MarkSource};
pub use memory::MemoryConfig;
pub use network::{JobNetworkConfig, NetworkConfig};
pub use perf::PerfConfig;
pub use pid_namespace::{child_pid, own_pid, shows_own_pid_namespace};
pub use pressure::PressureConfig;
pub use process::ProcessConfig;
pub use run::{OutcomeSource, RunEnd, RunSource};
