//! Disks: counters from `/proc/diskstats`, identity from `/sys/block`, space from `statvfs`.

mod constants;
mod counters;
mod device;
mod mounts;
mod shared;
mod space;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use resource_tracker_core::background::Background;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::{DiskMetrics, Disks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{FIRST_ANSWER, assign, percent, rate};
use constants::{SECTOR, SURVEY};
use counters::{Counters, Devices};
use device::Identity;
pub(crate) use device::{Charged, charged, storage_bytes};
use mounts::{Facts, Surveyor};

/// Throughput, latency and queue of every disk, and the space of what is mounted from it.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct DiskConfig {}

#[typetag::deserialize(name = "disk")]
impl SourceConfig for DiskConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let mut surveyor = Surveyor::new(host);
        let facts = host.background("disk-facts", move |(at, changed)| surveyor.survey(at, changed));
        let (facts, now) = (facts.context("no thread to look at the mounts")?, Instant::now());
        facts.ask((now, false));
        Ok(Some(Box::new(Disk {
            devices: Devices::open(host)?,
            facts,
            asked: now,
            first_wait: FIRST_ANSWER,
            has_news: false,
            deltas: CounterDeltas::new("disk"),
        })))
    }
}

register_source!(
    SourceEntry::new::<DiskConfig>("disk", "Throughput, latency and queue of disks, and the space on them")
        .on_by_default()
        .order(50)
);

struct Disk {
    devices: Devices,
    facts: Background<(Instant, bool), Arc<Facts>>,
    asked: Instant,
    /// How long the first sample waits for the facts; nothing once it has waited.
    first_wait: Duration,
    /// Whether an unknown device came up or began to work.
    has_news: bool,
    deltas: CounterDeltas,
}

impl Source for Disk {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let wait = std::mem::take(&mut self.first_wait);
        self.read(tick, out, wait)
    }

    /// It does not wait for the facts, which were asked for when it was built. Every device is new then.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out, Duration::ZERO)?;
        self.has_news = false;
        Ok(())
    }
}

impl Disk {
    /// Reads, and waits so long for the first facts.
    fn read(&mut self, tick: &Tick, out: &mut Sections, wait: Duration) -> anyhow::Result<()> {
        if tick.at.saturating_duration_since(self.asked) >= SURVEY {
            self.facts.ask((tick.at, std::mem::take(&mut self.has_news)));
            self.asked = tick.at;
        }
        let facts = self.facts.first_answer(wait).unwrap_or_default();
        let list = &mut out.section::<Disks>().0;
        let mut count = 0;
        let mut entry = |fill: &mut dyn FnMut(&mut DiskMetrics)| {
            if count == list.len() {
                list.push(DiskMetrics::default());
            }
            fill(&mut list[count]);
            count += 1;
        };
        self.has_news |= self.devices.read(tick.at, tick.elapsed, |name| facts.devices.contains_key(name))?;
        for device in self.devices.iter() {
            if let Some(identity) = facts.devices.get(device.name()) {
                entry(&mut |disk| match device.time_of(tick.elapsed) {
                    Some(time) => {
                        set_identity(disk, device.name(), identity);
                        let (before, now) = self.devices.counters(device, &identity.paths);
                        set_counters(disk, &before, &now, time, &mut self.deltas);
                    }
                    None => {
                        *disk = DiskMetrics::default();
                        set_identity(disk, device.name(), identity);
                    }
                });
            }
        }
        for (source, mounts) in &facts.others {
            entry(&mut |disk| {
                if disk.device != *source || disk.read_bytes_total.is_some() {
                    *disk = DiskMetrics { device: source.clone(), ..DiskMetrics::default() };
                }
                assign(&mut disk.mounts, mounts);
            });
        }
        list.truncate(count);
        Ok(())
    }
}

fn set_identity(disk: &mut DiskMetrics, name: &str, identity: &Identity) {
    disk.device.clear();
    disk.device.push_str(name);
    assign(&mut disk.model, &identity.model);
    assign(&mut disk.vendor, &identity.vendor);
    assign(&mut disk.serial, &identity.serial);
    disk.device_type = identity.device_type;
    disk.kind = Some(identity.kind);
    disk.capacity_bytes = identity.capacity_bytes;
    assign(&mut disk.slaves, &identity.slaves);
    disk.is_counted = identity.is_counted();
    assign(&mut disk.mounts, &identity.mounts);
}

/// What was counted in this time; null where a counter began anew.
fn set_counters(disk: &mut DiskMetrics, before: &Counters, now: &Counters, time: Duration, deltas: &mut CounterDeltas) {
    let (secs, millis) = (time.as_secs_f64(), time.as_secs_f64() * 1e3);
    let per_sec = |count: u64| rate(count, 0, secs);
    let reads = now.reads.since(&before.reads, &disk.device, deltas);
    let writes = now.writes.since(&before.writes, &disk.device, deltas);
    disk.read_bytes = reads.map_or(0, |reads| reads.bytes);
    disk.write_bytes = writes.map_or(0, |writes| writes.bytes);
    disk.read_bytes_per_sec = reads.map(|reads| per_sec(reads.bytes));
    disk.write_bytes_per_sec = writes.map(|writes| per_sec(writes.bytes));
    disk.read_bytes_total = Some(now.reads.sectors.saturating_mul(SECTOR));
    disk.write_bytes_total = Some(now.writes.sectors.saturating_mul(SECTOR));
    disk.reads_per_sec = reads.map(|reads| per_sec(reads.completed));
    disk.writes_per_sec = writes.map(|writes| per_sec(writes.completed));
    disk.read_latency_ms = reads.and_then(|reads| reads.latency_ms());
    disk.write_latency_ms = writes.and_then(|writes| writes.latency_ms());
    // The kernel keeps these two in 32 bits of milliseconds on some versions, which go round.
    let weighted = now.weighted_millis.checked_sub(before.weighted_millis);
    disk.queue_length = weighted.map(|weighted| rate(weighted, 0, millis));
    let busy = now.busy_millis.checked_sub(before.busy_millis);
    disk.utilization_pct = busy.map(|busy| percent(busy as f64, millis).min(100.0));
}
