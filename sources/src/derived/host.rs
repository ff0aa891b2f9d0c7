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
