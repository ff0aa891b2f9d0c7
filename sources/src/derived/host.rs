//! When the facts of the machine are told: once its GPUs are known, and at the end whether the job had it for itself.

use std::time::{Duration, Instant};

use resource_tracker_core::{Derivation, DerivationEntry, Sample, Sections, SourceState, Tick, register_derivation};
use resource_tracker_metrics::{Gpus, HostMetrics};

use super::allocation::Allocation;
use crate::gpu;
use crate::host::HostFacts;

/// How long the facts wait for GPUs while their sources start: NVML takes a while.
const GPU_WAIT: Duration = Duration::from_secs(3);

/// Fills `host`.
#[derive(Default)]
struct HostDerivation {
    /// What the source saw, and when.
    seen: Option<(HostFacts, Instant)>,
    is_told: bool,
    allocation: Allocation,
}

register_derivation!(DerivationEntry::new::<HostDerivation>(
    "host",
    "The facts of the machine, once its GPUs are known"
));

impl Derivation for HostDerivation {
    fn derive(&mut self, tick: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        self.allocation.add(sample);
        if self.is_told && !tick.last {
            return Ok(());
        }
        if let (None, Some(facts)) = (&self.seen, sample.get::<HostFacts>()) {
            self.seen = Some((facts.clone(), tick.at));
        }
        let Some((host, since)) = &self.seen else { return Ok(()) };
        let gpus = gpus(sample);
        let waits = gpus == Gpu::Awaited && tick.at.saturating_duration_since(*since) < GPU_WAIT;
        let mut facts = HostMetrics::default();
        if !self.is_told && (tick.last || !waits) {
            self.is_told = true;
            facts = host.facts.clone();
            if let Gpu::Known { model, count, vram_bytes } = gpus {
                facts.host_gpu_model = model;
                facts.host_gpu_count = Some(count);
                facts.host_gpu_vram_mib = Some(vram_bytes >> 20);
            }
        }
        if tick.last {
            facts.host_allocation = self.allocation.verdict();
        }
        host.suppress(&mut facts);
        if facts != HostMetrics::default() {
            *out.section::<HostMetrics>() = facts;
        }
        Ok(())
    }
}

/// The GPUs of the machine.
#[derive(Debug, PartialEq)]
enum Gpu {
    /// Somebody is still looking, or cannot tell.
    Awaited,
    /// Nobody looks for them.
    Unknown,
    Known {
        /// Name of the first.
        model: Option<String>,
        count: u32,
        /// Of all together.
        vram_bytes: u64,
    },
}

fn gpus(sample: &Sample) -> Gpu {
    let mut states = gpu::SOURCES.iter().filter_map(|source| sample.state_of(source)).peekable();
    if states.peek().is_none() {
        return Gpu::Unknown;
    }
    if states.any(|state| matches!(state, SourceState::Awaited | SourceState::Failed)) {
        return Gpu::Awaited;
    }
    // Parts of a device are not counted beside it.
    let whole = || sample.all::<Gpus>().flat_map(|list| &list.0).filter(|gpu| gpu.parent_uuid.is_none());
    Gpu::Known {
        model: whole().next().map(|gpu| gpu.name.clone()),
        count: whole().count() as u32,
        vram_bytes: whole().filter_map(|gpu| gpu.vram_total_bytes).sum(),
    }
}

#[cfg(test)]
mod tests {
    use resource_tracker_metrics::{CpuMetrics, GpuMetrics, HostAllocation, MemoryMetrics, ProcessMetrics};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What the source `host` saw, which is read once, and NVML.
    fn sample(has_facts: bool, nvidia: Option<SourceState>) -> Sample {
        let (mut host, mut gpus) = (Sections::default(), Sections::default());
        if has_facts {
            let facts: &mut HostFacts = host.section();
            facts.facts.host_name = Some("node7".into());
        }
        if nvidia == Some(SourceState::Read) {
            let gpu = |name: &str, part_of: Option<&str>| GpuMetrics {
                name: name.into(),
                parent_uuid: part_of.map(str::to_owned),
                vram_total_bytes: Some(80 << 30),
                ..GpuMetrics::default()
            };
            *gpus.section() = Gpus(vec![gpu("H100", None), gpu("a seventh", Some("it")), gpu("A100", None)]);
        }
        let nvidia = nvidia.map(|state| (gpu::SOURCES[0], state, gpus));
        Sample::of_sources(SECOND, [("host", SourceState::Read, host)].into_iter().chain(nvidia))
    }

