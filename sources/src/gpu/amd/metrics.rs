//! `gpu_metrics`: a table that the card's firmware fills, in one of many versions.

use std::path::{Path, PathBuf};

use libamdgpu_top::AMDGPU::{GpuMetrics, MetricsInfo, ThrottleStatus};

use crate::gpu::pace::Paced;

pub(super) const FILE: &str = "gpu_metrics";

/// What a firmware writes where it has no value.
const NO_VALUE: u16 = u16::MAX;

pub(super) struct Metrics {
    path: PathBuf,
    is_known: bool,
    table: Paced<GpuMetrics>,
    now: Option<GpuMetrics>,
}

/// What can be done with a table.
pub(super) enum Readable {
    Missing,
    Known,
    /// Whole, and of a version that came after this program: major and minor.
    Newer(u8, u8),
    Broken(String),
}

/// Looks at a card's table.
pub(super) fn check(path: &Path) -> Readable {
    match GpuMetrics::get_raw_from_sysfs_path(path) {
        Ok(raw) => judge(&raw),
        Err(_) => Readable::Missing,
    }
}

/// A table begins with its size and its version.
fn judge(raw: &[u8]) -> Readable {
    let &[low, high, major, minor, ..] = raw else {
        return Readable::Broken(format!("it has {} bytes, which is no table", raw.len()));
    };
    let size = usize::from(u16::from_le_bytes([low, high]));
    if size != raw.len() {
        let length = raw.len();
        return Readable::Broken(format!("version {major}.{minor} says that it has {size} bytes, and has {length}"));
    }
    match GpuMetrics::from_raw(raw) {
        GpuMetrics::Unknown => Readable::Newer(major, minor),
        _ => Readable::Known,
    }
}

impl Metrics {
    pub(super) fn new(path: &Path) -> Self {
        let readable = check(path);
        if let Readable::Newer(major, minor) = readable {
            let file = path.join(FILE);
            log::warn!("source amd: {}: version {major}.{minor} is not known; it is not read", file.display());
        }
        let is_known = matches!(readable, Readable::Known);
        Self { path: path.to_owned(), is_known, table: Paced::default(), now: None }
    }

    pub(super) fn read(&mut self, count: usize) {
        let Self { path, is_known, table, now } = self;
        *now = is_known.then(|| table.get(count, || read(path))).flatten();
    }

    pub(super) fn utilization_pct(&self) -> Option<f64> {
        known(self.now.as_ref()?.get_average_gfx_activity()).filter(|pct| *pct <= 100.0)
    }

    pub(super) fn celsius(&self) -> Option<f64> {
        let table = self.now.as_ref()?;
        known(table.get_temperature_edge()).or_else(|| known(table.get_temperature_hotspot()))
    }

    pub(super) fn watts(&self) -> Option<f64> {
        let table = self.now.as_ref()?;
        let average = table.get_average_socket_power().filter(|watts| *watts < u32::from(NO_VALUE)).map(f64::from);
        average.or_else(|| known(table.get_current_socket_power()))
    }

    /// Names of the limits that are in effect, such as `ppt0` or `temp_hotspot`.
    pub(super) fn throttle_reasons(&self) -> Option<Vec<String>> {
        let status = self.now.as_ref()?.get_indep_throttle_status().filter(|status| *status != u64::MAX)?;
        let limits = ThrottleStatus::new(status).get_all_throttler();
        Some(limits.iter().map(|limit| format!("{limit:?}").to_lowercase()).collect())
    }
}

fn read(path: &Path) -> Option<GpuMetrics> {
    let raw = GpuMetrics::get_raw_from_sysfs_path(path).ok()?;
    matches!(judge(&raw), Readable::Known).then(|| GpuMetrics::from_raw(&raw))
}

fn known(value: Option<u16>) -> Option<f64> {
    value.filter(|value| *value != NO_VALUE).map(f64::from)
}
