use schemars::JsonSchema;
use serde::Serialize;

use resource_tracker_core::Section;
use resource_tracker_core::unit::Gauge;

/// The machine's memory: `memory`. All from `/proc/meminfo`, in MiB (1,048,576 bytes), but for the faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct MemoryMetrics {
    /// Memory that the kernel manages. `MemTotal`
    #[schemars(transform = Gauge("MiB"))]
    pub total_mib: u64,
    /// Memory that nobody uses. `MemFree`
    #[schemars(transform = Gauge("MiB"))]
    pub free_mib: u64,
    /// Memory that programs can still get without swapping: free and reclaimable. `MemAvailable`; on kernels before
    /// 3.14 free, buffers and cache together
    #[schemars(transform = Gauge("MiB"))]
    pub available_mib: u64,
    /// Memory in use by programs and the kernel. `MemTotal` − `MemFree` − `Buffers` − `Cached` − `SReclaimable`
    #[schemars(transform = Gauge("MiB"))]
    pub used_mib: u64,
    /// The same as a share of all memory.
    #[schemars(transform = Gauge("percent"))]
    pub used_pct: f64,
    /// Cache of raw block devices. `Buffers`
    #[schemars(transform = Gauge("MiB"))]
    pub buffers_mib: u64,
    /// Page cache and the kernel caches that can be given back. `Cached` + `SReclaimable`
    #[schemars(transform = Gauge("MiB"))]
    pub cached_mib: u64,
    /// Swap space. `SwapTotal`
    #[schemars(transform = Gauge("MiB"))]
    pub swap_total_mib: u64,
    /// Swap space in use. `SwapTotal` − `SwapFree`
    #[schemars(transform = Gauge("MiB"))]
    pub swap_used_mib: u64,
    /// The same as a share of the swap space; 0 without swap.
    #[schemars(transform = Gauge("percent"))]
    pub swap_used_pct: f64,
    /// Memory used lately, which the kernel keeps. `Active`
    #[schemars(transform = Gauge("MiB"))]
    pub active_mib: u64,
    /// Memory not used lately, which the kernel takes back first. `Inactive`
    #[schemars(transform = Gauge("MiB"))]
    pub inactive_mib: u64,
    /// Page faults of the machine that needed a disk. `/proc/vmstat`, `pgmajfault`
    #[schemars(transform = Gauge("faults/second"))]
    pub major_faults_per_sec: Option<f64>,
}

impl Section for MemoryMetrics {
    const NAME: &'static str = "memory";
}

crate::shared_section!(MemoryMetrics);
