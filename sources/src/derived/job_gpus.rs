//! What the job has of all GPUs together, from what each device tells of its processes at the same tick.

use resource_tracker_core::{Derivation, DerivationEntry, Sample, Sections, Tick, register_derivation};
use resource_tracker_metrics::{Gpus, JobGpuMetrics, ProcessMetrics};

use crate::gpu::{DrmShare, Share};
use crate::procfile::mib;

/// Fills `process_gpu_*`.
#[derive(Default)]
struct JobGpus;

register_derivation!(DerivationEntry::new::<JobGpus>("job-gpus", "What the job has of all GPUs together"));

impl Derivation for JobGpus {
    fn derive(&mut self, _: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        let Some(process) = sample.get::<ProcessMetrics>() else { return Ok(()) };
        let is_alive = process.process_rss_mib.is_some();
        let share = share_of_job(sample).filter(|_| is_alive);
        *out.section() = share.map_or_else(JobGpuMetrics::default, |share| JobGpuMetrics {
            process_gpu_usage: share.usage,
            process_gpu_vram_mib: share.vram_bytes.map(mib),
            process_gpu_utilized: share.usage.map(|_| share.utilized),
        });
        Ok(())
    }
}

/// What the job has of the GPUs of all vendors; `None` when there is none that tells anything.
pub(super) fn share_of_job(sample: &Sample) -> Option<Share> {
    let listed = sample.all::<Gpus>().filter_map(|list| Share::of_devices(&list.0));
    listed.chain(sample.all::<DrmShare>().filter_map(|drm| drm.0)).reduce(Share::plus)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use resource_tracker_core::SourceState;
    use resource_tracker_metrics::{GpuMetrics, GpuProcess};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What follows of a job that has or has no memory, and of what these sources of GPUs tell.
    fn derived(rss: Option<f64>, gpus: &[Gpus], drm: Option<DrmShare>) -> JobGpuMetrics {
        let mut process = Sections::default();
        *process.section() = ProcessMetrics { process_rss_mib: rss, ..ProcessMetrics::default() };
        let mut parts = vec![("process", SourceState::Read, process)];
        for list in gpus {
            let mut sections = Sections::default();
            *sections.section() = list.clone();
            parts.push(("nvidia", SourceState::Read, sections));
        }
        if let Some(share) = drm {
            let mut sections = Sections::default();
            *sections.section() = share;
            parts.push(("drm", SourceState::Read, sections));
        }
        let mut out = Sections::default();
        let tick = Tick::new(1, Instant::now(), SECOND, SECOND);
        JobGpus.derive(&tick, &Sample::of_sources(SECOND, parts), &mut out).unwrap();
        out.get::<JobGpuMetrics>().cloned().unwrap()
    }

    fn busy(pct: f64, vram_mib: u64) -> Gpus {
        let process =
            GpuProcess { vram_bytes: Some(vram_mib << 20), utilization_pct: Some(pct), ..GpuProcess::default() };
        Gpus(vec![GpuMetrics { processes: Some(vec![process]), ..GpuMetrics::default() }])
    }

    fn job(usage: Option<f64>, vram_mib: Option<f64>, utilized: Option<u32>) -> JobGpuMetrics {
        JobGpuMetrics { process_gpu_usage: usage, process_gpu_vram_mib: vram_mib, process_gpu_utilized: utilized }
    }

    #[test]
    fn the_shares_of_all_vendors_add_up_in_any_order() {
        let (one, other) = (busy(50.0, 100), busy(25.0, 11));
        let drm = || Some(DrmShare(Some(Share { usage: Some(1.0), vram_bytes: Some(1 << 20), utilized: 1 })));
        let all = job(Some(1.75), Some(112.0), Some(3));
        assert_eq!(derived(Some(1.0), &[one.clone(), other.clone()], drm()), all);
        assert_eq!(derived(Some(1.0), &[other, one.clone()], drm()), all);
        assert_eq!(derived(Some(1.0), &[one], Some(DrmShare(None))), job(Some(0.5), Some(100.0), Some(1)));
    }

    #[test]
    fn what_is_not_known_is_null() {
        assert_eq!(derived(Some(1.0), &[], None), job(None, None, None), "there is no GPU");
        assert_eq!(derived(None, &[busy(50.0, 1)], None), job(None, None, None), "the job has ended");
        let silent = Some(DrmShare(Some(Share { usage: None, vram_bytes: None, utilized: 0 })));
        assert_eq!(derived(Some(1.0), &[busy(50.0, 1)], silent), job(None, None, None), "a part is not known");
    }
}
