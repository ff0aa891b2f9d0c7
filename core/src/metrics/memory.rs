use schemars::JsonSchema;
use serde::Serialize;

use crate::sample::Section;

/// The machine's memory: `memory`. All from `/proc/meminfo`, in MiB (1,048,576 bytes), but for the faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct MemoryMetrics {
    /// Memory that the kernel manages. `MemTotal`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub total_mib: u64,
    /// Memory that nobody uses. `MemFree`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub free_mib: u64,
    /// Memory that programs can still get without swapping: free and reclaimable. `MemAvailable`; on kernels before
    /// 3.14 free, buffers and cache together
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub available_mib: u64,
    /// Memory in use by programs and the kernel. `MemTotal` − `MemFree` − `Buffers` − `Cached` − `SReclaimable`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub used_mib: u64,
    /// The same as a share of all memory.
    #[schemars(extend("unit" = "percent", "kind" = "gauge"))]
    pub used_pct: f64,
    /// Cache of raw block devices. `Buffers`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub buffers_mib: u64,
    /// Page cache and the kernel caches that can be given back. `Cached` + `SReclaimable`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub cached_mib: u64,
    /// Swap space. `SwapTotal`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub swap_total_mib: u64,
    /// Swap space in use. `SwapTotal` − `SwapFree`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub swap_used_mib: u64,
    /// The same as a share of the swap space; 0 without swap.
    #[schemars(extend("unit" = "percent", "kind" = "gauge"))]
    pub swap_used_pct: f64,
    /// Memory used lately, which the kernel keeps. `Active`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub active_mib: u64,
    /// Memory not used lately, which the kernel takes back first. `Inactive`
    #[schemars(extend("unit" = "MiB", "kind" = "gauge"))]
    pub inactive_mib: u64,
    /// Page faults of the machine that needed a disk. `/proc/vmstat`, `pgmajfault`
    #[schemars(extend("unit" = "faults/second", "kind" = "gauge"))]
    pub major_faults_per_sec: Option<f64>,
}

impl Section for MemoryMetrics {
    const NAME: &'static str = "memory";
}

crate::register_section!(MemoryMetrics);
