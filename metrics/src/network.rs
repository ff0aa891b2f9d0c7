use schemars::JsonSchema;
use serde::Serialize;

use resource_tracker_core::unit::{Counter, Gauge};

use super::list_section;

list_section! {
    /// The network interfaces, without loopback: `network`. Those of the network namespace that the tracker is in.
    Networks(NetworkMetrics), "network"
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct NetworkMetrics {
    /// Name of the interface, such as `eth0`. `/proc/net/dev`
    pub interface: String,
    /// Hardware address. `/sys/class/net/IFACE/address`
    pub mac_address: Option<String>,
    /// Kernel driver, such as `igc` or `virtio_net`. `/sys/class/net/IFACE/device/driver`
    pub driver: Option<String>,
    /// State of the link: `up`, `down`, `unknown`, … `/sys/class/net/IFACE/operstate`
    pub operstate: Option<String>,
    /// Speed of the link; -1 where the interface reports none. `/sys/class/net/IFACE/speed`
    #[schemars(transform = Gauge("Mbit/s"))]
    pub speed_mbps: Option<i64>,
    /// Largest packet. `/sys/class/net/IFACE/mtu`
    #[schemars(transform = Gauge("bytes"))]
    pub mtu: Option<u32>,
    /// Bytes received. `/proc/net/dev`
    #[schemars(transform = Gauge("bytes/second"))]
    pub rx_bytes_per_sec: f64,
    /// Bytes sent. `/proc/net/dev`
    #[schemars(transform = Gauge("bytes/second"))]
    pub tx_bytes_per_sec: f64,
    /// Bytes received since the reading before, for a sum without rounding. It is not in the output, which has
    /// `rx_bytes_total`.
    #[serde(skip)]
    pub rx_bytes: u64,
    /// Bytes sent since the reading before, likewise.
    #[serde(skip)]
    pub tx_bytes: u64,
    /// Bytes received since the interface came up. `/proc/net/dev`
    #[schemars(transform = Counter("bytes"))]
    pub rx_bytes_total: u64,
    /// Bytes sent since the interface came up. `/proc/net/dev`
    #[schemars(transform = Counter("bytes"))]
    pub tx_bytes_total: u64,
    /// Packets received. `/proc/net/dev`
    #[schemars(transform = Gauge("packets/second"))]
    pub rx_packets_per_sec: f64,
    /// Packets sent. `/proc/net/dev`
    #[schemars(transform = Gauge("packets/second"))]
    pub tx_packets_per_sec: f64,
    /// Receive errors since the interface came up. `/proc/net/dev`, `errs`
    #[schemars(transform = Counter("packets"))]
    pub rx_errors_total: u64,
    /// Send errors since the interface came up. `/proc/net/dev`, `errs`
    #[schemars(transform = Counter("packets"))]
    pub tx_errors_total: u64,
    /// Packets received and thrown away since the interface came up. `/proc/net/dev`, `drop`
    #[schemars(transform = Counter("packets"))]
    pub rx_dropped_total: u64,
    /// Packets thrown away instead of sent since the interface came up. `/proc/net/dev`, `drop`
    #[schemars(transform = Counter("packets"))]
    pub tx_dropped_total: u64,
}
