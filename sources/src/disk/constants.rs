//! What all parts of the source agree on.

use std::time::Duration;

/// A sector in `/proc/diskstats` and sysfs, whatever the drive's own sectors are.
pub(super) const SECTOR: u64 = 512;

/// How often space is asked for, and whether mounts or devices changed.
pub(super) const SURVEY: Duration = Duration::from_secs(1);
