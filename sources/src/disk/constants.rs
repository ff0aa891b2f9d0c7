//! What all parts of the source agree on.

use std::time::Duration;

pub(super) use crate::procfile::SECTOR;

/// How often space is asked for, and whether mounts or devices changed.
pub(super) const SURVEY: Duration = Duration::from_secs(1);
