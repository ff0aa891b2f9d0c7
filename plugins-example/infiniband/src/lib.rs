//! A source for InfiniBand and RoCE: what each port of each adapter carries, and what goes wrong on it.
//!
//! Everything is read from `/sys/class/infiniband/DEVICE/ports/PORT`, which the kernel's drivers fill: `counters` with
//! what the InfiniBand specification demands, `hw_counters` with what the adapter adds. This file has what is written,
//! how it is configured, and which ports there are; `port.rs` reads one port, and `counter.rs` knows its counters.

mod counter;
mod port;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use resource_tracker_core::unit::{Counter, Gauge, Info};
use resource_tracker_core::{
    Host, Section, Sections, Source, SourceConfig, SourceEntry, Tick, export_plugin, register_section, register_source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::{OpenPort, names};

/// The ports of all adapters: `infiniband`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Infiniband(pub Vec<Port>);

impl Section for Infiniband {
    const NAME: &'static str = "infiniband";
}

register_section!(Infiniband);

/// One port of an adapter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Port {
    /// The adapter, such as `mlx5_0`.
    #[schemars(transform = Info)]
    pub device: String,
    /// Number of the port, from 1 on.
    #[schemars(transform = Info)]
    pub port: u32,
    /// `InfiniBand`, or `Ethernet` for RoCE. `link_layer`
    #[schemars(transform = Info)]
    pub link_layer: Option<String>,
    /// `ACTIVE` when it can be used. `state`
    #[schemars(transform = Info)]
    pub state: Option<String>,
    /// `LinkUp` when something is at the other end. `phys_state`
    #[schemars(transform = Info)]
    pub physical_state: Option<String>,
    /// What the link can carry in one direction. `rate`
    #[schemars(transform = Gauge("Gbit/s"))]
    pub rate_gbps: Option<f64>,
    /// Bytes received. `counters/port_rcv_data`, in units of 4 bytes
    #[schemars(transform = Gauge("bytes/second"))]
    pub rx_bytes_per_sec: Option<f64>,
    /// Bytes sent. `counters/port_xmit_data`, in units of 4 bytes
    #[schemars(transform = Gauge("bytes/second"))]
    pub tx_bytes_per_sec: Option<f64>,
    /// Bytes received, going on where the counter wraps or is reset. `counters/port_rcv_data`
    #[schemars(transform = Counter("bytes"))]
    pub rx_bytes_total: Option<u64>,
    /// Bytes sent, likewise. `counters/port_xmit_data`
    #[schemars(transform = Counter("bytes"))]
    pub tx_bytes_total: Option<u64>,
    /// Packets received. `counters/port_rcv_packets`
    #[schemars(transform = Gauge("packets/second"))]
    pub rx_packets_per_sec: Option<f64>,
    /// Packets sent. `counters/port_xmit_packets`
    #[schemars(transform = Gauge("packets/second"))]
    pub tx_packets_per_sec: Option<f64>,
    /// Packets received, going on where the counter wraps or is reset. `counters/port_rcv_packets`
    #[schemars(transform = Counter("packets"))]
    pub rx_packets_total: Option<u64>,
    /// Packets sent, likewise. `counters/port_xmit_packets`
    #[schemars(transform = Counter("packets"))]
    pub tx_packets_total: Option<u64>,
    /// Packets by how they were addressed, as the adapter counts them. `counters/unicast_*_packets`,
    /// `counters/multicast_*_packets`
    #[schemars(transform = Counter("packets"))]
    pub packets: BTreeMap<String, u64>,
    /// Packets that were good, and thrown away because there was no room or no link. `counters/port_xmit_discards`,
    /// `counters/VL15_dropped`
    #[schemars(transform = Counter("packets"))]
    pub discards: BTreeMap<String, u64>,
    /// Errors of the link and of packets, as the adapter counts them. `counters/*_errors`, `counters/link_downed` and
    /// others
    #[schemars(transform = Counter("events"))]
    pub errors: BTreeMap<String, u64>,
    /// What else is in `counters`, as it is, such as `port_xmit_wait`: ticks of the adapter in which it had something to
    /// send, and could not.
    #[schemars(transform = Counter("events"))]
    pub counters: BTreeMap<String, u64>,
    /// What the adapter counts besides, as it is. `hw_counters`
    #[schemars(transform = Counter("events"))]
    pub hw_counters: BTreeMap<String, u64>,
}

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
