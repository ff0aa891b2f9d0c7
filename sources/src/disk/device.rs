//! What a block device is: `/sys/block/DEV`.

use std::collections::BTreeSet;
use std::path::Path;

use resource_tracker_metrics::{DiskKind, DiskMountMetrics, DiskType};

use super::constants::SECTOR;
use crate::procfile::attribute;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Identity {
    pub(super) model: Option<String>,
    pub(super) vendor: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) device_type: Option<DiskType>,
    pub(super) kind: DiskKind,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) slaves: Vec<String>,
    /// The hidden devices behind it.
    pub(super) paths: Vec<String>,
    pub(super) mounts: Vec<DiskMountMetrics>,
}

impl Identity {
    /// Reads what is known of the device; `None` when it has no capacity (an unused loop device, an empty drive).
    pub(super) fn read(directory: &Path, name: &str) -> Option<Self> {
        // There are often many unused loop devices, and a file of sysfs takes long to read.
        if is_loop(name) && !directory.join("loop").exists() {
            return None;
        }
        let text = |path: &str| attribute(&directory.join(path));
        let capacity_bytes = capacity_bytes(directory);
        if capacity_bytes == Some(0) {
            return None;
        }
        let device_type = match text("queue/rotational").as_deref() {
            _ if name.starts_with("nvme") => Some(DiskType::Nvme),
            Some("0") => Some(DiskType::Ssd),
            Some("1") => Some(DiskType::Hdd),
            _ => None,
        };
        let slaves = slaves(directory);
        Some(Self {
            model: text("device/model"),
            vendor: text("device/vendor"),
            serial: text("device/serial")
                .or_else(|| text("serial"))
                .or_else(|| text("wwid"))
                .or_else(|| text("device/wwid")),
            device_type,
            kind: kind(directory, name, || !slaves.is_empty()),
            capacity_bytes,
            slaves,
            paths: Vec::new(),
            mounts: Vec::new(),
        })
    }

    /// Whether it is made of other devices by the device mapper. It is listed only where it is mounted.
    pub(super) fn is_mapped(name: &str) -> bool {
        name.starts_with("dm-")
    }

    /// Whether each byte that passes through it passes through no other that is counted.
    pub(super) fn is_counted(&self) -> bool {
        self.kind == DiskKind::Disk
    }
}

fn is_loop(name: &str) -> bool {
    series(name) == "loop"
}

