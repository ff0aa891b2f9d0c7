//! How full file systems were.

use resource_tracker_metrics::full_pct;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::{DiskFields, MountFields};

/// A file system with so much left is not full, whatever its share.
const ENOUGH_BYTES: u64 = 10_000_000_000;

const IMAGES: [&str; 7] = ["cramfs", "erofs", "fuse.snapfuse", "fuse.squashfuse", "iso9660", "squashfs", "udf"];

/// Whether file systems of this type are images: always full, by design.
pub fn is_image(filesystem: &str) -> bool {
    IMAGES.contains(&filesystem)
}

/// A file system when it was fullest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct FullFileSystem {
    /// Where it is mounted. `disk`, `mount_point`
    pub mount_point: String,
    /// How much was used of what users may use, as `df` has it. `disk`, `used_bytes` of `used_bytes` + `available_bytes`
    pub full_pct: f64,
    /// How much of its size was used: of one with space reserved for root never 100 % by users alone. `disk`, `used_pct`
    pub used_pct: Option<f64>,
    /// What could still be written. `disk`, `available_bytes`
    pub available_bytes: u64,
}

impl FullFileSystem {
    /// `None` for an empty file system, and for an image, which is always full.
    fn of(mount: &MountFields) -> Option<Self> {
        let is_image = mount.filesystem.as_deref().is_none_or(is_image);
        let full_pct = full_pct(mount.used_bytes, mount.available_bytes).filter(|_| !is_image)?;
        let (mount_point, available_bytes) = (mount.mount_point.clone()?, mount.available_bytes?);
        Some(Self { mount_point, full_pct, used_pct: mount.used_pct, available_bytes })
    }

    /// Whether nearly all of it is used, and not much is left.
    pub(crate) fn is_full(&self) -> bool {
        self.full_pct >= 95.0 && self.available_bytes < ENOUGH_BYTES
    }

    fn is_fuller_than(&self, other: &Self) -> bool {
        (self.is_full(), self.full_pct) > (other.is_full(), other.full_pct)
    }
}

/// The fullest file system of the samples.
#[derive(Default)]
pub(crate) struct Fullest {
    found: Option<FullFileSystem>,
    left: Vec<Option<u64>>,
}

impl Fullest {
    /// Looks at the disks of a sample.
    pub(crate) fn add<'a, I: Iterator<Item = &'a DiskFields>>(&mut self, disks: &impl Fn() -> I) {
        let mounts = || disks().flat_map(|disk| disk.mounts.iter().flatten());
        // Space changes in few of the samples.
        if mounts().map(|mount| mount.available_bytes).eq(self.left.iter().copied()) {
            return;
        }
        self.left.clear();
        self.left.extend(mounts().map(|mount| mount.available_bytes));
        for found in mounts().filter_map(FullFileSystem::of) {
            if self.found.as_ref().is_none_or(|fullest| found.is_fuller_than(fullest)) {
                self.found = Some(found);
            }
        }
    }

    /// `None` when there was none.
    pub(crate) fn summary(&self) -> Option<FullFileSystem> {
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(filesystem: &str, used: u64, available: u64, total: u64) -> MountFields {
        MountFields {
            mount_point: Some("/".into()),
            filesystem: Some(filesystem.into()),
            available_bytes: Some(available),
            used_bytes: Some(used),
            used_pct: Some(100.0 * used as f64 / total as f64),
        }
    }

    /// A disk of which a large part is reserved for root. `df` says 64 % of it, and 100 % when users can write no more.
    #[test]
    fn what_is_reserved_for_root_is_no_room() {
        let found = |used, available| FullFileSystem::of(&mount("ext4", used, available, 270_553_174_016)).unwrap();
        let (half, full) = (found(61_984_956_416, 35_587_792_896), found(97_572_749_312, 0));
        assert!(half.full_pct.ceil() == 64.0 && half.used_pct.unwrap() < 23.0 && !half.is_full());
        assert!(full.full_pct == 100.0 && full.used_pct.unwrap() < 37.0 && full.is_full());
        assert!(full.is_fuller_than(&half) && !half.is_fuller_than(&full));
        assert!(full.is_fuller_than(&found(970_000_000_000_000, 20_000_000_000)), "which has room for a lot");
    }

    #[test]
    fn what_cannot_be_filled_is_not_full() {
        assert_eq!(FullFileSystem::of(&mount("squashfs", 100, 0, 100)), None);
        assert_eq!(FullFileSystem::of(&mount("tmpfs", 0, 0, 0)), None);
        assert_eq!(FullFileSystem::of(&MountFields { used_bytes: None, ..mount("nfs4", 5, 5, 10) }), None);
    }
}
