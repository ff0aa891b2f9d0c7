//! What the job may use at most: the least of what its processes, its cgroup and the machine allow.

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::{CgroupMetrics, JobLimitMetrics, MemoryMetrics, ProcessMetrics};

use crate::affinity::Affinity;
use crate::cpu_list;

/// Fills `process_cpus_allowed` and `process_*_limit_*`.
#[derive(Default)]
struct JobLimits;

register_derivation!(DerivationEntry::new::<JobLimits>("job-limits", "What the job may use at most"));

impl Derivation for JobLimits {
    fn derive(&mut self, _: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        let Some(process) = sample.get::<ProcessMetrics>() else { return Ok(()) };
        // Of a process that was never there, nothing is known.
        let limits = if process.process_accounting.is_some() { limits(sample) } else { JobLimitMetrics::default() };
        *out.section() = limits;
        Ok(())
    }
}

fn limits(sample: &Sample) -> JobLimitMetrics {
    let cpus = sample.get::<Affinity>().and_then(|affinity| affinity.cpus.clone());
    let count = cpus.as_deref().and_then(cpu_list::count).map(|count| count as f64);
    let (quota, memory) = sample.get::<CgroupMetrics>().map_or(Default::default(), |cgroup| {
        (cgroup.cpu_limit_cores, [cgroup.memory_limit_mib, cgroup.memory_high_mib])
    });
    let total = sample.get::<MemoryMetrics>().map(|memory| memory.total_mib as f64);
    JobLimitMetrics {
        process_cpus_allowed: cpus,
        process_cpu_limit_cores: count.into_iter().chain(quota).reduce(f64::min),
        process_memory_limit_mib: memory.into_iter().flatten().chain(total).reduce(f64::min),
    }
}
