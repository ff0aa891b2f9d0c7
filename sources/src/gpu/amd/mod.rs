//! AMD GPUs, by sysfs, with libdrm where it can be loaded.

mod card;
mod kfd;
mod libdrm;
mod metrics;
mod pcie;
mod table;

use std::path::PathBuf;

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::Gpus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fdinfo::Clients;
use super::names::AMD;
use super::namespace::Namespace;
use super::visible::Visible;
use card::Card;
use kfd::Kfd;
use metrics::Readable;

/// The variables that say which devices are meant for a job.
const VARIABLES: [&str; 2] = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// AMD GPUs: use, memory, temperature, power, clocks, links, errors, and what the job has of them.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct AmdConfig {
    /// Where the device files of GPUs are, which libdrm asks.
    #[schemars(extend("x-needs-named-file" = true))]
    pub devices: PathBuf,
}

impl Default for AmdConfig {
    fn default() -> Self {
        Self { devices: "/dev/dri".into() }
    }
}

from_json!(AmdConfig);

#[typetag::deserialize(name = "amd")]
impl SourceConfig for AmdConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        // Where the driver is not loaded, nothing of libdrm is touched.
        if self.is_plainly_absent(host) {
            return Ok(None);
        }
        let kfd = Kfd::new(&host.sysfs);
        let cards = card::all(host, &self.devices, &kfd);
        let mut awake = cards.iter().filter(|card| !card.is_asleep());
        let broken = awake.find_map(|card| match metrics::check(&card.path) {
            Readable::Broken(reason) => Some((card, reason)),
            _ => None,
        });
        if let Some((card, reason)) = &broken {
            log::warn!("source amd: {}: {reason}; it is off", card.path.join(metrics::FILE).display());
        }
        if cards.is_empty() || broken.is_some() {
            return Ok(None);
        }
        Ok(Some(Box::new(Amd {
            cards,
            kfd,
            host: host.clone(),
            clients: Clients::new(host.procfs.clone(), |driver| driver == "amdgpu"),
            namespace: Namespace::new(AMD, &host.procfs),
            visible: Visible::default(),
        })))
    }

    fn is_plainly_absent(&self, host: &Host) -> bool {
        !host.sysfs.join("module/amdgpu").exists()
    }

    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::EveryTick)
    }
}

register_source!(
    SourceEntry::new::<AmdConfig>(AMD, "AMD GPUs, and what the job has of them (amdgpu)").on_by_default().order(81)
);

struct Amd {
    cards: Vec<Card>,
    kfd: Kfd,
    host: Host,
    clients: Clients,
    namespace: Namespace,
    visible: Visible,
}

impl Source for Amd {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.prime(tick, out)?;
        let Gpus(list) = out.section();
        for gpu in list.iter_mut() {
            self.visible.add(&VARIABLES, &self.host.procfs, tick, &mut gpu.detail);
        }
        Ok(())
    }

    /// Reads everything but values without a counter that can wait.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let tree = tick.job.map(|job| job.members);
        let usage = tree.map(|tree| self.clients.read(tree, tick.at)).unwrap_or_default();
        let count = self.cards.len();
        let Gpus(list) = out.section();
        list.clear();
        for card in &mut self.cards {
            // A card that cannot compute has no list.
            let listed = card.kfd.as_ref().map(|node| self.kfd.processes(node));
            let drawing = super::drm::processes(usage.iter().filter(|usage| usage.device == card.slot()));
            let computing = match &listed {
                Some(listed) => {
                    let pids =
                        |list: &Vec<_>| list.iter().map(|one: &kfd::Process| (one.pid, one.vram_bytes)).collect();
                    self.namespace.those_in(tree, listed.as_ref().map(pids), None, |_| None)
                }
                None => tree.map(|_| Vec::new()),
            };
            let is_used = !drawing.is_empty() || computing.as_ref().is_some_and(|list| !list.is_empty());
            let mut metrics = card.read(count, tick, is_used);
            let listed = listed.flatten();
            metrics.process_count = listed.as_ref().map(|list| list.len() as u32);
            let listed = listed.as_deref().unwrap_or_default();
            metrics.processes = computing.map(|computing| kfd::joined(drawing, computing, listed));
            // That it uses nothing is known only where all could be looked at.
            metrics.processes = metrics.processes.filter(|list| self.clients.is_complete || !list.is_empty());
            list.push(metrics);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
