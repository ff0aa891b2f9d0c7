use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::Gauge;

/// The machine's memory: `memory`. All from `/proc/meminfo`, in MiB (1,048,576 bytes), but for the faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryMetrics {
    /// Memory that the kernel manages. `MemTotal`
    #[schemars(transform = Gauge("MiB").summed("system.memory.limit", &[]))]
    pub total_mib: u64,
    /// Memory that nobody uses. `MemFree`
    #[schemars(transform = Gauge("MiB").summed("system.memory.usage", &[("system.memory.state", "free")]))]
    pub free_mib: u64,
    /// Memory that programs can still get without swapping: free and reclaimable. `MemAvailable`; on kernels before
    /// 3.14 free, buffers and cache together
    #[schemars(transform = Gauge("MiB").summed("system.memory.linux.available", &[]))]
    pub available_mib: u64,
    /// Memory in use by programs and the kernel, as the specification counts it: files in memory (`shared_mib`, such as
    /// those in `/dev/shm`) are not in it, although nobody else can have theirs. `unavailable_mib` has them.
    /// `MemTotal` − `MemFree` − `Buffers` − `Cached` − `SReclaimable`
    #[schemars(transform = Gauge("MiB").summed("system.memory.usage", &[("system.memory.state", "used")]))]
    pub used_mib: u64,
    /// The same as a share of all memory.
    #[schemars(transform = Gauge("percent").named("system.memory.utilization", &[("system.memory.state", "used")]))]
    pub used_pct: f64,
    /// Memory that programs cannot get: what `free` of procps 4 calls used. `MemTotal` − `MemAvailable`
    #[schemars(transform = Gauge("MiB"))]
    pub unavailable_mib: u64,
    /// Memory that programs share, and files in memory: tmpfs, `/dev/shm`. It is inside `cached_mib`, and cannot be given back.
    /// `Shmem`
    #[schemars(transform = Gauge("MiB").summed("system.memory.linux.shared", &[]))]
    pub shared_mib: u64,
    /// Cache of raw block devices. `Buffers`
    #[schemars(transform = Gauge("MiB").summed("system.memory.usage", &[("system.memory.state", "buffers")]))]
    pub buffers_mib: u64,
    /// Page cache and the kernel caches that can be given back. `Cached` + `SReclaimable`
    #[schemars(transform = Gauge("MiB").summed("system.memory.usage", &[("system.memory.state", "cached")]))]
    pub cached_mib: u64,
    /// Swap space. `SwapTotal`
    #[schemars(transform = Gauge("MiB"))]
    pub swap_total_mib: u64,
    /// Swap space in use. `SwapTotal` − `SwapFree`
    #[schemars(transform = Gauge("MiB").summed("system.paging.usage", &[("system.paging.state", "used")]))]
    pub swap_used_mib: u64,
    /// The same as a share of the swap space; 0 without swap.
    #[schemars(transform = Gauge("percent").named("system.paging.utilization", &[("system.paging.state", "used")]))]
    pub swap_used_pct: f64,
    /// Memory used lately, which the kernel keeps. `Active`
    #[schemars(transform = Gauge("MiB"))]
    pub active_mib: u64,
    /// Memory not used lately, which the kernel takes back first. `Inactive`
    #[schemars(transform = Gauge("MiB"))]
    pub inactive_mib: u64,
    /// Huge pages that were set aside, used or not: nothing else can have that memory. `HugePages_Total` × `Hugepagesize`
    #[schemars(transform = Gauge("MiB"))]
    pub hugepages_total_mib: u64,
    /// Those of them that nobody has. `HugePages_Free` × `Hugepagesize`
    #[schemars(transform = Gauge("MiB"))]
    pub hugepages_free_mib: u64,
    /// Those of the free ones that were promised to somebody. `HugePages_Rsvd` × `Hugepagesize`
    #[schemars(transform = Gauge("MiB"))]
    pub hugepages_reserved_mib: u64,
    /// Memory that the compressed swap cache takes. Null before kernel 5.19 and without zswap. `Zswap`
    #[schemars(transform = Gauge("MiB"))]
    pub zswap_mib: Option<u64>,
    /// The cache of ZFS, which counts as used here and can be given back. Null without ZFS.
    /// `/proc/spl/kstat/zfs/arcstats`, `size`
    #[schemars(transform = Gauge("MiB"))]
    pub zfs_arc_mib: Option<u64>,
    /// Page faults of the machine that needed a disk. Null when the counter began anew. `/proc/vmstat`, `pgmajfault`
    #[schemars(transform = Gauge("faults/second"))]
    pub major_faults_per_sec: Option<f64>,
}

impl Section for MemoryMetrics {
    const NAME: &'static str = "memory";
}

crate::shared_section!(MemoryMetrics);
