//! How much space a file system has.

use std::path::Path;

/// The space of a file system in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) available: u64,
}

impl Space {
    /// Asks the file system; blocks as long as it does.
    pub(super) fn of(point: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(point).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Some(Self { total: bytes(stat.f_blocks), free: bytes(stat.f_bfree), available: bytes(stat.f_bavail) })
    }
}
