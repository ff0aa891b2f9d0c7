use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Attribute, Gauge};

use super::shared_section;

/// Discards and flushes of every whole disk that had some: `disk_discard`. Those of a partition are its disk's. Rates are
/// null of a disk that was not there before, or whose counters began anew.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DiskDiscards(pub Vec<DiskDiscardMetrics>);

/// One disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskDiscardMetrics {
    /// Name of the device, such as `nvme0n1`.
    #[schemars(transform = Attribute("system.device"))]
    pub device: String,
    /// Discards that were completed: blocks that a file system no longer uses. Since Linux 4.18
    #[schemars(transform = Gauge("discards/second"))]
    pub discards_per_sec: Option<f64>,
    /// Bytes that were discarded.
    #[schemars(transform = Gauge("bytes/second"))]
    pub discard_bytes_per_sec: Option<f64>,
    /// Flushes that were completed, as `fsync` asks for: what is in the drive's own cache is written. Since Linux 5.5
    #[schemars(transform = Gauge("flushes/second"))]
    pub flushes_per_sec: Option<f64>,
    /// Time that a flush took; null when none ended.
    #[schemars(transform = Gauge("milliseconds"))]
    pub flush_latency_ms: Option<f64>,
}

impl Section for DiskDiscards {
    const NAME: &'static str = "disk_discard";
}

shared_section!(DiskDiscards);
