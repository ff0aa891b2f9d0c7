use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::unit::{Attribute, Counter, Gauge};

use super::list_section;

list_section! {
    /// The network interfaces, without loopback: `network`. Those of the network namespace that the tracker is in. What is
    /// counted of one in an interval in which its counters began anew is 0.
    Networks(NetworkMetrics), "network"
}

/// One network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkMetrics {
    /// Name of the interface, such as `eth0`. `/proc/net/dev`
    #[schemars(transform = Attribute("network.interface.name"))]
    pub interface: String,
    /// Number of the interface in its namespace, which stays when it is renamed. `ioctl`, `SIOCGIFINDEX`
    pub ifindex: Option<u32>,
    /// What it is, as `ip -d link` names it: `veth`, `bridge`, `vlan`, `bond`, `tun`, …; null where the kernel names nothing, as
    /// for a network card. netlink, `IFLA_INFO_KIND`; else `/sys/class/net/IFACE/uevent`, `DEVTYPE`
    pub kind: Option<String>,
    /// Interfaces that this one stands on: the ports of a bridge or bond, the parent of a VLAN. Its bytes are counted
    /// there too. `/sys/class/net/IFACE/lower_*`; netlink, `IFLA_LINK`
    pub lower: Vec<String>,
    /// Bridge or bond that this one is a port of. netlink, `IFLA_MASTER`; else `/sys/class/net/IFACE/master`
    pub master: Option<String>,
    /// Whether its bytes are in sums, such as `net_recv_bytes` of a CSV: whether it is at the edge of the namespace. Network
    /// cards are; where there are none, as in most containers, those that lead into another namespace, else TAP interfaces,
    /// else all that stand on no other. Null while that is not known.
    pub is_counted: Option<bool>,
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
    /// Bytes received that a sum is to have, without rounding: those since the reading before where `is_counted`, and with
    /// the first of them those from when that was not known yet; else 0. It is not in the output.
    #[serde(skip)]
    pub counted_rx_bytes: u64,
    /// Bytes sent that a sum is to have, likewise.
    #[serde(skip)]
    pub counted_tx_bytes: u64,
    /// Bytes received since the interface was made, or its driver began anew. `/proc/net/dev`
    #[schemars(transform = Counter("bytes").named("system.network.io", &[("network.io.direction", "receive")]))]
    pub rx_bytes_total: u64,
    /// Bytes sent since the interface was made, or its driver began anew. `/proc/net/dev`
    #[schemars(transform = Counter("bytes").named("system.network.io", &[("network.io.direction", "transmit")]))]
    pub tx_bytes_total: u64,
    /// Packets received. `/proc/net/dev`
    #[schemars(transform = Gauge("packets/second"))]
    pub rx_packets_per_sec: f64,
    /// Packets sent. `/proc/net/dev`
    #[schemars(transform = Gauge("packets/second"))]
    pub tx_packets_per_sec: f64,
    /// Receive errors since the interface was made. `/proc/net/dev`, `errs`
    #[schemars(transform = Counter("packets").named("system.network.errors", &[("network.io.direction", "receive")]))]
    pub rx_errors_total: u64,
    /// Send errors since the interface was made. `/proc/net/dev`, `errs`
    #[schemars(transform = Counter("packets").named("system.network.errors", &[("network.io.direction", "transmit")]))]
    pub tx_errors_total: u64,
    /// Packets received and thrown away since the interface was made. `/proc/net/dev`, `drop`
    #[schemars(transform = Counter("packets").named("system.network.packet.dropped", &[("network.io.direction", "receive")]))]
    pub rx_dropped_total: u64,
    /// Packets thrown away instead of sent since the interface was made. `/proc/net/dev`, `drop`
    #[schemars(transform = Counter("packets").named("system.network.packet.dropped", &[("network.io.direction", "transmit")]))]
    pub tx_dropped_total: u64,
}
