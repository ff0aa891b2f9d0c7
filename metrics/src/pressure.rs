use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::Gauge;

/// How long tasks waited for what they need: `pressure`. Pressure stall information of the kernel, `/proc/pressure`;
/// missing where the kernel has none (before 4.20, or `psi=0`). A resource is null while its file cannot be read, and when its
/// counter began anew.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureMetrics {
    /// Waiting for a CPU. `/proc/pressure/cpu`
    pub cpu: Option<ResourcePressure>,
    /// Waiting for memory to be freed or swapped in. `/proc/pressure/memory`
    pub memory: Option<ResourcePressure>,
    /// Waiting for storage. `/proc/pressure/io`
    pub io: Option<ResourcePressure>,
    /// Time in which interrupts kept all tasks waiting. Null where the kernel does not count it (before 6.1, or without
    /// `CONFIG_IRQ_TIME_ACCOUNTING`). `/proc/pressure/irq`, line `full`
    pub irq: Option<Stall>,
}

/// The pressure on one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourcePressure {
    /// At least one task waited. Line `some`
    pub some: Stall,
    /// All tasks that had something to do waited. Null for `cpu`: of a whole machine the kernel says 0, because one of them
    /// always runs. Line `full`
    pub full: Option<Stall>,
}

/// The share of time in which tasks waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Share of the last 10 seconds, averaged by the kernel. `avg10`
    #[schemars(transform = Gauge("percent"))]
    pub avg10_pct: f64,
    /// Share of the interval. `total`
    #[schemars(transform = Gauge("percent"))]
    pub interval_pct: f64,
}

impl Section for PressureMetrics {
    const NAME: &'static str = "pressure";
}

crate::shared_section!(PressureMetrics);
