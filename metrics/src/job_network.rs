use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::Delta;

/// What came and went through network namespaces that processes of the tree are in and the tracker is not, as those of
/// containers, in `cpu` beside what else the tree uses. One that a process of the tree in another such namespace has made or
/// entered lies within that one, and is not counted again. All fields are null where there is no such namespace, more than 64 (until
/// all processes were looked at and no more were met), or no process of the tree lives: what passes through the tracker's own is
/// not told by process. They are null as well while it is not known what the interfaces stand on: at first, and always where the
/// tracker may not enter the namespace (`CAP_SYS_ADMIN`), unless it has one interface only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobNetworkMetrics {
    /// Bytes received over the edge of these namespaces, each once, from the sample on that first sees the namespace to the last
    /// one in which a process of it lives. They are looked for often at first, then every 5 s, at the root and 100 other processes in turn. A card that
    /// is moved in counts from its first reading, other interfaces from nothing. `/proc/PID/net/dev`
    #[schemars(transform = Delta("bytes").named("process.network.io", &[("network.io.direction", "receive")]))]
    pub process_network_rx_bytes: Option<u64>,
    /// Bytes sent over the edge of these namespaces. As `process_network_rx_bytes`
    #[schemars(transform = Delta("bytes").named("process.network.io", &[("network.io.direction", "transmit")]))]
    pub process_network_tx_bytes: Option<u64>,
}

impl Section for JobNetworkMetrics {
    const NAME: &'static str = "cpu";
}

crate::shared_section!(JobNetworkMetrics);
