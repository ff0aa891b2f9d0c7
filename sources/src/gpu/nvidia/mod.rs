//! NVIDIA GPUs, through NVML, which is loaded when it is there.

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
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, register_source,
};
use resource_tracker_metrics::Gpus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::NVIDIA;
use super::namespace::Namespace;
use super::visible::Visible;
use device::Device;
use library::Library;
use pcie::Pcie;

/// What a job is told of the devices that are meant for it.
const VARIABLES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];

/// NVIDIA GPUs: use, memory, temperature, power, clocks, links, errors, and what the job has of them.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct NvidiaConfig {
    /// The NVML library to load, instead of libnvidia-ml.so.1 where the dynamic linker finds it.
    #[schemars(extend("x-needs-named-file" = true))]
    pub library: Option<PathBuf>,
}

#[typetag::deserialize(name = "nvidia")]
impl SourceConfig for NvidiaConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        if self.is_plainly_absent(host) {
            return Ok(None);
        }
        let Some(library) = library::open(self.library.as_deref())? else { return Ok(None) };
        Ok(Some(Box::new(Nvidia {
            library,
            host: host.clone(),
            devices: Vec::new(),
            pcie: Pcie::default(),
            namespace: Namespace::new(NVIDIA, &host.procfs),
            visible: Visible::default(),
        })))
    }

    /// There is no driver, nor a library that would load one, as far as a glance at the usual places shows. Whoever names
    /// a library, or a folder of libraries, may have it elsewhere.
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
    library: &'static Library,
    host: Host,
    devices: Vec<Device>,
    pcie: Pcie,
    namespace: Namespace,
    visible: Visible,
}

impl Source for Nvidia {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.prime(tick, out)?;
        let Gpus(list) = out.section();
        self.pcie.read(self.library, list);
        for gpu in list.iter_mut() {
            self.visible.add(&VARIABLES, &self.host.procfs, tick, &mut gpu.detail);
        }
        Ok(())
    }

    /// All but what has no counters and can wait.
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let count = self.library.nvml.device_count()? as usize;
        if count != self.devices.len() {
            // One has appeared or is gone, and the others may have moved.
            self.devices = (0..count as u32).map(Device::new).collect();
        }
        let tree = tick.job.map(|job| job.members);
        let Gpus(list) = out.section();
        list.clear();
        for device in &mut self.devices {
            let mut parts = device.read(self.library, count, tick, tree, &mut self.namespace);
            list.append(&mut parts);
        }
        Ok(())
    }
}
