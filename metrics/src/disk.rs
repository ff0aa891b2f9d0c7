use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::unit::{Attribute, Counter, Gauge};

use super::list_section;

use crate::lenient::known;

list_section! {
    /// The disks and what is mounted from them: `disk`. One entry per whole block device that has a capacity;
    /// device-mapper volumes where they are mounted; and one per file system without a block device of its own (a ZFS
    /// pool, an NFS export, a FUSE mount), which has mounts and no I/O figures. What is counted over an interval in which a
    /// device began anew is null.
    Disks(DiskMetrics), "disk"
}

/// One disk, or one file system without a block device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskMetrics {
    /// Kernel name of the device, such as `nvme0n1`, or the source of the mount, such as `server:/export`.
    #[schemars(transform = Attribute("system.device"))]
    pub device: String,
    /// Model of the drive. `/sys/block/DEV/device/model`
    pub model: Option<String>,
    /// Vendor of the drive. `/sys/block/DEV/device/vendor`
    pub vendor: Option<String>,
    /// Serial number or WWID. `/sys/block/DEV/device/serial`, `/sys/block/DEV/serial`, `/sys/block/DEV/wwid`
    pub serial: Option<String>,
    /// Kind of drive. The kernel's name of it, and `/sys/block/DEV/queue/rotational`
    #[serde(default, deserialize_with = "known")]
    pub device_type: Option<DiskType>,
    /// What it is to the devices above and below it. The kernel's name of it, `/sys/block/DEV/hidden` and `slaves`
    #[serde(default, deserialize_with = "known")]
    pub kind: Option<DiskKind>,
    /// Size of the device. `/sys/block/DEV/size` × 512
    #[schemars(transform = Gauge("bytes").summed("system.disk.limit", &[]))]
    pub capacity_bytes: Option<u64>,
    /// Devices that this one stands on: those that it is made of (LVM, RAID, multipath), and the disk with the file of a
    /// loop device. Its I/O is counted there too. `/sys/block/DEV/slaves`, `/sys/block/DEV/loop/backing_file`
    pub slaves: Vec<String>,
    /// Whether its bytes are in the sums over all disks, which have each byte once: those of kind `disk` are.
    pub is_counted: bool,
    /// What is mounted from it, each file system once: bind mounts and btrfs subvolumes are not listed again.
    pub mounts: Vec<DiskMountMetrics>,
    /// Bytes read. `/proc/diskstats`, sectors of 512 bytes
    #[schemars(transform = Gauge("bytes/second"))]
    pub read_bytes_per_sec: Option<f64>,
    /// Bytes written. `/proc/diskstats`, sectors of 512 bytes
    #[schemars(transform = Gauge("bytes/second"))]
    pub write_bytes_per_sec: Option<f64>,
    /// Bytes read since the reading before, for a sum without rounding. It is not in the output, which has
    /// `read_bytes_total`.
    #[serde(skip)]
    pub read_bytes: u64,
    /// Bytes written since the reading before, likewise.
    #[serde(skip)]
    pub write_bytes: u64,
    /// Bytes read since boot. `/proc/diskstats`, sectors of 512 bytes
    #[schemars(transform = Counter("bytes").named("system.disk.io", &[("disk.io.direction", "read")]))]
    pub read_bytes_total: Option<u64>,
    /// Bytes written since boot. `/proc/diskstats`, sectors of 512 bytes
    #[schemars(transform = Counter("bytes").named("system.disk.io", &[("disk.io.direction", "write")]))]
    pub write_bytes_total: Option<u64>,
    /// Reads that were completed. `/proc/diskstats`
    #[schemars(transform = Gauge("reads/second"))]
    pub reads_per_sec: Option<f64>,
    /// Writes that were completed. `/proc/diskstats`
    #[schemars(transform = Gauge("writes/second"))]
    pub writes_per_sec: Option<f64>,
    /// Time that a read took, queueing included; null when none ended. `/proc/diskstats`
    #[schemars(transform = Gauge("milliseconds"))]
    pub read_latency_ms: Option<f64>,
    /// Time that a write took, queueing included; null when none ended. `/proc/diskstats`
    #[schemars(transform = Gauge("milliseconds"))]
    pub write_latency_ms: Option<f64>,
    /// Requests that were queued or in flight, on average. `/proc/diskstats`, weighted time
    #[schemars(transform = Gauge("requests"))]
    pub queue_length: Option<f64>,
    /// Share of time in which the device had something to do. At 100 % it need not be full: an SSD, RAID or a network
    /// device does many things at once, and whether it is can be seen by latency and queue. `/proc/diskstats`, time of
    /// I/O
    #[schemars(transform = Gauge("percent"))]
    pub utilization_pct: Option<f64>,
}

/// Kind of drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DiskType {
    /// Attached over NVM Express.
    Nvme,
    /// Without moving parts.
    Ssd,
    /// With moving parts.
    Hdd,
}

/// What a block device is to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DiskKind {
    /// It stands on no other: a drive, what a virtual machine has for one, or storage over a network.
    #[default]
    Disk,
    /// It stands on others: LVM, RAID, bcache, device-mapper multipath, DRBD, a ZFS volume.
    Volume,
    /// A file, or another device, as a device.
    Loop,
    /// Memory: zram or a RAM disk.
    Memory,
    /// One of the ways to an NVMe namespace with several, hidden behind it.
    Path,
}

/// One mounted file system. Its numbers are null while it does not answer (a dead NFS server, a hung FUSE daemon).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskMountMetrics {
    /// Where it is mounted. `/proc/self/mountinfo`
    #[schemars(transform = Attribute("system.filesystem.mountpoint"))]
    pub mount_point: String,
    /// Type of file system, such as `ext4`. `/proc/self/mountinfo`
    #[schemars(transform = Attribute("system.filesystem.type"))]
    pub filesystem: String,
    /// Size of the file system. `statvfs`, `f_blocks` × `f_frsize`
    #[schemars(transform = Gauge("bytes").summed("system.filesystem.limit", &[]))]
    pub total_bytes: Option<u64>,
    /// What unprivileged users can still write. `statvfs`, `f_bavail` × `f_frsize`
    #[schemars(transform = Gauge("bytes").summed("system.filesystem.usage", &[("system.filesystem.state", "free")]))]
    pub available_bytes: Option<u64>,
    /// What is occupied. `statvfs`, (`f_blocks` − `f_bfree`) × `f_frsize`
    #[schemars(transform = Gauge("bytes").summed("system.filesystem.usage", &[("system.filesystem.state", "used")]))]
    pub used_bytes: Option<u64>,
    /// The same as a share of the size; 0 when the size is 0.
    #[schemars(transform = Gauge("percent").named("system.filesystem.utilization", &[("system.filesystem.state", "used")]))]
    pub used_pct: Option<f64>,
}

impl DiskMountMetrics {
    /// How much is used of what users may use, in percent, as `df` has it. `None` of one that has nothing in it.
    pub fn full_pct(&self) -> Option<f64> {
        full_pct(self.used_bytes, self.available_bytes)
    }
}

/// As [`DiskMountMetrics::full_pct`], of these two.
pub fn full_pct(used_bytes: Option<u64>, available_bytes: Option<u64>) -> Option<f64> {
    let used = used_bytes.filter(|used| *used > 0)?;
    Some(100.0 * used as f64 / used.saturating_add(available_bytes?) as f64)
}
