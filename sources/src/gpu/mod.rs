//! GPUs: what each does, and what the job has of them. One folder a vendor.

mod amd;
mod drm;
mod fdinfo;
mod namespace;
mod nvidia;
mod pace;
mod share;
mod visible;

pub use amd::AmdConfig;
pub use drm::DrmConfig;
pub use nvidia::NvidiaConfig;

pub(crate) use share::{DrmShare, Share};

use resource_tracker_metrics::GpuMetrics;

use crate::procfile::percent;

/// Names of the sources that look for GPUs.
pub(crate) const SOURCES: [&str; 3] = [nvidia::NAME, amd::NAME, drm::NAME];

/// Sets what memory a device has and uses. None of them tells more used than there is.
fn set_vram(metrics: &mut GpuMetrics, total: Option<u64>, used: Option<u64>) {
    let used = used.map(|used| total.map_or(used, |total| used.min(total)));
    metrics.vram_total_bytes = total;
    metrics.vram_used_bytes = used;
    metrics.vram_used_pct = total.zip(used).map(|(total, used)| percent(used as f64, total as f64));
}

/// What a counter gained since it was last read, and keeps its new value; nothing the first time or after a reset.
fn gained(before: &mut Option<u64>, now: Option<u64>) -> Option<u64> {
    let now = now?;
    let before = before.replace(now).unwrap_or(now);
    Some(now.saturating_sub(before))
}
