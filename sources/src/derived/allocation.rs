//! Whether the job has the machine for itself: its share of what the machine uses, over the whole run of the job.

use resource_tracker_core::Sample;
use resource_tracker_metrics::{CpuMetrics, Gpus, HostAllocation, MemoryMetrics, ProcessMetrics};

use super::job_gpus::share_of_job;

/// What the machine and the job used since the job was there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Allocation {
    /// Cores.
    machine_cpu: Counted,
    job_cpu: Counted,
    /// MiB, of the machine and of the job.
    memory: Paired,
    /// GPUs, likewise.
    gpu: Paired,
    /// What the job held of memory in the sample before.
    held_before: f64,
}

impl Allocation {
    /// Adds what the sample tells.
    pub(super) fn add(&mut self, sample: &Sample) {
        let secs = sample.elapsed().as_secs_f64();
        let process = sample.get::<ProcessMetrics>();
        // What the machine did before there was a job says nothing.
        if process.is_some_and(|job| cpu_secs(job).is_none()) {
            return;
        }
        self.add_cpu(sample.get::<CpuMetrics>(), process, secs);
        self.add_memory(sample.get::<MemoryMetrics>(), process, secs);
        let busy = sample.all::<Gpus>().flat_map(|list| &list.0).filter_map(|gpu| gpu.utilization_pct);
        self.gpu.add(Some(busy.sum::<f64>() / 100.0), share_of_job(sample).and_then(|share| share.usage), secs);
    }

    fn add_cpu(&mut self, machine: Option<&CpuMetrics>, job: Option<&ProcessMetrics>, secs: f64) {
        self.machine_cpu.add(machine.map(|cpu| cpu.utime_secs + cpu.stime_secs), secs);
        self.job_cpu.add(job.and_then(cpu_secs), secs);
    }

    fn add_memory(&mut self, machine: Option<&MemoryMetrics>, job: Option<&ProcessMetrics>, secs: f64) {
        let Some(job) = job else { return };
        // What has just ended held its memory until then.
        let now = held_by(job);
        let held = now.unwrap_or(self.held_before);
        self.held_before = now.unwrap_or_default();
        self.memory.add(machine.map(in_use), Some(held), secs);
    }

    /// `None` when it is not known what the job or the machine used.
    pub(super) fn verdict(&self) -> Option<HostAllocation> {
        // The bounds of the Python package, for what a system needs beside its job.
        let cpu = self.job_cpu.mean()?;
        let has_cpu = self.machine_cpu.mean()? <= cpu * 1.25 + 0.25;
        let (machine_memory, memory) = self.memory.means()?;
        let has_memory = machine_memory <= (memory * 1.5).max(memory + 512.0);
        // Where it is not known what the job uses of the GPUs, they decide nothing.
        let has_gpu = self.gpu.means().is_none_or(|(machine, job)| machine <= job * 1.25 + 0.25);
        Some(if has_cpu && has_memory && has_gpu { HostAllocation::Dedicated } else { HostAllocation::Shared })
    }
}

/// MiB that the job holds: what its processes share counts once, but for huge pages.
fn held_by(job: &ProcessMetrics) -> Option<f64> {
    Some(job.process_memory_mib.or(job.process_rss_mib)? + job.process_hugetlb_mib.unwrap_or(0.0))
}

/// MiB that somebody holds: files in memory are in it; huge pages that wait for a user, and what ZFS keeps of files, are not.
fn in_use(machine: &MemoryMetrics) -> f64 {
    let nobodys = machine.hugepages_free_mib + machine.zfs_arc_mib.unwrap_or(0);
    (machine.used_mib + machine.shared_mib).saturating_sub(nobodys) as f64
}

fn cpu_secs(job: &ProcessMetrics) -> Option<f64> {
    Some(job.process_utime_secs? + job.process_stime_secs?)
}

/// Something that is counted, such as CPU time. After a sample that does not tell, the next one tells of both intervals.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    sum: f64,
    /// The time that the sum is of.
    secs: f64,
    /// The time since then, of which nothing was told.
    untold_secs: f64,
}

impl Counted {
    fn add(&mut self, amount: Option<f64>, secs: f64) {
        self.untold_secs += secs;
        if let Some(amount) = amount {
            self.sum += amount;
            self.secs += std::mem::take(&mut self.untold_secs);
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.secs > 0.0).then(|| self.sum / self.secs)
    }
}

/// What the machine and the job have of something at a time, such as memory. Only samples count that tell both.
#[derive(Debug, Clone, Copy, Default)]
struct Paired {
    machine: f64,
    job: f64,
    secs: f64,
}

impl Paired {
    fn add(&mut self, machine: Option<f64>, job: Option<f64>, secs: f64) {
        if let (Some(machine), Some(job)) = (machine, job) {
            self.machine += machine * secs;
            self.job += job * secs;
            self.secs += secs;
        }
    }

