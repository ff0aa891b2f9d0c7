//! What a block device is: `/sys/block/DEV`.

use std::path::Path;

use resource_tracker_metrics::{DiskMountMetrics, DiskType};

use super::constants::SECTOR;
use crate::procfile::attribute;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Identity {
    pub(super) model: Option<String>,
    pub(super) vendor: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) device_type: Option<DiskType>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) slaves: Vec<String>,
    pub(super) mounts: Vec<DiskMountMetrics>,
}

impl Identity {
    /// Reads what is known of the device; `None` when it has no capacity (an unused loop device, an empty drive).
    pub(super) fn read(directory: &Path, name: &str) -> Option<Self> {
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
        let slaves = std::fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let mut slaves: Vec<String> = slaves.map(|entry| kernel_name(&entry.file_name().to_string_lossy())).collect();
        slaves.sort_unstable();
        Some(Self {
            model: text("device/model"),
            vendor: text("device/vendor"),
            serial: text("device/serial")
                .or_else(|| text("serial"))
                .or_else(|| text("wwid"))
                .or_else(|| text("device/wwid")),
            device_type,
            capacity_bytes,
            slaves,
            mounts: Vec::new(),
        })
    }

    /// Whether it is made of other devices by the device mapper. It is listed only where it is mounted.
    pub(super) fn is_mapped(name: &str) -> bool {
        name.starts_with("dm-")
    }
}

/// What all drives hold together; what is made of other devices, of files or of memory is not counted again.
pub(crate) fn storage_bytes(sysfs: &Path) -> Option<u64> {
    let is_made_up = |name: &str| ["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind));
    let is_made_of_others =
        |directory: &Path| std::fs::read_dir(directory.join("slaves")).is_ok_and(|mut slaves| slaves.next().is_some());
    // Only the capacity is read: the serial number of a virtual drive can take long.
    let drives = std::fs::read_dir(sysfs.join("block")).ok()?.flatten().filter_map(|entry| {
        let is_one = !is_made_up(&entry.file_name().to_string_lossy());
        let bytes = is_one.then(|| capacity_bytes(&entry.path())).flatten().filter(|bytes| *bytes > 0)?;
        (!is_made_of_others(&entry.path())).then_some(bytes)
    });
    Some(drives.sum())
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
        std::fs::write(directory.path().join("size"), "0\n")?;
        assert_eq!(Identity::read(directory.path(), "loop7"), None);
        Ok(())
    }
}
