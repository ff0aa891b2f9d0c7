use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::unit::Gauge;

use super::list_section;

list_section! {
    /// The accelerators: `gpu`. Empty on a machine without any.
    Gpus(GpuMetrics), "gpu", always_present
}

/// One accelerator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct GpuMetrics {
    /// Vendor's identifier of the device, stable over reboots; the PCI bus address on AMD.
    pub uuid: String,
    /// Name of the device.
    pub name: String,
    /// `GPU`, `NPU` or `TPU`.
    pub device_type: String,
    /// The machine's own identifier of the device.
    pub host_id: String,
    /// What else the vendor tells, such as the driver's version.
    pub detail: BTreeMap<String, String>,
    /// Share of time in which the device computed.
    #[schemars(transform = Gauge("percent"))]
    pub utilization_pct: f64,
    /// Memory of the device.
    #[schemars(transform = Gauge("bytes"))]
    pub vram_total_bytes: u64,
    /// Memory of the device in use.
    #[schemars(transform = Gauge("bytes"))]
    pub vram_used_bytes: u64,
    /// The same as a share of the device's memory; 0 when it has none.
    #[schemars(transform = Gauge("percent"))]
    pub vram_used_pct: f64,
    /// Temperature of the die.
    #[schemars(transform = Gauge("celsius"))]
    pub temperature_celsius: u32,
    /// Power draw.
    #[schemars(transform = Gauge("watts"))]
    pub power_watts: f64,
    /// Clock of the cores.
    #[schemars(transform = Gauge("MHz"))]
    pub frequency_mhz: u32,
    /// Compute cores; null where the device does not tell.
    #[schemars(transform = Gauge("cores"))]
    pub core_count: Option<u32>,
}
