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
    let count = limits.process_cpus_allowed.as_deref().and_then(cpu_list::count).map(|count| count as f64);
    let (quota, memory) = sample.get::<CgroupMetrics>().map_or(Default::default(), |cgroup| {
        (cgroup.cpu_limit_cores, [cgroup.memory_limit_mib, cgroup.memory_high_mib])
    });
    let total = sample.get::<MemoryMetrics>().map(|memory| memory.total_mib as f64);
    limits.process_cpu_limit_cores = count.into_iter().chain(quota).reduce(f64::min);
    limits.process_memory_limit_mib = memory.into_iter().flatten().chain(total).reduce(f64::min);
}
