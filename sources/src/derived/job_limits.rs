//! What the job may use at most: the least of what its processes, its cgroup and the machine allow.

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::{CgroupMetrics, JobLimitMetrics, MemoryMetrics, ProcessMetrics, cpu_list};

use crate::affinity::Affinity;
use crate::procfile::assign;

/// Fills `process_cpus_allowed` and `process_*_limit_*`.
#[derive(Default)]
struct JobLimits;

register_derivation!(DerivationEntry::new::<JobLimits>("job-limits", "What the job may use at most"));

impl Derivation for JobLimits {
    fn derive(&mut self, _: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        let Some(process) = sample.get::<ProcessMetrics>() else { return Ok(()) };
        let limits: &mut JobLimitMetrics = out.section();
        // Of a process that was never there, nothing is known.
        match process.process_accounting.is_some() {
            true => fill(limits, sample),
            false => *limits = JobLimitMetrics::default(),
        }
        Ok(())
    }
}

fn fill(limits: &mut JobLimitMetrics, sample: &Sample) {
    match sample.get::<Affinity>() {
        Some(affinity) => assign(&mut limits.process_cpus_allowed, &affinity.cpus),
        None => limits.process_cpus_allowed = None,
    }
    let cpus = limits.process_cpus_allowed.as_deref().and_then(cpu_list::count);
    let (cgroup, memory) = (sample.get::<CgroupMetrics>(), sample.get::<MemoryMetrics>());
    limits.process_cpu_limit_cores = least_cores(cpus, cgroup);
    limits.process_memory_limit_mib = least_memory(cgroup, memory);
}

fn least_cores(cpus: Option<u64>, cgroup: Option<&CgroupMetrics>) -> Option<f64> {
    let quota = cgroup.and_then(|cgroup| cgroup.cpu_limit_cores);
    cpus.map(|cpus| cpus as f64).into_iter().chain(quota).reduce(f64::min)
}

fn least_memory(cgroup: Option<&CgroupMetrics>, machine: Option<&MemoryMetrics>) -> Option<f64> {
    let limits = cgroup.map(|cgroup| [cgroup.memory_limit_mib, cgroup.memory_high_mib]);
    let total = machine.map(|memory| memory.total_mib as f64);
    limits.into_iter().flatten().flatten().chain(total).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_what_cgroup_and_machine_allow() {
        let machine = MemoryMetrics { total_mib: 4000, ..MemoryMetrics::default() };
        let least = |max: Option<f64>, high: Option<f64>| {
            let cgroup = CgroupMetrics { memory_limit_mib: max, memory_high_mib: high, ..CgroupMetrics::default() };
            least_memory(Some(&cgroup), Some(&machine))
        };
        assert_eq!(least(Some(1000.0), Some(800.0)), Some(800.0), "above that it is slowed down");
        assert_eq!(least(Some(1000.0), Some(1200.0)), Some(1000.0));
        assert_eq!(least(None, Some(9000.0)), Some(4000.0), "there is no more");
        assert_eq!((least(None, None), least_memory(None, Some(&machine))), (Some(4000.0), Some(4000.0)));
        assert_eq!(least_memory(None, None), None);
    }

    #[test]
    fn the_least_of_its_cpus_and_the_quota() {
        let quota = |cores| CgroupMetrics { cpu_limit_cores: cores, ..CgroupMetrics::default() };
        assert_eq!(least_cores(Some(4), Some(&quota(Some(1.5)))), Some(1.5));
        assert_eq!(least_cores(Some(1), Some(&quota(Some(1.5)))), Some(1.0));
        assert_eq!((least_cores(Some(4), Some(&quota(None))), least_cores(None, None)), (Some(4.0), None));
    }
}
