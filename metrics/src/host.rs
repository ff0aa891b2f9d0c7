use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Gauge, Info};

use crate::lenient::known;

/// The machine itself: `host`. It is in the first sample, or as soon as the GPUs are known, but for `host_allocation`; a field that the user suppresses is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostMetrics {
    /// Identifier of the machine. On AWS the instance's id, `/sys/class/dmi/id/board_asset_tag`; elsewhere
    /// `/etc/machine-id`
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Name of the machine in the network. `gethostname`
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// First IPv4 address that is not loopback. `getifaddrs`
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
    /// Whether the job has the machine for itself, by its share of what the machine used over the run. It is in the last
    /// sample only.
    #[schemars(transform = Info)]
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub host_allocation: Option<HostAllocation>,
    /// Logical CPUs. `processor` lines of `/proc/cpuinfo`
    #[schemars(transform = Gauge("CPUs").summed("system.cpu.logical.count", &[]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_vcpus: Option<u32>,
    /// Model of the CPU. `model name` of `/proc/cpuinfo`
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cpu_model: Option<String>,
    /// Memory that the kernel manages. `MemTotal` of `/proc/meminfo`
    #[schemars(transform = Gauge("MiB"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory_mib: Option<u64>,
    /// Model of the first GPU. `gpu`, `name`
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_gpu_model: Option<String>,
    /// Number of GPUs. `gpu`
    #[schemars(transform = Gauge("GPUs"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_gpu_count: Option<u32>,
    /// Memory of all GPUs together. `gpu`, `vram_total_bytes`
    #[schemars(transform = Gauge("MiB"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_gpu_vram_mib: Option<u64>,
    /// Capacity of all drives together, in GB (10⁹ bytes): block devices that stand on no other, a drive with several paths
    /// once. So both disks of a mirror are in it. `/sys/block/*/size`
    #[schemars(transform = Gauge("GB"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_storage_gb: Option<f64>,
}

/// Whether others use the machine beside the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HostAllocation {
    /// What the machine used is what the job used, but for what a system needs.
    Dedicated,
    /// Others used a part of it.
    Shared,
}

impl Section for HostMetrics {
    const NAME: &'static str = "host";
}

crate::shared_section!(HostMetrics);
