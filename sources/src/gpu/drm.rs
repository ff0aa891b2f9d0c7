//! What the job has of GPUs whose driver reports it with the open files of each process: Intel's i915 and xe, and
//! others.

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::GpuProcess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::procfile::attribute;

use super::fdinfo::Clients;
use super::names::DRM;
use super::share::{DrmShare, Share};

/// These have sources of their own.
const OTHERS: [&str; 2] = ["amdgpu", "nvidia"];

/// What the job has of GPUs of other vendors, by its open DRM files.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct DrmConfig {}

from_json!(DrmConfig);

#[typetag::deserialize(name = "drm")]
impl SourceConfig for DrmConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let cards = std::fs::read_dir(host.sysfs.join("class/drm")).into_iter().flatten().flatten();
        let render = cards.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"renderD"));
        let drivers = render.filter_map(|entry| driver(&attribute(&entry.path().join("device/uevent"))?));
        if !drivers.into_iter().any(|driver| is_other(&driver)) {
            return Ok(None);
        }
        let clients = Clients::new(host.procfs.clone(), is_other);
        Ok(Some(Box::new(Drm { clients })))
    }

    fn is_plainly_absent(&self, host: &Host) -> bool {
        !host.sysfs.join("class/drm").exists()
    }

    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::EveryTick)
    }
}

register_source!(
    SourceEntry::new::<DrmConfig>(DRM, "What the job has of Intel's and other GPUs (DRM)").on_by_default().order(82)
);

struct Drm {
    clients: Clients,
}

impl Source for Drm {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let tree = tick.job.map_or(&[][..], |job| job.members);
        let usage = self.clients.read(tree, tick.at);
        // Not every driver reports it: that the job uses nothing is known only if it has opened a device.
        let DrmShare(share) = out.section();
        let mut devices: Vec<&str> = usage.iter().map(|usage| usage.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        let lists = devices.into_iter().map(|device| processes(usage.iter().filter(|usage| usage.device == device)));
        *share = lists.map(|list| Share::of(&list)).reduce(Share::plus);
        Ok(())
    }
}

/// Usage as the list of a device.
pub(super) fn processes<'a>(usage: impl Iterator<Item = &'a super::fdinfo::Usage>) -> Vec<GpuProcess> {
    let process = |usage: &super::fdinfo::Usage| GpuProcess {
        pid: usage.pid,
        vram_bytes: usage.vram_bytes,
        utilization_pct: usage.utilization_pct,
        cu_occupancy_pct: None,
    };
    usage.map(process).collect()
}

fn is_other(driver: &str) -> bool {
    !OTHERS.iter().any(|other| driver.starts_with(other))
}

/// `DRIVER` of a `uevent` file.
pub(super) fn driver(uevent: &str) -> Option<String> {
    uevent.lines().find_map(|line| line.strip_prefix("DRIVER=")).map(str::to_owned)
}