/// The name without its number.
fn series(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn kind(directory: &Path, name: &str, has_slaves: impl FnOnce() -> bool) -> DiskKind {
    match series(name) {
        "loop" => DiskKind::Loop,
        "ram" | "zram" => DiskKind::Memory,
        _ if attribute(&directory.join("hidden")).as_deref() == Some("1") => DiskKind::Path,
        // The disks of its pool are no slaves of a ZFS volume.
        "zd" => DiskKind::Volume,
        _ if has_slaves() => DiskKind::Volume,
        _ => DiskKind::Disk,
    }
}

/// What of the bytes that a cgroup is charged with for a device counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// What of the device of this folder in sysfs counts. The kernel charges a cgroup for a device that is made of others, and once
/// more for those below, unless it sends on in its own name what it has to encrypt or to take parities of: then the
/// device above is all that is charged. What nothing is known of counts.
pub(crate) fn charged(directory: &Path) -> Charged {
    let all = Charged { reads: true, writes: true };
    let Ok(directory) = directory.canonicalize() else { return all };
    let name = directory.file_name().map(|name| kernel_name(&name.to_string_lossy())).unwrap_or_default();
    let has_slaves = !slaves(&directory).is_empty();
    match kind(&directory, &name, || has_slaves) {
        DiskKind::Disk => all,
        // The pool of a ZFS volume is written by its own threads.
        DiskKind::Volume if !has_slaves => all,
        DiskKind::Volume => Charged { reads: false, writes: is_written_by_the_kernel(&directory) },
        _ => Charged { reads: false, writes: false },
    }
}

/// Whether it is encrypted, or has parities.
fn is_written_by_the_kernel(directory: &Path) -> bool {
    let text = |path: &str| attribute(&directory.join(path)).unwrap_or_default();
    text("dm/uuid").starts_with("CRYPT-") || ["raid4", "raid5", "raid6"].contains(&text("md/level").as_str())
}

fn slaves(directory: &Path) -> Vec<String> {
    let slaves = std::fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    let mut slaves: Vec<String> = slaves.map(|entry| kernel_name(&entry.file_name().to_string_lossy())).collect();
    slaves.sort_unstable();
    slaves
}

/// The device in front of a hidden one: `nvme0n1` of `nvme0c1n1`.
pub(super) fn head_of(path: &str) -> Option<String> {
    let (subsystem, rest) = path.split_once('c')?;
    let (_controller, namespace) = rest.split_once('n')?;
    Some(format!("{subsystem}n{namespace}"))
}

/// The capacity of all drives, each counted once. A device that is made of other devices, of files or of memory holds
/// nothing itself.
pub(crate) fn storage_bytes(sysfs: &Path) -> Option<u64> {
    // The serial number is not read: that of a virtual drive can take long.
    let drives = std::fs::read_dir(sysfs.join("block")).ok()?.flatten().filter_map(|entry| {
        let directory = entry.path();
        let name = kernel_name(&entry.file_name().to_string_lossy());
        if kind(&directory, &name, || !slaves(&directory).is_empty()) != DiskKind::Disk {
            return None;
        }
        let bytes = capacity_bytes(&directory).filter(|bytes| *bytes > 0)?;
        Some((drive(&directory).unwrap_or(name), bytes))
    });
    Some(drives.collect::<BTreeSet<_>>().into_iter().map(|(_, bytes)| bytes).sum())
}

/// What the devices that lead to one drive have in common: their multipath map, else the drive's world-wide number.
fn drive(directory: &Path) -> Option<String> {
    let mut holders = std::fs::read_dir(directory.join("holders")).into_iter().flatten().flatten();
    let map =
        holders.find_map(|holder| attribute(&holder.path().join("dm/uuid")).filter(|uuid| uuid.starts_with("mpath-")));
    map.or_else(|| {
        let number = ["wwid", "device/wwid"].iter().find_map(|path| attribute(&directory.join(path)))?;
        // Others (`t10.`) are what a vendor makes up, and two drives can have the same.
        ["naa.", "eui.", "uuid.", "nvme."].iter().any(|kind| number.starts_with(kind)).then_some(number)
    })
}

fn capacity_bytes(directory: &Path) -> Option<u64> {
    let sectors: u64 = attribute(&directory.join("size"))?.parse().ok()?;
    Some(sectors.saturating_mul(SECTOR))
}

/// The kernel's name of a device: sysfs writes `!` for the `/` in it.
pub(super) fn kernel_name(sysfs_name: &str) -> String {
    sysfs_name.replace('!', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_nvme_drive_and_an_unused_loop_device() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let device = directory.path().join("device");
        std::fs::create_dir_all(&device)?;
        std::fs::create_dir_all(directory.path().join("slaves/cciss!c0d0"))?;
        std::fs::write(directory.path().join("size"), "2048\n")?;
        std::fs::write(device.join("model"), "Samsung SSD 990 PRO      \n")?;
        std::fs::write(device.join("serial"), "\n")?;
        std::fs::write(directory.path().join("wwid"), "eui.0025\n")?;
        let identity = Identity::read(directory.path(), "nvme0n1").unwrap_or_default();
        assert_eq!(
            (identity.model.as_deref(), identity.serial.as_deref()),
            (Some("Samsung SSD 990 PRO"), Some("eui.0025"))
        );
        assert_eq!((identity.device_type, identity.capacity_bytes), (Some(DiskType::Nvme), Some(1 << 20)));
        assert_eq!(identity.slaves, ["cciss/c0d0"]);
        assert_eq!(Identity::read(directory.path(), "loop7"), None, "it has no file");
        std::fs::create_dir(directory.path().join("loop"))?;
        assert!(Identity::read(directory.path(), "loop7").is_some());
        std::fs::write(directory.path().join("size"), "0\n")?;
        assert_eq!(Identity::read(directory.path(), "loop7"), None, "its file is empty");
        Ok(())
    }
}
