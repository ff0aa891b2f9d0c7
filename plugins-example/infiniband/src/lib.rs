//! A source for InfiniBand and RoCE: what each port of each adapter carries, and what goes wrong on it.
//!
//! Everything is read from `/sys/class/infiniband/DEVICE/ports/PORT`, which the kernel's drivers fill: `counters` with
//! what the InfiniBand specification demands, `hw_counters` with what the adapter adds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use resource_tracker_core::unit::{Counter, Gauge, Info};
use resource_tracker_core::{
    Host, Section, Sections, Source, SourceConfig, SourceEntry, Tick, export_plugin, register_section, register_source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Bytes received, without the gaps of a counter that wraps. `counters/port_rcv_data`
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
    /// Everything else in `counters`, as it is: errors of the link and of packets, discards, `port_xmit_wait`.
    #[schemars(transform = Counter("events"))]
    pub errors: BTreeMap<String, u64>,
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
        let ports = ports(&sysfs.join("class/infiniband"));
        // `None` says that there is no such hardware, which is no error.
        Ok((!ports.is_empty()).then(|| Box::new(Adapters { ports }) as Box<dyn Source>))
    }
}

register_source!(
    SourceEntry::new::<InfinibandConfig>("infiniband", "InfiniBand and RoCE ports").on_by_default().order(35)
);
export_plugin!();

struct Adapters {
    ports: Vec<OpenPort>,
}

/// A port with the counters that rates are taken from.
struct OpenPort {
    path: PathBuf,
    device: String,
    port: u32,
    data: [Total; 2],
    packets: [Total; 2],
}

/// What a counter has counted, also when it began anew in between.
#[derive(Default)]
struct Total {
    raw: Option<u64>,
    total: u64,
}

impl Total {
    /// The total, and what was added since the last reading; nothing the first time.
    fn advance(&mut self, raw: u64) -> (u64, u64) {
        let Some(before) = self.raw.replace(raw) else {
            self.total = raw;
            return (raw, 0);
        };
        // Old adapters have counters of 32 bits, which wrap. One of 64 bits that falls was reset.
        let added = match raw.checked_sub(before) {
            Some(added) => added,
            None if before <= u32::MAX.into() => (1 << 32) - before + raw,
            None => raw,
        };
        self.total = self.total.saturating_add(added);
        (self.total, added)
    }
}

fn ports(root: &Path) -> Vec<OpenPort> {
    let mut ports: Vec<OpenPort> = names(root)
        .into_iter()
        .flat_map(|device| {
            let path = root.join(&device).join("ports");
            let numbers = names(&path).into_iter().filter_map(|name| name.parse().ok());
            let open = move |port: u32| OpenPort {
                path: path.join(port.to_string()),
                device: device.clone(),
                port,
                data: Default::default(),
                packets: Default::default(),
            };
            numbers.map(open).collect::<Vec<_>>()
        })
        .collect();
    ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    ports
}

impl Source for Adapters {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Infiniband(list) = out.section();
        list.clear();
        list.extend(self.ports.iter_mut().map(|port| port.read(tick.elapsed.as_secs_f64())));
        Ok(())
    }
}

impl OpenPort {
    fn read(&mut self, secs: f64) -> Port {
        let text = |name: &str| fs::read_to_string(self.path.join(name)).ok().map(|text| text.trim().to_owned());
        // `4: ACTIVE`
        let word = |name: &str| text(name).map(|text| text.rsplit(": ").next().unwrap_or_default().to_owned());
        let mut counters = self.counters("counters");
        let mut both = |names: [&str; 2]| names.map(|name| counters.remove(name));
        let (data, packets) =
            (both(["port_rcv_data", "port_xmit_data"]), both(["port_rcv_packets", "port_xmit_packets"]));
        let per_sec = |added: u64| if secs > 0.0 { added as f64 / secs } else { 0.0 };
        let mut port = Port {
            device: self.device.clone(),
            port: self.port,
            link_layer: text("link_layer"),
            state: word("state"),
            physical_state: word("phys_state"),
            // `100 Gb/sec (4X EDR)`
            rate_gbps: text("rate").and_then(|text| text.split(' ').next()?.parse().ok()),
            errors: counters,
            hw_counters: self.counters("hw_counters"),
            ..Port::default()
        };
        let [rx, tx] = advance(&mut self.data, data);
        let bytes = |words: u64| words.saturating_mul(4);
        (port.rx_bytes_total, port.tx_bytes_total) = (rx.map(|(all, _)| bytes(all)), tx.map(|(all, _)| bytes(all)));
        port.rx_bytes_per_sec = rx.map(|(_, added)| per_sec(bytes(added)));
        port.tx_bytes_per_sec = tx.map(|(_, added)| per_sec(bytes(added)));
        let [rx, tx] = advance(&mut self.packets, packets);
        port.rx_packets_per_sec = rx.map(|(_, added)| per_sec(added));
        port.tx_packets_per_sec = tx.map(|(_, added)| per_sec(added));
        port
    }

    /// The counters in a folder, without those that are no number: some adapters say `N/A (no PMA)`.
    fn counters(&self, folder: &str) -> BTreeMap<String, u64> {
        let folder = self.path.join(folder);
        let value = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
        let settings = ["lifespan"];
        let counters = names(&folder).into_iter().filter(|name| !settings.contains(&name.as_str()));
        counters.filter_map(|name| Some((value(&name)?, name))).map(|(value, name)| (name, value)).collect()
    }
}

fn advance(totals: &mut [Total; 2], now: [Option<u64>; 2]) -> [Option<(u64, u64)>; 2] {
    let [rx, tx] = totals;
    [now[0].map(|now| rx.advance(now)), now[1].map(|now| tx.advance(now))]
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
