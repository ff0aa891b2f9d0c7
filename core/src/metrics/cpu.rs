use schemars::JsonSchema;
use serde::Serialize;

use crate::sample::Section;

/// The machine's processors: `cpu`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuMetrics {
    /// Cores in use, 0 to the number of logical CPUs: the share of all time that was neither idle nor iowait, times
    /// the number of CPUs. Not clamped. `/proc/stat`, line `cpu`
    #[schemars(extend("unit" = "cores", "kind" = "gauge"))]
    pub utilization_pct: f64,
    /// The same for each logical CPU, in percent of that CPU. `/proc/stat`, lines `cpuN`
    #[schemars(extend("unit" = "percent", "kind" = "gauge"))]
    pub per_core_pct: Vec<f64>,
    /// CPU time in user mode, nice time included. Guest time is inside. `/proc/stat`, `user` + `nice`
    #[schemars(extend("unit" = "seconds", "kind" = "delta"))]
    pub utime_secs: f64,
    /// CPU time in the kernel. `/proc/stat`, `system`
    #[schemars(extend("unit" = "seconds", "kind" = "delta"))]
    pub stime_secs: f64,
    /// Cores that idled while a task of theirs waited for a disk. `/proc/stat`, `iowait`
    #[schemars(extend("unit" = "cores", "kind" = "gauge"))]
    pub iowait_cores: f64,
    /// Cores' worth of time that the hypervisor gave to others. `/proc/stat`, `steal`
    #[schemars(extend("unit" = "cores", "kind" = "gauge"))]
    pub steal_cores: f64,
    /// Processes that exist. Numeric directories in `/proc`
    #[schemars(extend("unit" = "processes", "kind" = "gauge"))]
    pub process_count: u32,
    /// Tasks that run or want to. `/proc/stat`, `procs_running`
    #[schemars(extend("unit" = "tasks", "kind" = "gauge"))]
    pub processes_running: u32,
    /// Tasks that wait for a disk, uninterruptibly. `/proc/stat`, `procs_blocked`
    #[schemars(extend("unit" = "tasks", "kind" = "gauge"))]
    pub processes_blocked: u32,
    /// Switches from one task to another. `/proc/stat`, `ctxt`
    #[schemars(extend("unit" = "switches/second", "kind" = "gauge"))]
    pub context_switches_per_sec: f64,
    /// Processes and threads that were started. `/proc/stat`, `processes`
    #[schemars(extend("unit" = "tasks/second", "kind" = "gauge"))]
    pub forks_per_sec: f64,
    /// Load average over 1 minute. `/proc/loadavg`
    #[schemars(extend("unit" = "tasks", "kind" = "gauge"))]
    pub load_1m: Option<f64>,
    /// Load average over 5 minutes. `/proc/loadavg`
    #[schemars(extend("unit" = "tasks", "kind" = "gauge"))]
    pub load_5m: Option<f64>,
    /// Load average over 15 minutes. `/proc/loadavg`
    #[schemars(extend("unit" = "tasks", "kind" = "gauge"))]
    pub load_15m: Option<f64>,
}

impl Section for CpuMetrics {
    const NAME: &'static str = "cpu";
}

crate::register_section!(CpuMetrics);
