//! Disks: counters from `/proc/diskstats`, identity from `/sys/block`, space from `statvfs`.

mod constants;
mod counters;
mod device;
mod mounts;
mod shared;
mod space;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use resource_tracker_core::background::Background;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::{DiskMetrics, Disks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::procfile::{FIRST_ANSWER, assign, percent, rate};
use constants::{SECTOR, SURVEY};
use counters::{Counters, Devices, Transfers};
use device::Identity;
pub(crate) use device::storage_bytes;
use mounts::{Facts, Surveyor};

/// Throughput, latency and queue of every disk, and the space of what is mounted from it.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct DiskConfig {}

#[typetag::deserialize(name = "disk")]
impl SourceConfig for DiskConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let mut surveyor = Surveyor::new(host);
        let facts = Background::spawn("disk-facts", move |(at, changed)| surveyor.survey(at, changed));
        Ok(Some(Box::new(Disk {
            devices: Devices::open(host)?,
            facts: facts.context("no thread to look at the mounts")?,
            asked: None,
            first_wait: FIRST_ANSWER,
            has_news: false,
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
    asked: Option<Instant>,
    /// How long the first sample waits for the facts; nothing once it has waited.
    first_wait: Duration,
    /// Whether a device came up or began to work that was not known.
    has_news: bool,
}

impl Source for Disk {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let wait = std::mem::take(&mut self.first_wait);
        self.read(tick, out, wait)
    }

    /// Nobody waits for the facts, which are asked for with it. Every device is news then.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out, Duration::ZERO)?;
        self.has_news = false;
        Ok(())
    }
}

impl Disk {
    /// Waits so long for the first facts.
    fn read(&mut self, tick: &Tick, out: &mut Sections, wait: Duration) -> anyhow::Result<()> {
        if self.asked.is_none_or(|asked| tick.at.saturating_duration_since(asked) >= SURVEY) {
            self.facts.ask((tick.at, std::mem::take(&mut self.has_news)));
            self.asked = Some(tick.at);
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
        let millis = tick.elapsed.as_secs_f64() * 1e3;
        self.has_news |= self.devices.read(tick.at, |name| facts.devices.contains_key(name))?;
        for device in self.devices.iter() {
            if let Some(identity) = facts.devices.get(device.name()) {
                entry(&mut |disk| {
                    set_identity(disk, device.name(), identity);
                    set_counters(disk, &device.before, &device.now, millis);
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
    disk.capacity_bytes = identity.capacity_bytes;
    assign(&mut disk.slaves, &identity.slaves);
    assign(&mut disk.mounts, &identity.mounts);
}

fn set_counters(disk: &mut DiskMetrics, before: &Counters, now: &Counters, millis: f64) {
    let secs = millis / 1e3;
    let bytes = |now: &Transfers, before: &Transfers| now.sectors.saturating_sub(before.sectors).saturating_mul(SECTOR);
    let latency = |now: &Transfers, before: &Transfers| {
        let done = now.completed.saturating_sub(before.completed);
        (done > 0).then(|| now.millis.saturating_sub(before.millis) as f64 / done as f64)
    };
    disk.read_bytes = bytes(&now.reads, &before.reads);
    disk.write_bytes = bytes(&now.writes, &before.writes);
    disk.read_bytes_per_sec = Some(rate(disk.read_bytes, 0, secs));
    disk.write_bytes_per_sec = Some(rate(disk.write_bytes, 0, secs));
    disk.read_bytes_total = Some(now.reads.sectors.saturating_mul(SECTOR));
    disk.write_bytes_total = Some(now.writes.sectors.saturating_mul(SECTOR));
    disk.reads_per_sec = Some(rate(now.reads.completed, before.reads.completed, secs));
    disk.writes_per_sec = Some(rate(now.writes.completed, before.writes.completed, secs));
    disk.read_latency_ms = latency(&now.reads, &before.reads);
    disk.write_latency_ms = latency(&now.writes, &before.writes);
    // The kernel keeps these two in 32 bits of milliseconds on some versions; a wrap is a reset.
    disk.queue_length = Some(rate(now.weighted_millis, before.weighted_millis, millis));
    disk.utilization_pct = Some(percent(now.busy_millis.saturating_sub(before.busy_millis) as f64, millis).min(100.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(number: u64, elapsed: u64) -> Tick<'static> {
        Tick::new(number, Instant::now(), Duration::from_secs(elapsed), Duration::from_secs(1))
    }

    #[test]
    fn a_sector_is_512_bytes_on_a_4k_drive_too() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        let queue = root.join("block/sda/queue");
        std::fs::create_dir_all(&queue)?;
        for (name, text) in [("hw_sector_size", "4096"), ("logical_block_size", "4096"), ("rotational", "1")] {
            std::fs::write(queue.join(name), text)?;
        }
        std::fs::write(root.join("block/sda/size"), "1000\n")?;
        let write = |reads: &str, writes: &str| {
            let line = format!(
                "   8       0 sda {reads} {writes} 0 500 900 0 0 0 0\n   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n"
            );
            std::fs::write(root.join("diskstats"), line)
        };
        write("10 0 100 20", "5 0 50 10")?;
        let host = Host::new(root, root);
        let mut source = DiskConfig::default().build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        let mut out = Sections::default();
        source.collect(&tick(0, 0), &mut out)?;
        write("14 0 300 40", "5 0 50 10")?;
        source.collect(&tick(1, 2), &mut out)?;
        let disks = out.get::<Disks>().map(|list| list.0.clone()).unwrap_or_default();
        assert_eq!(disks.len(), 1, "a partition is no disk");
        assert_eq!(disks[0].capacity_bytes, Some(512_000));
        assert_eq!(disks[0].read_bytes_per_sec, Some(200.0 * 512.0 / 2.0));
        assert_eq!((disks[0].read_bytes_total, disks[0].write_bytes_total), (Some(300 * 512), Some(50 * 512)));
        assert_eq!((disks[0].read_latency_ms, disks[0].write_latency_ms), (Some(5.0), None));
        assert_eq!((disks[0].reads_per_sec, disks[0].writes_per_sec), (Some(2.0), Some(0.0)));
        Ok(())
    }

    #[test]
    fn queue_and_utilisation_are_shares_of_the_time() {
        let counters = |busy_millis, weighted_millis| {
            let none = Transfers { completed: 0, sectors: 0, millis: 0 };
            Counters { reads: none, writes: none, busy_millis, weighted_millis }
        };
        let mut disk = DiskMetrics::default();
        set_counters(&mut disk, &counters(100, 1000), &counters(600, 4000), 1000.0);
        assert_eq!((disk.utilization_pct, disk.queue_length), (Some(50.0), Some(3.0)));
        set_counters(&mut disk, &counters(600, 4000), &counters(0, 0), 0.0);
        assert_eq!((disk.utilization_pct, disk.queue_length), (Some(0.0), Some(0.0)));
    }
}
