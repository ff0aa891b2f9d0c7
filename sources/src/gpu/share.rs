//! What the job has of GPUs.

use resource_tracker_core::Section;
use resource_tracker_metrics::{GpuMetrics, GpuProcess};
use schemars::JsonSchema;
use serde::Serialize;

/// What the job has of some devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// GPUs in use; `None` where the hardware does not tell it by process.
    pub(crate) usage: Option<f64>,
    pub(crate) vram_bytes: u64,
    /// Devices of which it used a share.
    pub(crate) utilized: u32,
}

impl Share {
    /// Of one device.
    pub(crate) fn of(processes: &[GpuProcess]) -> Self {
        let used = processes.iter().filter_map(|process| process.utilization_pct).reduce(|a, b| a + b);
        Self {
            usage: used.map(|pct| pct.min(100.0) / 100.0),
            vram_bytes: processes.iter().filter_map(|process| process.vram_bytes).sum(),
            utilized: used.is_some_and(|pct| pct > 0.0).into(),
        }
    }

    /// Of the devices of a source; `None` when none of them tells.
    pub(crate) fn of_devices(gpus: &[GpuMetrics]) -> Option<Self> {
        let telling = || gpus.iter().filter(|gpu| gpu.processes.is_some());
        let share = telling().filter_map(|gpu| gpu.processes.as_deref()).map(Share::of).reduce(Share::plus)?;
        // A device that tells how busy it is, and has no process of the job, is not used by it.
        let idle = telling().any(|gpu| gpu.utilization_pct.is_some()).then_some(0.0);
        Some(Self { usage: share.usage.or(idle), ..share })
    }

    /// Of these and those.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            usage: self.usage.into_iter().chain(other.usage).reduce(|a, b| a + b),
            vram_bytes: self.vram_bytes + other.vram_bytes,
            utilized: self.utilized + other.utilized,
        }
    }
}

/// What the job has of devices that are not listed in `gpu`; `None` when their drivers do not tell.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct DrmShare(pub(crate) Option<Share>);

impl Section for DrmShare {
    const NAME: &'static str = "drm";
    const IS_INTERNAL: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_devices_add_up() {
        let process =
            |vram, pct| GpuProcess { pid: 7, vram_bytes: Some(vram), utilization_pct: pct, cu_occupancy_pct: None };
        let gpu = |processes: Vec<GpuProcess>| GpuMetrics {
            processes: Some(processes),
            utilization_pct: Some(50.0),
            ..GpuMetrics::default()
        };
        let busy = gpu(vec![process(5, Some(80.0)), process(2, Some(40.0))]);
        let share = Share::of_devices(&[busy.clone(), gpu(vec![process(1, None)]), GpuMetrics::default()]);
        assert_eq!(share, Some(Share { usage: Some(1.0), vram_bytes: 8, utilized: 1 }));
        assert_eq!(Share::of_devices(&[gpu(vec![])]), Some(Share { usage: Some(0.0), vram_bytes: 0, utilized: 0 }));
        let quiet = GpuMetrics { utilization_pct: None, ..gpu(vec![process(1, None)]) };
        assert_eq!(Share::of_devices(&[quiet]), Some(Share { usage: None, vram_bytes: 1, utilized: 0 }));
        assert_eq!(Share::of_devices(&[GpuMetrics::default()]), None, "it does not tell");
    }
}