    /// What a run of such samples, a second apart, tells of the machine.
    fn told(samples: &[Sample]) -> Vec<Option<HostMetrics>> {
        let (mut derivation, start) = (HostDerivation::default(), Instant::now());
        let derive = |(index, sample): (usize, &Sample)| {
            let mut tick = Tick::new(index as u64, start + SECOND * index as u32, Duration::ZERO, SECOND);
            tick.last = index + 1 == samples.len();
            let mut out = Sections::default();
            derivation.derive(&tick, sample, &mut out).unwrap();
            out.get::<HostMetrics>().cloned()
        };
        samples.iter().enumerate().map(derive).collect()
    }

    /// Name, and count and memory of the GPUs.
    fn seen(told: &Option<HostMetrics>) -> Option<(Option<&str>, Option<u32>, Option<u64>)> {
        told.as_ref().map(|facts| (facts.host_name.as_deref(), facts.host_gpu_count, facts.host_gpu_vram_mib))
    }

    #[test]
    fn facts_are_told_once_and_wait_for_the_gpus() {
        let (awaited, read) = (Some(SourceState::Awaited), Some(SourceState::Read));
        let told = told(&[sample(true, awaited), sample(true, awaited), sample(true, read), sample(true, read)]);
        assert_eq!(
            told.iter().map(seen).collect::<Vec<_>>(),
            [None, None, Some((Some("node7"), Some(2), Some(160 << 10))), None]
        );
        assert_eq!(told[2].as_ref().and_then(|facts| facts.host_gpu_model.as_deref()), Some("H100"));
    }

    #[test]
    fn they_wait_no_longer_than_that_and_not_where_nobody_looks() {
        let name = Some((Some("node7"), None, None));
        let late = told(&[(); 6].map(|()| sample(true, Some(SourceState::Failed))));
        assert_eq!(late.iter().map(seen).collect::<Vec<_>>(), [None, None, None, name, None, None]);
        assert_eq!(
            told(&[sample(false, None), sample(true, None), sample(true, None)]).iter().map(seen).nth(1),
            Some(name)
        );
        let short = told(&[sample(true, Some(SourceState::Awaited))]);
        assert_eq!(seen(&short[0]), name, "the run ends");
        let without = told(&[sample(true, Some(SourceState::Absent)), sample(true, None)]);
        assert_eq!(seen(&without[0]), Some((Some("node7"), Some(0), Some(0))), "there are none");
        assert_eq!(told(&[sample(false, None)]), [None], "nothing was seen");
    }

    #[test]
    fn at_the_end_it_is_told_whose_the_machine_was() {
        let with_job = |machine: f64| {
            let mut sections = Sections::default();
            *sections.section() = CpuMetrics { utime_secs: machine, ..CpuMetrics::default() };
            *sections.section() = MemoryMetrics { used_mib: 100, ..MemoryMetrics::default() };
            *sections.section() = ProcessMetrics {
                process_utime_secs: Some(1.0),
                process_stime_secs: Some(0.0),
                process_rss_mib: Some(50.0),
                ..ProcessMetrics::default()
            };
            let facts: &mut HostFacts = sections.section();
            facts.facts.host_name = Some("node7".into());
            Sample::of_sources(SECOND, [("cpu", SourceState::Read, sections)])
        };
        let verdicts = |machine: f64| -> Vec<_> {
            let told = told(&[with_job(machine), with_job(machine)]);
            told.into_iter().map(|facts| facts.and_then(|facts| facts.host_allocation)).collect()
        };
        assert_eq!(verdicts(1.0), [None, Some(HostAllocation::Dedicated)]);
        assert_eq!(verdicts(4.0), [None, Some(HostAllocation::Shared)]);
    }
}
