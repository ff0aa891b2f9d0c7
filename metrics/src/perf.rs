use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge, Info};

/// What the CPU and the scheduler counted for the job, through `perf_event_open(2)` on its root with inheritance. Counters
/// that share a hardware register are scaled to the whole time. A counter that is not there (in a virtual machine,
/// or for lack of permission) is null. All are in an interval in which a part of the job ran uncounted: of a program that
/// takes on the rights of its file's owner, as `sudo` does, the kernel ends the counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerfMetrics {
    /// Whether work in the kernel is left out, because `kernel.perf_event_paranoid` does not let it be counted.
    #[schemars(transform = Info)]
    pub user_only: bool,
    /// What counts the events of the CPU, where its cores are of several kinds: `cpu_atom`, `cpu_core`. Figures are sums over
    /// them. `/sys/bus/event_source/devices`
    #[schemars(transform = Info)]
    pub pmus: Vec<String>,
    /// Instructions that were retired. `PERF_COUNT_HW_INSTRUCTIONS`
    #[schemars(transform = Delta("instructions"))]
    pub instructions: Option<u64>,
    /// CPU cycles. `PERF_COUNT_HW_CPU_CYCLES`
    #[schemars(transform = Delta("cycles"))]
    pub cycles: Option<u64>,
    /// Instructions per cycle, of the same cycles: the two counters are in one group.
    #[schemars(transform = Gauge("instructions/cycle"))]
    pub ipc: Option<f64>,
    /// Accesses of the last cache before memory. `PERF_COUNT_HW_CACHE_REFERENCES`
    #[schemars(transform = Delta("accesses"))]
    pub cache_references: Option<u64>,
    /// Accesses that it did not have. `PERF_COUNT_HW_CACHE_MISSES`
    #[schemars(transform = Delta("misses"))]
    pub cache_misses: Option<u64>,
    /// Reads of the last-level cache. `PERF_COUNT_HW_CACHE_LL`
    #[schemars(transform = Delta("accesses"))]
    pub llc_loads: Option<u64>,
    /// Reads that it did not have. `PERF_COUNT_HW_CACHE_LL`, misses
    #[schemars(transform = Delta("misses"))]
    pub llc_load_misses: Option<u64>,
    /// Branches that were retired. `PERF_COUNT_HW_BRANCH_INSTRUCTIONS`
    #[schemars(transform = Delta("instructions"))]
    pub branches: Option<u64>,
    /// Branches that were predicted wrong. `PERF_COUNT_HW_BRANCH_MISSES`
    #[schemars(transform = Delta("misses"))]
    pub branch_misses: Option<u64>,
    /// Reads whose address was not in the data TLB. `PERF_COUNT_HW_CACHE_DTLB`, misses
    #[schemars(transform = Delta("misses"))]
    pub dtlb_load_misses: Option<u64>,
    /// CPU time, with what the hypervisor gave to others meanwhile, which `process_utime_secs` is without.
    /// `PERF_COUNT_SW_TASK_CLOCK`
    #[schemars(transform = Delta("seconds"))]
    pub task_clock_secs: Option<f64>,
    /// Times that a thread left its CPU. `PERF_COUNT_SW_CONTEXT_SWITCHES`
    #[schemars(transform = Delta("switches"))]
    pub context_switches: Option<u64>,
    /// Times that a thread went on on another CPU. `PERF_COUNT_SW_CPU_MIGRATIONS`
    #[schemars(transform = Delta("migrations"))]
    pub cpu_migrations: Option<u64>,
    /// Page faults, with and without a disk. `PERF_COUNT_SW_PAGE_FAULTS`
    #[schemars(transform = Delta("faults"))]
    pub page_faults: Option<u64>,
}

impl Section for PerfMetrics {
    const NAME: &'static str = "perf";
}

crate::shared_section!(PerfMetrics);
