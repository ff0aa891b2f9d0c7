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
