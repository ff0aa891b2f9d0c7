//! What each GPU did.

use std::collections::BTreeMap;

use resource_tracker_core::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::{GpuFields, GpuList};
use crate::readable::Readable;
use crate::statistics::{Level, Series, Spread};

/// More than any machine has; those that come after are left out.
const GPUS: usize = 1024;
/// Vendors have fewer reasons to throttle.
const REASONS: usize = 64;
const MIB: f64 = 1_048_576.0;

/// Sums over the samples of all GPUs.
#[derive(Default)]
pub(crate) struct GpuStatistics {
    /// Of the sample that was added last.
    lists: Vec<GpuList>,
    gpus: Vec<Gpu>,
    has_more: bool,
}

#[derive(Default)]
struct Gpu {
    uuid: String,
    name: String,
    parent_uuid: Option<String>,
    utilization: Series,
    memory: Series,
    memory_total: Option<u64>,
    power: Series,
    energy: Option<f64>,
    temperature: Level,
    throttled_secs: BTreeMap<String, f64>,
}

impl GpuStatistics {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        let mut lists = std::mem::take(&mut self.lists);
        readable.fill_fields(sample, &mut lists);
        for gpu in lists.iter().flat_map(|gpus| &gpus.0) {
            // Without a UUID, a GPU cannot be told from others.
            let Some(uuid) = &gpu.uuid else { continue };
            match self.of(uuid) {
                Some(known) => known.add(gpu, secs),
                None => self.has_more = true,
            }
        }
        self.lists = lists;
    }

    /// Says if there were too many GPUs.
    pub(crate) fn problem(&self) -> Option<String> {
        self.has_more.then(|| format!("there are more than {GPUS} GPUs: the others are left out"))
    }

    fn of(&mut self, uuid: &str) -> Option<&mut Gpu> {
        let index = match self.gpus.iter().position(|gpu| gpu.uuid == uuid) {
            Some(index) => index,
            None if self.gpus.len() == GPUS => return None,
            None => {
                self.gpus.push(Gpu { uuid: uuid.to_owned(), ..Gpu::default() });
                self.gpus.len() - 1
            }
        };
        self.gpus.get_mut(index)
    }

    pub(crate) fn summary(&self) -> Vec<GpuSummary> {
        self.gpus.iter().map(Gpu::summary).collect()
    }
}

impl Gpu {
    fn add(&mut self, gpu: &GpuFields, secs: f64) {
        if let Some(name) = &gpu.name {
            self.name.clone_from(name);
        }
        self.parent_uuid.clone_from(&gpu.parent_uuid);
        self.utilization.add(gpu.utilization_pct.or(gpu.sm_utilization_pct), secs);
        self.memory.add(gpu.vram_used_bytes.map(|bytes| bytes as f64 / MIB), secs);
        self.memory_total = gpu.vram_total_bytes.or(self.memory_total);
        self.power.add(gpu.power_watts, secs);
        if let Some(joules) = gpu.energy_joules {
            self.energy = Some(self.energy.unwrap_or(0.0) + joules);
        }
        self.temperature.add(gpu.temperature_celsius.map(f64::from), secs);
        for reason in gpu.throttle_reasons.iter().flatten() {
            if let Some(throttled) = self.throttled_secs.get_mut(reason) {
                *throttled += secs;
            } else if self.throttled_secs.len() < REASONS {
                self.throttled_secs.insert(reason.clone(), secs);
            }
        }
    }

    fn summary(&self) -> GpuSummary {
        GpuSummary {
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            parent_uuid: self.parent_uuid.clone(),
            utilization_pct: self.utilization.spread(),
            memory_mib: self.memory.spread(),
            memory_total_mib: self.memory_total.map(|bytes| bytes as f64 / MIB),
            power_watts: self.power.spread(),
            energy_joules: self.energy,
            peak_temperature_celsius: self.temperature.peak(),
            throttled_secs: self.throttled_secs.clone(),
        }
    }
}

/// What a GPU, or a part of one, did over the run, for the job and all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuSummary {
    /// Identifier of the device. `uuid`
    pub uuid: String,
    /// Name of the device; empty where it is not known. `name`
    pub name: String,
    /// The device that this one is a part of. `parent_uuid`
    pub parent_uuid: Option<String>,
    /// Share of time in which it computed. `utilization_pct`, or `sm_utilization_pct` where that is null
    pub utilization_pct: Option<Spread>,
    /// Its memory in use. `vram_used_bytes`
    pub memory_mib: Option<Spread>,
    /// Its memory. `vram_total_bytes`
    pub memory_total_mib: Option<f64>,
    /// Its power draw. `power_watts`
    pub power_watts: Option<Spread>,
    /// The energy that it used. Sum of `energy_joules`
    pub energy_joules: Option<f64>,
    /// The highest temperature at a sample. `temperature_celsius`
    pub peak_temperature_celsius: Option<f64>,
    /// For how long its clocks were held back, by reason. `throttle_reasons`
    pub throttled_secs: BTreeMap<String, f64>,
}

#[cfg(test)]
mod tests {
    use resource_tracker_metrics::GpuMetrics;

    use super::*;

    #[test]
    fn what_is_too_much_is_said() {
        let mut statistics = GpuStatistics::default();
        let gpu = serde_json::to_value(GpuMetrics::default()).unwrap();
        let mut sample = |count: usize| {
            let named = (0..count).map(|number| {
                let mut gpu = gpu.clone();
                gpu["uuid"] = number.to_string().into();
                gpu
            });
            let line = serde_json::json!({ "timestamp_ms": 1000, "gpu": named.collect::<Vec<_>>() });
            statistics.add(&Sample::from_json(&line.to_string()).unwrap(), 1.0, &mut Readable::default());
            (statistics.summary().len(), statistics.problem().is_some())
        };
        assert_eq!([sample(GPUS), sample(GPUS + 1)], [(GPUS, false), (GPUS, true)]);
    }
}
