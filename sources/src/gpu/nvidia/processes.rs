//! Which processes use a GPU, and how much.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nvml_wrapper::Device as Handle;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::namespace::Namespace;
use crate::gpu::pace::Paced;

/// NVML's own periods are up to a second long; what a process used holds until the next.
const PERIOD: Duration = Duration::from_millis(1500);

/// Memory by process, with the number of those that compute.
type Listed = (u32, Vec<(u32, Option<u64>)>);

#[derive(Default)]
pub(super) struct Processes {
    listed: Paced<Listed>,
    samples: Paced<Vec<(u32, u32)>>,
    /// The newest sample, in NVML's time.
    newest: u64,
    shares: HashMap<u32, (f64, Instant)>,
    tells_shares: bool,
}

impl Processes {
    pub(super) fn fill(
        &mut self,
        metrics: &mut GpuMetrics,
        handle: &Handle<'_>,
        count: usize,
        now: Instant,
        tree: Option<&[i32]>,
        namespace: &mut Namespace,
    ) {
        let listed = self.listed.get(count, || memory_by_process(handle));
        metrics.process_count = listed.as_ref().map(|(compute, _)| *compute);
        self.read_shares(handle, count, now);
        let share = |pid: u32| self.tells_shares.then(|| self.shares.get(&pid).map_or(0.0, |(share, _)| *share));
        metrics.processes = namespace.those_in(tree, listed.map(|(_, list)| list), metrics.utilization_pct, share);
    }

    /// The shares of all processes together, in percent; `None` where the device does not tell them.
    pub(super) fn all_together(&self) -> Option<f64> {
        self.tells_shares.then(|| self.shares.values().map(|(share, _)| share).sum::<f64>().min(100.0))
    }

    fn read_shares(&mut self, handle: &Handle<'_>, count: usize, now: Instant) {
        let Self { samples, newest, shares, tells_shares, .. } = self;
        let mut fresh = false;
        let samples = samples.get(count, || {
            fresh = true;
            match handle.process_utilization_stats(*newest) {
                Ok(samples) => {
                    *newest = samples.iter().map(|sample| sample.timestamp).fold(*newest, u64::max);
                    // The driver's buffer has room for samples that were never taken.
                    let real = samples.into_iter().filter(|sample| sample.pid != 0 && sample.timestamp != 0);
                    Some(real.map(|sample| (sample.pid, sample.sm_util.min(100))).collect())
                }
                // It has no sample, which is no error.
                Err(NvmlError::NotFound) => Some(Vec::new()),
                Err(_) => None,
            }
        });
        *tells_shares = samples.is_some();
        if fresh {
            for (pid, share) in mean_by_process(&samples.unwrap_or_default()) {
                shares.insert(pid, (share, now));
            }
        }
        shares.retain(|_, (_, at)| now.saturating_duration_since(*at) < PERIOD);
    }
}

fn mean_by_process(samples: &[(u32, u32)]) -> HashMap<u32, f64> {
    let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
    for (pid, share) in samples {
        let (sum, count) = sums.entry(*pid).or_default();
        *sum += f64::from(*share);
        *count += 1.0;
    }
    sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect()
}

/// What each process holds, whether it computes or draws. `None` where the device does not tell.
pub(super) fn memory_by_process(handle: &Handle<'_>) -> Option<Listed> {
    let compute = list(|| handle.running_compute_processes(), || handle.running_compute_processes_v2())?;
    let graphics = list(|| handle.running_graphics_processes(), || handle.running_graphics_processes_v2());
    let count = compute.len() as u32;
    let mut all: Vec<(u32, Option<u64>)> = Vec::new();
    for process in compute.into_iter().chain(graphics.unwrap_or_default()) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        // One that does both is in both lists with the same memory.
        match all.iter_mut().find(|(pid, _)| *pid == process.pid) {
            Some((_, known)) => *known = (*known).max(bytes),
            None => all.push((process.pid, bytes)),
        }
    }
    Some((count, all))
}

/// The newest version of the call that the library has. A list that grows while it is read is read again.
fn list(
    newest: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
    older: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Option<Vec<ProcessInfo>> {
    for _ in 0..3 {
        let result = match newest() {
            Err(NvmlError::FailedToLoadSymbol(_)) => older(),
            result => result,
        };
        match result {
            Err(NvmlError::InsufficientSize(_)) => (),
            result => return result.ok(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_process_are_averaged() {
        let means = mean_by_process(&[(1, 10), (1, 30), (2, 5)]);
        assert_eq!((means[&1], means[&2]), (20.0, 5.0));
    }
}
