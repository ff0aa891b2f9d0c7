//! Whether the job has the machine for itself: its share of what the machine uses, over the whole run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use resource_tracker_core::Host;
use resource_tracker_metrics::HostAllocation;

/// What the machine and the job used, summed over time. The sources that know a part of it add it at each tick.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Use {
    /// Core-seconds.
    pub(crate) machine_cpu: f64,
    pub(crate) job_cpu: Option<f64>,
    /// MiB-seconds.
    pub(crate) machine_memory: f64,
    pub(crate) job_memory: Option<f64>,
    /// GPU-seconds.
    pub(crate) machine_gpu: f64,
    pub(crate) job_gpu: Option<f64>,
}

#[derive(Default)]
pub(crate) struct Allocation {
    sums: Mutex<(Use, Duration)>,
}

impl Allocation {
    /// The one of this run.
    pub(crate) fn shared(host: &Host) -> anyhow::Result<Arc<Self>> {
        host.shared(|| Ok(Self::default()))
    }

    /// Adds what was used on average in the time that has passed; what a source does not know is left as it is.
    pub(crate) fn add(&self, add: impl FnOnce(&mut Use)) {
        add(&mut self.sums.lock().unwrap_or_else(PoisonError::into_inner).0);
    }

    /// One interval has passed.
    pub(crate) fn pass(&self, time: Duration) {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).1 += time;
    }

    /// `None` when there is no job, or no time has passed.
    pub(crate) fn verdict(&self) -> Option<HostAllocation> {
        let (used, time) = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let secs = Some(time.as_secs_f64()).filter(|secs| *secs > 0.0)?;
        let (cpu, memory) = (used.job_cpu? / secs, used.job_memory? / secs);
        // The bounds of the Python package, for what a system needs beside its job.
        let has_cpu = used.machine_cpu / secs <= cpu * 1.25 + 0.25;
        let has_memory = used.machine_memory / secs <= (memory * 1.5).max(memory + 512.0);
        // Where it is not known what the job uses of the GPUs, they decide nothing.
        let has_gpu = used.job_gpu.is_none_or(|job| used.machine_gpu / secs <= job / secs * 1.25 + 0.25);
        Some(if has_cpu && has_memory && has_gpu { HostAllocation::Dedicated } else { HostAllocation::Shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(machine_cpu: f64, job_cpu: Option<f64>, machine_memory: f64, job_memory: f64) -> Option<HostAllocation> {
        let allocation = Allocation::default();
        let time = Duration::from_secs(10);
        allocation.pass(time);
        allocation.add(|used| {
            *used = Use {
                machine_cpu: machine_cpu * 10.0,
                job_cpu: job_cpu.map(|cores| cores * 10.0),
                machine_memory: machine_memory * 10.0,
                job_memory: Some(job_memory * 10.0),
                ..Use::default()
            }
        });
        allocation.verdict()
    }

    #[test]
    fn the_share_decides() {
        let (dedicated, shared) = (Some(HostAllocation::Dedicated), Some(HostAllocation::Shared));
        assert_eq!(verdict(1.4, Some(1.0), 900.0, 500.0), dedicated);
        assert_eq!(verdict(1.6, Some(1.0), 900.0, 500.0), shared);
        assert_eq!(verdict(0.2, Some(0.0), 500.0, 1.0), dedicated);
        assert_eq!(verdict(1.0, Some(1.0), 2900.0, 2000.0), dedicated);
        assert_eq!(verdict(1.0, Some(1.0), 3100.0, 2000.0), shared);
        assert_eq!(verdict(1.0, None, 1.0, 1.0), None);
        assert_eq!(Allocation::default().verdict(), None);
    }

    #[test]
    fn gpus_decide_where_the_job_s_use_of_them_is_known() {
        let with_gpus = |machine_gpu: f64, job_gpu: Option<f64>| {
            let allocation = Allocation::default();
            allocation.pass(Duration::from_secs(10));
            let (job_cpu, job_memory) = (Some(10.0), Some(10.0));
            allocation.add(|used| *used = Use { job_cpu, job_memory, machine_gpu, job_gpu, ..Use::default() });
            allocation.verdict()
        };
        assert_eq!(with_gpus(40.0, Some(38.0)), Some(HostAllocation::Dedicated));
        assert_eq!(with_gpus(40.0, Some(5.0)), Some(HostAllocation::Shared));
        assert_eq!(with_gpus(40.0, None), Some(HostAllocation::Dedicated));
    }
}
