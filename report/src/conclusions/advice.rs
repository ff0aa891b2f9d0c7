//! What to ask for after a run.

use crate::advice::{Advice, GpuVendor, Gpus, UsedGpus};
use crate::bound::Resource;
use crate::job::JobSummary;
use crate::summary::Summary;

/// `None` when no job was tracked, or for too short a time, and when it failed.
pub(super) fn advice(summary: &Summary) -> Option<Advice> {
    if !summary.tells_enough() {
        return None;
    }
    // A job that failed may not have reached what it needs most for.
    if summary.has_failed() {
        return None;
    }
    let job = summary.job.as_ref()?;
    let used = job.cores?;
    let is_at_limit = job.secs_at_core_limit.is_some_and(|secs| secs >= 0.5 * summary.times.sampled_secs);
    // How many cores it would have used is unknown if it had to wait; but no thread uses two.
    let had_to_wait = summary.bound.as_ref().is_some_and(|bound| bound.by == Resource::Contention);
    let all = job.core_limit.map(|limit| job.peak_threads.map_or(limit, |threads| limit.min(threads)));
    let cores = all.filter(|_| is_at_limit || had_to_wait).unwrap_or(used.p95).max(used.mean);
    // Files that it has mapped count as well: without room for them, the job would read them again and again.
    let peak = job.peak_memory_mib?.max(job.memory_mib.map_or(0.0, |memory| memory.peak));
    Some(Advice::new(cores, peak, gpus(summary, job)))
}

/// A job that had memory of a GPU used one, also where its share of the time is not known, as with parts (MIG) and with programs
/// that compute on AMD's.
fn gpus(summary: &Summary, job: &JobSummary) -> Gpus {
    let memory_mib = job.gpu_memory_mib.map(|memory| memory.peak.ceil() as u64).filter(|memory| *memory > 0);
    let Some(used) = job.peak_gpus_used.map(|used| used as u32).or(memory_mib.map(|_| 1)) else { return Gpus::Unknown };
    let count = if memory_mib.is_some() { used.max(1) } else { used };
    let is_amd =
        !summary.gpus.is_empty() && summary.gpus.iter().all(|gpu| GpuVendor::of_uuid(&gpu.uuid) == GpuVendor::Amd);
    let vendor = if is_amd { GpuVendor::Amd } else { GpuVendor::Nvidia };
    if count > 0 { Gpus::Used(UsedGpus { count, memory_mib, vendor }) } else { Gpus::None }
}
