//! NVIDIA GPUs, through NVML, which is loaded when it is there.

mod cards;
mod device;
mod driver;
mod extra;
mod gpm;
mod library;
mod links;
mod mig;
mod pcie;
mod processes;
mod shares;

use std::path::{Path, PathBuf};

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::{GpuMetrics, Gpus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::NVIDIA;
use super::namespace::Namespace;
use super::sleep_policy::SleepPolicy;
use super::visible::Visible;
use cards::Cards;
use device::Device;
use library::Library;
use pcie::Windows;

/// The variables that say which devices are meant for a job.
const VARIABLES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];

/// NVIDIA GPUs: use, memory, temperature, power, clocks, links, errors, and what the job has of them.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct NvidiaConfig {
    /// The NVML library to load, instead of libnvidia-ml.so.1 where the dynamic linker finds it.
    #[schemars(extend("x-needs-named-file" = true))]
    pub library: Option<PathBuf>,
}

from_json!(NvidiaConfig);

#[typetag::deserialize(name = "nvidia")]
impl SourceConfig for NvidiaConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        if self.is_plainly_absent(host) {
            return Ok(None);
        }
        let cards = Cards::find(host);
        let library = if cards.are_asleep() {
            None
        } else {
            let Some(library) = library::open(self.library.as_deref())? else { return Ok(None) };
            Some(library)
        };
        Ok(Some(Box::new(Nvidia {
            configured: self.library.clone(),
            library,
            is_unusable: false,
            host: host.clone(),
            cards,
            sleep_policy: SleepPolicy::default(),
            devices: Vec::new(),
            windows: Windows::default(),
            namespace: Namespace::new(NVIDIA, &host.procfs),
            visible: Visible::default(),
        })))
    }

    /// Whether a glance at the usual places shows no driver, nor a library that would load one. If a library, or a
    /// folder of libraries, was named, it may be elsewhere.
    fn is_plainly_absent(&self, host: &Host) -> bool {
        let driver = [host.procfs.join("driver/nvidia"), "/dev/nvidiactl".into(), "/dev/dxg".into()];
        let mut libraries = library::FOLDERS.iter().map(|folder| Path::new(folder).join(library::DEFAULT));
        let is_named = self.library.is_some() || std::env::var_os("LD_LIBRARY_PATH").is_some();
        !is_named && !driver.iter().any(|file| file.exists()) && !libraries.any(|file| file.exists())
    }

    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::EveryTick)
    }
}

register_source!(
    SourceEntry::new::<NvidiaConfig>(NVIDIA, "NVIDIA GPUs, and what the job has of them (NVML)")
        .on_by_default()
        .order(80)
);

struct Nvidia {
    configured: Option<PathBuf>,
    /// Held while the GPUs are read.
    library: Option<&'static Library>,
    /// The library was loaded late, and cannot be used.
    is_unusable: bool,
    host: Host,
    cards: Cards,
    sleep_policy: SleepPolicy,
    devices: Vec<Device>,
    windows: Windows,
    namespace: Namespace,
    visible: Visible,
}

impl Source for Nvidia {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.prime(tick, out)?;
        let Gpus(list) = out.section();
        if let Some(library) = self.library {
            let devices = &self.devices;
            self.windows.read(library, list, |index| devices.get(index).is_some_and(Device::tells_pcie));
        }
        for gpu in list.iter_mut() {
            self.visible.add(&VARIABLES, &self.host.procfs, tick, &mut gpu.detail);
        }
        self.leave_alone_if_idle(list, tick);
        Ok(())
    }

    /// Reads everything but values without a counter that can wait.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Gpus(list) = out.section();
        list.clear();
        let Some(library) = self.held(tick)? else {
            if !self.is_unusable {
                let names = self.cards.names().enumerate();
                list.extend(names.map(|(index, name)| {
                    let facts = self.devices.get(index).and_then(Device::facts);
                    facts.cloned().unwrap_or(name)
                }));
            }
            return Ok(());
        };
        let count = library.nvml.device_count()? as usize;
        if count != self.devices.len() {
            // One has appeared or is gone, and the others may have moved.
            self.devices = (0..count as u32).map(Device::new).collect();
        }
        let tree = tick.job.map(|job| job.members);
        for device in &mut self.devices {
            let mut parts = device.read(library, count, tick, tree, &mut self.namespace);
            list.append(&mut parts);
        }
        Ok(())
    }
}

impl Nvidia {
    /// The library, unless the GPUs sleep or are to fall asleep.
    fn held(&mut self, tick: &Tick) -> anyhow::Result<Option<&'static Library>> {
        let Self { cards, sleep_policy, .. } = self;
        let tree = tick.job.map_or(&[][..], |job| job.members);
        // A GPU that sleeps is not asked, and a GPU that NVML holds does not sleep.
        let is_asleep = self.library.is_none() && cards.are_asleep();
        if self.is_unusable || !sleep_policy.should_read(is_asleep, || cards.are_used_by(tree), tick.at) {
            return Ok(None);
        }
        if self.library.is_none() {
            self.library = library::open(self.configured.as_deref())?;
            self.is_unusable = self.library.is_none();
        }
        Ok(self.library)
    }

    fn leave_alone_if_idle(&mut self, list: &[GpuMetrics], tick: &Tick) {
        let Some(library) = self.library else { return };
        let is_unused = |gpu: &GpuMetrics| {
            let tells_none = gpu.processes.as_ref().is_none_or(Vec::is_empty);
            tells_none && gpu.utilization_pct == Some(0.0)
        };
        let is_idle = !tick.last && list.iter().all(is_unused);
        let Self { cards, sleep_policy, .. } = self;
        let tree = tick.job.map_or(&[][..], |job| job.members);
        if sleep_policy.record_reading(is_idle, || cards.can_sleep() && !cards.are_used_by(tree), tick.at) {
            self.devices.iter_mut().for_each(Device::let_go);
            self.library = None;
            library.let_go();
        }
    }
}
