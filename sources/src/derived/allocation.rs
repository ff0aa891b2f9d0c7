//! Whether the job has the machine for itself: its share of what the machine uses, over the whole run.

use resource_tracker_core::Sample;
use resource_tracker_metrics::{CpuMetrics, Gpus, HostAllocation, MemoryMetrics, ProcessMetrics};

use super::job_gpus::share_of_job;

/// What the machine and the job used, summed over time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Allocation {
    secs: f64,
    /// Core-seconds.
    machine_cpu: f64,
    job_cpu: Option<f64>,
    /// MiB-seconds.
    machine_memory: f64,
    job_memory: Option<f64>,
    /// GPU-seconds.
    machine_gpu: f64,
    job_gpu: Option<f64>,
    /// What the job had resident in the sample before.
    resident_before: f64,
}

impl Allocation {
    /// Adds what was used on average in the interval that the sample is of; what it does not tell is left as it is.
    pub(super) fn add(&mut self, sample: &Sample) {
        let secs = sample.elapsed().as_secs_f64();
        self.secs += secs;
        self.machine_cpu += sample.get::<CpuMetrics>().map_or(0.0, |cpu| cpu.utilization_pct) * secs;
        self.machine_memory += sample.get::<MemoryMetrics>().map_or(0.0, |memory| memory.used_mib as f64) * secs;
        if let Some((process, cores)) =
            sample.get::<ProcessMetrics>().and_then(|job| Some((job, job.process_cores_used?)))
        {
            *self.job_cpu.get_or_insert_default() += cores * secs;
            // What has just ended held its memory until then.
            let held = process.process_rss_mib.unwrap_or(self.resident_before);
            *self.job_memory.get_or_insert_default() += held * secs;
            self.resident_before = process.process_rss_mib.unwrap_or_default();
        }
        let busy = sample.all::<Gpus>().flat_map(|list| &list.0).filter_map(|gpu| gpu.utilization_pct);
        self.machine_gpu += busy.sum::<f64>() / 100.0 * secs;
        if let Some(usage) = share_of_job(sample).and_then(|share| share.usage) {
            *self.job_gpu.get_or_insert_default() += usage * secs;
        }
    }

    /// `None` when there is no job, or no time has passed.
    pub(super) fn verdict(&self) -> Option<HostAllocation> {
        let secs = Some(self.secs).filter(|secs| *secs > 0.0)?;
        let (cpu, memory) = (self.job_cpu? / secs, self.job_memory? / secs);
        // The bounds of the Python package, for what a system needs beside its job.
        let has_cpu = self.machine_cpu / secs <= cpu * 1.25 + 0.25;
        let has_memory = self.machine_memory / secs <= (memory * 1.5).max(memory + 512.0);
        // Where it is not known what the job uses of the GPUs, they decide nothing.
        let has_gpu = self.job_gpu.is_none_or(|job| self.machine_gpu / secs <= job / secs * 1.25 + 0.25);
        Some(if has_cpu && has_memory && has_gpu { HostAllocation::Dedicated } else { HostAllocation::Shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(machine_cpu: f64, job_cpu: Option<f64>, machine_memory: f64, job_memory: f64) -> Option<HostAllocation> {
        let allocation = Allocation {
            secs: 10.0,
            machine_cpu: machine_cpu * 10.0,
            job_cpu: job_cpu.map(|cores| cores * 10.0),
            machine_memory: machine_memory * 10.0,
            job_memory: Some(job_memory * 10.0),
            ..Allocation::default()
        };
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
            let (job_cpu, job_memory) = (Some(10.0), Some(10.0));
            Allocation { secs: 10.0, job_cpu, job_memory, machine_gpu, job_gpu, ..Allocation::default() }.verdict()
        };
        assert_eq!(with_gpus(40.0, Some(38.0)), Some(HostAllocation::Dedicated));
        assert_eq!(with_gpus(40.0, Some(5.0)), Some(HostAllocation::Shared));
        assert_eq!(with_gpus(40.0, None), Some(HostAllocation::Dedicated));
    }
}
