//! What the job has of GPUs.

use resource_tracker_core::Section;
use resource_tracker_metrics::{GpuMetrics, GpuProcess};
use schemars::JsonSchema;
use serde::Serialize;

/// What the job has of some devices. A sum of which a part is not known is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// GPUs in use; `None` where the hardware does not tell it by process.
    pub(crate) usage: Option<f64>,
    pub(crate) vram_bytes: Option<u64>,
    /// Devices of which it used a share.
    pub(crate) utilized: u32,
}

impl Share {
    /// The share of a device whose processes are not known.
    const UNKNOWN: Self = Self { usage: None, vram_bytes: None, utilized: 0 };

    /// The share of one device, from the job's processes that use it: without any, the job uses nothing. A value that
    /// the driver reports for none of them is not known.
    pub(crate) fn of(processes: &[GpuProcess]) -> Self {
        let none = processes.is_empty();
        let used = processes.iter().filter_map(|process| process.utilization_pct).reduce(|a, b| a + b);
        let held = processes.iter().filter_map(|process| process.vram_bytes).reduce(|a, b| a + b);
        Self {
            usage: used.or(none.then_some(0.0)).map(|pct| pct.min(100.0) / 100.0),
            vram_bytes: held.or(none.then_some(0)),
            utilized: used.is_some_and(|pct| pct > 0.0).into(),
        }
    }

    /// The share of a source's devices; `None` when none of them has any figure.
    pub(crate) fn of_devices(gpus: &[GpuMetrics]) -> Option<Self> {
        // A device that is divided is reported by its parts; one that sleeps or is lost has only a name.
        let is_divided = |gpu: &GpuMetrics| gpus.iter().any(|part| part.parent_uuid.as_ref() == Some(&gpu.uuid));
        let is_silent = |gpu: &GpuMetrics| gpu.utilization_pct.is_none() && gpu.vram_used_bytes.is_none();
        let shares = gpus.iter().filter_map(|gpu| match &gpu.processes {
            Some(processes) => Some(Self::of(processes)),
            None => (!is_divided(gpu) && !is_silent(gpu)).then_some(Self::UNKNOWN),
        });
        shares.reduce(Self::plus)
    }

    /// The sum of two shares.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            usage: self.usage.zip(other.usage).map(|(a, b)| a + b),
            vram_bytes: self.vram_bytes.zip(other.vram_bytes).map(|(a, b)| a + b),
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

    fn process(vram: Option<u64>, pct: Option<f64>) -> GpuProcess {
        GpuProcess { pid: 7, vram_bytes: vram, utilization_pct: pct, ..GpuProcess::default() }
    }

    fn gpu(processes: Option<Vec<GpuProcess>>) -> GpuMetrics {
        GpuMetrics { processes, utilization_pct: Some(50.0), ..GpuMetrics::default() }
    }

    fn share(usage: Option<f64>, vram_bytes: Option<u64>, utilized: u32) -> Option<Share> {
        Some(Share { usage, vram_bytes, utilized })
    }

    #[test]
    fn shares_of_devices_add_up() {
        let busy = gpu(Some(vec![process(Some(5), Some(80.0)), process(Some(2), Some(40.0))]));
        let other = gpu(Some(vec![process(Some(1), Some(25.0)), process(None, None)]));
        assert_eq!(Share::of_devices(&[busy, other, gpu(Some(vec![]))]), share(Some(1.25), Some(8), 2));
        assert_eq!(Share::of_devices(&[gpu(Some(vec![]))]), share(Some(0.0), Some(0), 0));
        assert_eq!(Share::of_devices(&[]), None);
    }

    /// A list that could not be read is not zero either, nor is a sum with it.
    #[test]
    fn no_share_known_is_not_zero() {
        let unknown = gpu(Some(vec![process(Some(1), None)]));
        let busy = gpu(Some(vec![process(Some(5), Some(80.0))]));
        assert_eq!(Share::of_devices(std::slice::from_ref(&unknown)), share(None, Some(1), 0));
        assert_eq!(Share::of_devices(&[busy.clone(), unknown]), share(None, Some(6), 1));
        assert_eq!(Share::of_devices(&[busy.clone(), gpu(None)]), share(None, None, 1));
        let without_memory = gpu(Some(vec![process(None, Some(80.0))]));
        assert_eq!(Share::of_devices(&[without_memory]), share(Some(0.8), None, 1));
        // One that tells nothing at all is lost, or sleeps.
        assert_eq!(Share::of_devices(&[busy, GpuMetrics::default()]), share(Some(0.8), Some(5), 1));
        assert_eq!(Share::of_devices(&[GpuMetrics::default()]), None);
    }

    #[test]
    fn a_device_that_is_divided_is_told_by_its_parts() {
        let whole = GpuMetrics { uuid: "GPU".into(), ..gpu(None) };
        let part = |processes| GpuMetrics { parent_uuid: Some("GPU".into()), ..gpu(processes) };
        let idle = part(Some(vec![]));
        assert_eq!(Share::of_devices(&[whole.clone(), idle.clone()]), share(Some(0.0), Some(0), 0));
        assert_eq!(Share::of_devices(&[whole, idle, part(None)]), share(None, None, 0));
    }
}
