use schemars::JsonSchema;
use serde::Serialize;

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge};

/// The machine's processors: `cpu`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuMetrics {
    /// Cores in use: 0 to the number of logical CPUs, and no percentage, in spite of the name, which the specification
    /// gives it. 1.5 is one core and a half. The share of all time that was neither idle nor iowait, times the number of
    /// CPUs. Not clamped. `/proc/stat`, line `cpu`
    #[schemars(transform = Gauge("cores"))]
    pub utilization_pct: f64,
    /// The same for each logical CPU, in percent of that CPU. `/proc/stat`, lines `cpuN`
    #[schemars(transform = Gauge("percent"))]
    pub per_core_pct: Vec<f64>,
    /// CPU time in user mode, nice time included. Guest time is inside. `/proc/stat`, `user` + `nice`
    #[schemars(transform = Delta("seconds"))]
    pub utime_secs: f64,
    /// CPU time in the kernel. `/proc/stat`, `system`
    #[schemars(transform = Delta("seconds"))]
    pub stime_secs: f64,
    /// Cores that idled while a task of theirs waited for a disk. `/proc/stat`, `iowait`
    #[schemars(transform = Gauge("cores"))]
    pub iowait_cores: f64,
    /// Cores' worth of time that the hypervisor gave to others. `/proc/stat`, `steal`
    #[schemars(transform = Gauge("cores"))]
    pub steal_cores: f64,
    /// Processes that exist. Numeric directories in `/proc`
    #[schemars(transform = Gauge("processes"))]
    pub process_count: u32,
    /// Tasks that run or want to. `/proc/stat`, `procs_running`
    #[schemars(transform = Gauge("tasks"))]
    pub processes_running: u32,
    /// Tasks that wait for a disk, uninterruptibly. `/proc/stat`, `procs_blocked`
    #[schemars(transform = Gauge("tasks"))]
    pub processes_blocked: u32,
    /// Switches from one task to another. `/proc/stat`, `ctxt`
    #[schemars(transform = Gauge("switches/second"))]
    pub context_switches_per_sec: f64,
    /// Processes and threads that were started. `/proc/stat`, `processes`
    #[schemars(transform = Gauge("tasks/second"))]
    pub forks_per_sec: f64,
    /// Load average over 1 minute. `/proc/loadavg`
    #[schemars(transform = Gauge("tasks"))]
    pub load_1m: Option<f64>,
    /// Load average over 5 minutes. `/proc/loadavg`
    #[schemars(transform = Gauge("tasks"))]
    pub load_5m: Option<f64>,
    /// Load average over 15 minutes. `/proc/loadavg`
    #[schemars(transform = Gauge("tasks"))]
    pub load_15m: Option<f64>,
}

impl Section for CpuMetrics {
    const NAME: &'static str = "cpu";
}

crate::shared_section!(CpuMetrics);