    fn means(&self) -> Option<(f64, f64)> {
        (self.secs > 0.0).then(|| (self.machine / self.secs, self.job / self.secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(machine_cpu: f64, job_cpu: Option<f64>, machine_memory: f64, job_memory: f64) -> Option<HostAllocation> {
        let mut allocation = Allocation::default();
        allocation.machine_cpu.add(Some(machine_cpu), 1.0);
        allocation.job_cpu.add(job_cpu, 1.0);
        allocation.memory.add(Some(machine_memory), Some(job_memory), 10.0);
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

    /// What each second tells: the CPU seconds of the machine and of the job; `None` where reading them failed.
    fn after(seconds: &[(Option<f64>, Option<f64>)]) -> Option<HostAllocation> {
        let mut allocation = Allocation::default();
        for (machine, job) in seconds {
            let machine = machine.map(|secs| CpuMetrics { utime_secs: secs, ..CpuMetrics::default() });
            let job = job.map(|secs| ProcessMetrics {
                process_utime_secs: Some(secs / 2.0),
                process_stime_secs: Some(secs / 2.0),
                process_rss_mib: Some(1.0),
                ..ProcessMetrics::default()
            });
            allocation.add_cpu(machine.as_ref(), job.as_ref(), 1.0);
            allocation.add_memory(Some(&MemoryMetrics::default()), job.as_ref(), 1.0);
        }
        allocation.verdict()
    }

    /// The reading that succeeds tells of all seconds since the one before.
    #[test]
    fn readings_that_failed_in_between_change_nothing() {
        let (dedicated, shared) = (Some(HostAllocation::Dedicated), Some(HostAllocation::Shared));
        let job_fails = (Some(2.0), None);
        assert_eq!(after(&[(Some(2.0), Some(2.0)), job_fails, job_fails, (Some(2.0), Some(6.0))]), dedicated);
        assert_eq!(after(&[(Some(2.0), Some(1.0)), job_fails, job_fails, (Some(2.0), Some(3.0))]), shared);
        assert_eq!(after(&[(Some(2.0), Some(2.0)), job_fails, job_fails]), dedicated, "to the end");
        let cpu_fails = (None, Some(1.0));
        assert_eq!(after(&[(Some(2.0), Some(1.0)), cpu_fails, cpu_fails, (Some(6.0), Some(1.0))]), shared);
        assert_eq!(after(&[(Some(1.0), Some(1.0)), cpu_fails, cpu_fails, (Some(3.0), Some(1.0))]), dedicated);
        assert_eq!(after(&[(Some(2.0), Some(1.0)), cpu_fails, cpu_fails]), shared, "to the end");
        assert_eq!(after(&[(None, Some(1.0)), (Some(1.0), None)]), dedicated);
        assert_eq!(after(&[(None, Some(1.0))]), None);
    }

    #[test]
    fn memory_is_compared_as_it_is_held() {
        let after = |machine: MemoryMetrics, job: ProcessMetrics| {
            let mut allocation = Allocation::default();
            allocation.add_cpu(Some(&CpuMetrics::default()), Some(&job), 1.0);
            allocation.add_memory(Some(&machine), Some(&job), 1.0);
            allocation.verdict()
        };
        let job = ProcessMetrics {
            process_utime_secs: Some(0.0),
            process_stime_secs: Some(0.0),
            process_rss_mib: Some(16_000.0),
            process_memory_mib: Some(2_000.0),
            ..ProcessMetrics::default()
        };
        let machine = MemoryMetrics { used_mib: 2_500, ..MemoryMetrics::default() };
        assert_eq!(after(machine.clone(), job.clone()), Some(HostAllocation::Dedicated));
        let others = MemoryMetrics { used_mib: 10_000, ..machine.clone() };
        assert_eq!(after(others.clone(), job.clone()), Some(HostAllocation::Shared), "eight workers share their pages");
        let files = MemoryMetrics { shared_mib: 8_000, ..machine };
        assert_eq!(after(files, job.clone()), Some(HostAllocation::Shared), "others have files in memory");
        let pool = MemoryMetrics { hugepages_free_mib: 7_500, ..others.clone() };
        assert_eq!(after(pool, job.clone()), Some(HostAllocation::Dedicated), "nobody has them");
        let cache = MemoryMetrics { zfs_arc_mib: Some(7_500), ..others.clone() };
        assert_eq!(after(cache, job.clone()), Some(HostAllocation::Dedicated), "ZFS gives it back");
        let job = ProcessMetrics { process_hugetlb_mib: Some(7_500.0), ..job };
        assert_eq!(after(others, job), Some(HostAllocation::Dedicated), "the job has them");
    }

    #[test]
    fn gpus_decide_where_the_job_s_use_of_them_is_known() {
        let with_gpus = |machine_gpu: f64, job_gpu: Option<f64>| {
            let mut allocation = Allocation::default();
            allocation.machine_cpu.add(Some(0.0), 10.0);
            allocation.job_cpu.add(Some(10.0), 10.0);
            allocation.memory.add(Some(0.0), Some(1.0), 10.0);
            allocation.gpu.add(Some(machine_gpu), job_gpu, 10.0);
            // A second in which the GPUs did not tell.
            allocation.gpu.add(Some(8.0), None, 1.0);
            allocation.verdict()
        };
        assert_eq!(with_gpus(4.0, Some(3.8)), Some(HostAllocation::Dedicated));
        assert_eq!(with_gpus(4.0, Some(0.5)), Some(HostAllocation::Shared));
        assert_eq!(with_gpus(4.0, None), Some(HostAllocation::Dedicated));
    }
}
