//! Memory of devices.

use resource_tracker_metrics::GpuMetrics;

use crate::procfile::percent;

/// Sets the memory that a device has and uses. It never uses more than there is.
pub(super) fn set_vram(metrics: &mut GpuMetrics, total: Option<u64>, used: Option<u64>) {
    let used = used.map(|used| total.map_or(used, |total| used.min(total)));
    metrics.vram_total_bytes = total;
    metrics.vram_used_bytes = used;
    metrics.vram_used_pct = total.zip(used).map(|(total, used)| percent(used as f64, total as f64));
}
