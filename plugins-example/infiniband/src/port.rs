//! One port of an adapter, `/sys/class/infiniband/DEVICE/ports/PORT`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use resource_tracker_core::unit::{Counter, Gauge, Info};
use schemars::JsonSchema;
use serde::Serialize;

use crate::counter::{Total, Width};

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

/// The counters that rates are taken from, and what older drivers call those of 64 bits in `counters_ext`.
const RATED: [(&str, &str); 4] = [
    ("port_rcv_data", "port_rcv_data_64"),
    ("port_xmit_data", "port_xmit_data_64"),
    ("port_rcv_packets", "port_rcv_packets_64"),
    ("port_xmit_packets", "port_xmit_packets_64"),
];

/// A port that is read again and again.
pub(crate) struct OpenPort {
    path: PathBuf,
    width: Width,
    /// Which of the rated counters are in `counters_ext`. Decided once: the two do not count alike.
    extended: [bool; 4],
    totals: [Total; 4],
}

impl OpenPort {
    pub(crate) fn new(path: PathBuf) -> Self {
        let extended = RATED.map(|(_, name)| number(&path.join("counters_ext").join(name)).is_some());
        Self { path, width: Width::Bits32, extended, totals: Default::default() }
    }

    /// Reads it, `secs` after the last time.
    pub(crate) fn read(&mut self, secs: f64) -> Port {
        let text = |name: &str| fs::read_to_string(self.path.join(name)).ok().map(|text| text.trim().to_owned());
        // `4: ACTIVE`
        let word = |name: &str| text(name).map(|text| text.rsplit(": ").next().unwrap_or_default().to_owned());
        let mut port = Port {
            link_layer: text("link_layer"),
            state: word("state"),
            physical_state: word("phys_state"),
            // `100 Gb/sec (4X EDR)`
            rate_gbps: text("rate").and_then(|text| text.split(' ').next()?.parse().ok()),
            hw_counters: numbers(&self.path.join("hw_counters")),
            ..Port::default()
        };

        let mut counters = numbers(&self.path.join("counters"));
        let mut rated = RATED.map(|(name, _)| counters.remove(name));
        let beyond_32_bits = rated.iter().flatten().any(|value| *value > u32::MAX.into());
        if beyond_32_bits || counters.contains_key("unicast_rcv_packets") {
            self.width = Width::Bits64;
        }
        if self.extended.contains(&true) {
            let mut extended = numbers(&self.path.join("counters_ext"));
            for (index, (_, name)) in RATED.iter().enumerate() {
                let value = extended.remove(*name);
                if self.extended[index] {
                    rated[index] = value;
                }
            }
            // `port_unicast_rcv_packets` is `unicast_rcv_packets` today.
            let todays = |name: String| name.strip_prefix("port_").map(str::to_owned).unwrap_or(name);
            counters.extend(extended.into_iter().map(|(name, value)| (todays(name), value)));
        }
        for (name, value) in counters {
            group(&mut port, &name).insert(name, value);
        }

        let widths = self.extended.map(|extended| if extended { Width::Bits64 } else { self.width });
        let mut rated = rated.into_iter().zip(widths);
        let [rx_data, tx_data, rx_packets, tx_packets] = self.totals.each_mut().map(|total| {
            let (now, width) = rated.next()?;
            total.advance(now, width, secs)
        });
        // In units of 4 bytes.
        port.rx_bytes_total = rx_data.map(|data| data.total.saturating_mul(4));
        port.tx_bytes_total = tx_data.map(|data| data.total.saturating_mul(4));
        port.rx_bytes_per_sec = rx_data.and_then(|data| data.per_sec).map(|words| words * 4.0);
        port.tx_bytes_per_sec = tx_data.and_then(|data| data.per_sec).map(|words| words * 4.0);
        port.rx_packets_total = rx_packets.map(|packets| packets.total);
        port.tx_packets_total = tx_packets.map(|packets| packets.total);
        port.rx_packets_per_sec = rx_packets.and_then(|packets| packets.per_sec);
        port.tx_packets_per_sec = tx_packets.and_then(|packets| packets.per_sec);
        port
    }
}

/// Where a counter belongs, by the names that the kernel documents in `Documentation/ABI/stable/sysfs-class-infiniband`.
fn group<'a>(port: &'a mut Port, name: &str) -> &'a mut BTreeMap<String, u64> {
    match name {
        "link_downed" => &mut port.errors,
        _ if name.contains("error") => &mut port.errors,
        _ if name.ends_with("_discards") || name.ends_with("_dropped") => &mut port.discards,
        _ if name.ends_with("_packets") => &mut port.packets,
        _ => &mut port.counters,
    }
}

/// The counters in a folder, without those that are no number: some adapters say `N/A (no PMA)`.
fn numbers(folder: &Path) -> BTreeMap<String, u64> {
    // It is a setting.
    let counters = names(folder).into_iter().filter(|name| name != "lifespan");
    counters.filter_map(|name| Some((number(&folder.join(&name))?, name))).map(|(value, name)| (name, value)).collect()
}

fn number(path: &Path) -> Option<u64> {
    // The kernel gives such a file in one piece. There are dozens at each tick, so nothing is allocated or asked for.
    let mut text = [0; 32];
    let length = File::open(path).ok()?.read(&mut text).ok()?;
    str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

/// What is in a folder; nothing where there is none.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
