use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge, Info};

/// The machine's processors: `cpu`. The kernel counts their time in ticks of 1 to 10 ms: where nothing else is said, what an
/// interval of a few of them has is coarse. What a counter had that began anew in an interval counts as 0 there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuMetrics {
    /// Cores in use: 0 to the number of logical CPUs, and no percentage, in spite of the name, which the specification
    /// gives it. 1.5 is one core and a half. The share of all time that was neither idle nor iowait, times the number of
    /// CPUs. Not clamped. Time that the hypervisor gave to others is in it, and so is that of interrupts. Coarse over an
    /// interval of a few ticks of the kernel, where `cores_used` is not. `/proc/stat`, line `cpu`
    #[schemars(transform = Gauge("cores"))]
    pub utilization_pct: f64,
    /// Cores in use by programs, the kernel and interrupts, without `steal_cores`. Over the interval, or over 100 ms where
    /// that is shorter, because the kernel counts in ticks. `/proc/stat`, line `cpu`
    #[schemars(transform = Gauge("cores"))]
    pub cores_used: f64,
    /// `utilization_pct` of each logical CPU, in percent of that CPU, in the order of `per_core_cpus`. Coarse over an interval of
    /// a few ticks. `/proc/stat`, lines `cpuN`
    #[schemars(transform = Gauge("percent").named("system.cpu.utilization", &[]).of_each("per_core_cpus", "cpu.logical_number"))]
    pub per_core_pct: Vec<f64>,
    /// Which CPUs they are, those that are online, as the kernel writes lists: `0-3,6`. `/proc/stat`, lines `cpuN`
    #[schemars(transform = Info)]
    pub per_core_cpus: String,
    /// CPU time in user mode, nice time included. Guest time is inside. In whole ticks of the kernel. `/proc/stat`, `user` +
    /// `nice`
    #[schemars(transform = Delta("seconds").named("system.cpu.time", &[("cpu.mode", "user")]))]
    pub utime_secs: f64,
    /// CPU time in the kernel. In whole ticks of it. `/proc/stat`, `system`
    #[schemars(transform = Delta("seconds").named("system.cpu.time", &[("cpu.mode", "system")]))]
    pub stime_secs: f64,
    /// Cores that idled while a task of theirs waited for a disk. Coarse over an interval of a few ticks. `/proc/stat`, `iowait`
    #[schemars(transform = Gauge("cores"))]
    pub iowait_cores: f64,
    /// Cores' worth of time that the hypervisor gave to others. Coarse over an interval of a few ticks. `/proc/stat`, `steal`
    #[schemars(transform = Gauge("cores"))]
    pub steal_cores: f64,
    /// Cores that served interrupts; over 100 ms at least, as `cores_used`. 0 where the kernel does not count it apart.
    /// `/proc/stat`, `irq`
    #[schemars(transform = Gauge("cores"))]
    pub irq_cores: f64,
    /// Cores that did what interrupts had left to be done, such as the work of the network; over 100 ms at least, as
    /// `cores_used`. `/proc/stat`, `softirq`
    #[schemars(transform = Gauge("cores"))]
    pub softirq_cores: f64,
    /// Cores that ran virtual machines, over 100 ms at least, as `cores_used`; inside `utime_secs` as well. `/proc/stat`,
    /// `guest` + `guest_nice`
    #[schemars(transform = Gauge("cores"))]
    pub guest_cores: f64,
    /// Processes that exist. Numeric directories in `/proc`
    #[schemars(transform = Gauge("processes").summed("system.process.count", &[]))]
    pub process_count: u32,
    /// Tasks that run or want to, without the tracker's thread that reads it. `/proc/stat`, `procs_running` − 1
    #[schemars(transform = Gauge("tasks"))]
    pub processes_running: u32,
    /// Tasks that wait for a disk, uninterruptibly. `/proc/stat`, `procs_blocked`
    #[schemars(transform = Gauge("tasks"))]
    pub processes_blocked: u32,
    /// Switches from one task to another. 0 where the kernel does not count them. `/proc/stat`, `ctxt`
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
