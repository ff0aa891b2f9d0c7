//! A source for InfiniBand and RoCE: what each port of each adapter carries, and what goes wrong on it.
//!
//! Everything is read from `/sys/class/infiniband/DEVICE/ports/PORT`, which the kernel's drivers fill: `counters` with
//! what the InfiniBand specification demands, `hw_counters` with what the adapter adds. This file has how
//! it is configured, and which ports there are; `port.rs` has what is written of one and reads it, and `counter.rs` knows its
//! counters.

mod counter;
mod port;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use resource_tracker_core::{
    Host, Section, Sections, Source, SourceConfig, SourceEntry, Tick, export_plugin, register_section, register_source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::{OpenPort, names};

pub use crate::port::Port;

/// The ports of all adapters: `infiniband`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Infiniband(pub Vec<Port>);

impl Section for Infiniband {
    const NAME: &'static str = "infiniband";
}

register_section!(Infiniband);

/// InfiniBand and RoCE ports.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct InfinibandConfig {
    /// Where sysfs is mounted, when it is not where the tracker reads it.
    #[schemars(extend("x-needs-named-file" = true))]
    pub root: Option<PathBuf>,
}

#[typetag::deserialize(name = "infiniband")]
impl SourceConfig for InfinibandConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let sysfs = self.root.as_deref().unwrap_or(&host.sysfs);
        // Not `None` where there is no adapter: one may be plugged in, or its driver loaded, while the job runs.
        Ok(Some(Box::new(Adapters { folder: sysfs.join("class/infiniband"), ports: BTreeMap::new() })))
    }
}

register_source!(
    SourceEntry::new::<InfinibandConfig>("infiniband", "InfiniBand and RoCE ports").on_by_default().order(35)
);
export_plugin!();

struct Adapters {
    folder: PathBuf,
    /// Every port that was ever seen, by adapter and number.
    ports: BTreeMap<(String, u32), OpenPort>,
}

impl Source for Adapters {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let here = ports(&self.folder);
        for name @ (device, port) in &here {
            if !self.ports.contains_key(name) {
                let path = self.folder.join(device).join("ports").join(port.to_string());
                self.ports.insert(name.clone(), OpenPort::new(path));
            }
        }
        // A machine that never had a port has no section.
        if self.ports.is_empty() {
            return Ok(());
        }
        let Infiniband(list) = out.section();
        list.clear();
        for (name @ (device, port), open) in &mut self.ports {
            // Also while it is gone, so that its first rates afterwards are those of all the time.
            let read = open.read(tick.elapsed.as_secs_f64());
            if here.contains(name) {
                list.push(Port { device: device.clone(), port: *port, ..read });
            }
        }
        Ok(())
    }
}

/// The ports that are there now.
fn ports(folder: &Path) -> BTreeSet<(String, u32)> {
    let mut ports = BTreeSet::new();
    for device in names(folder) {
        let numbers = names(&folder.join(&device).join("ports"));
        ports.extend(numbers.iter().filter_map(|number| Some((device.clone(), number.parse().ok()?))));
    }
    ports
}
