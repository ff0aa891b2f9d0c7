//! `gpu_metrics`: a table that the card's firmware fills, in one of many versions.

use std::path::{Path, PathBuf};

use libamdgpu_top::AMDGPU::GpuMetrics;

use crate::gpu::counter::gained;
use crate::gpu::pace::Paced;

use super::table::{Throttle, Values};

pub(super) const FILE: &str = "gpu_metrics";

/// The accumulators of energy count 2^-16 J, which the kernel calls 15.259 µJ.
const PER_JOULE: f64 = 65536.0;

/// Limits whose counters newer tables have, in their order.
const LIMITS: [&str; 5] = ["prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm"];

pub(super) struct Metrics {
    path: PathBuf,
    is_known: bool,
    /// Whether the unit of the accumulator of older tables is known.
    counts_joules: bool,
    table: Paced<Values>,
    now: Values,
    energy: Option<u64>,
    joules: Option<f64>,
    residencies: Option<[u32; 5]>,
    reasons: Option<Vec<String>>,
}

/// Whether a table can be used.
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
    match Values::of(raw) {
        Some(_) => Readable::Known,
        None => Readable::Newer(major, minor),
    }
}

impl Metrics {
    /// `is_mi200`: whether it is a GPU of that family, whose table does not say the unit of its energy.
    pub(super) fn new(path: &Path, is_mi200: bool) -> Self {
        let readable = check(path);
        let file = path.join(FILE);
        match &readable {
            Readable::Newer(major, minor) => {
                log::warn!("source amd: {}: version {major}.{minor} is not known; it is not read", file.display());
            }
            Readable::Broken(reason) => log::warn!("source amd: {}: {reason}; it is not read", file.display()),
            Readable::Missing | Readable::Known => (),
        }
        Self {
            path: path.to_owned(),
            is_known: matches!(readable, Readable::Known),
            counts_joules: is_mi200,
            table: Paced::default(),
            now: Values::default(),
            energy: None,
            joules: None,
            residencies: None,
            reasons: None,
        }
    }

    /// Reads it when that is due, or at once where it `must` be.
    pub(super) fn read(&mut self, count: usize, must: bool) {
        self.joules = None;
        if !self.is_known {
            return;
        }
        let Self { path, table, .. } = self;
        let Some(now) = table.fresh(count, must, || Some(read(path).unwrap_or_default())) else { return };
        self.now = now;
        let energy = self.now.energy.filter(|_| self.counts_joules || self.now.is_energy_of_known_unit);
        self.joules = gained(&mut self.energy, energy).map(|gained| gained as f64 / PER_JOULE);
        self.reasons = match &self.now.throttle {
            None => None,
            Some(Throttle::Names(names)) => Some(names.clone()),
            Some(Throttle::Residencies(now)) => {
                self.residencies.replace(*now).map(|before| grown(&before, now).map(str::to_owned).collect())
            }
        };
    }

    pub(super) fn utilization_pct(&self) -> Option<f64> {
        self.now.utilization_pct
    }

    pub(super) fn celsius(&self) -> Option<f64> {
        self.now.celsius
    }

    pub(super) fn watts(&self) -> Option<f64> {
        self.now.watts
    }

    /// The energy since the reading before; it is given once.
    pub(super) fn joules(&self) -> Option<f64> {
        self.joules
    }

    /// Names of the limits that are in effect, such as `ppt0` or `temp_hotspot`, or that have been since the reading before.
    pub(super) fn throttle_reasons(&self) -> Option<Vec<String>> {
        self.reasons.clone()
    }
}

fn read(path: &Path) -> Option<Values> {
    let raw = GpuMetrics::get_raw_from_sysfs_path(path).ok()?;
    matches!(judge(&raw), Readable::Known).then(|| Values::of(&raw)).flatten()
}

fn grown<'a>(before: &'a [u32; 5], now: &'a [u32; 5]) -> impl Iterator<Item = &'static str> + 'a {
    let pairs = LIMITS.into_iter().zip(before.iter().zip(now));
    pairs.filter(|(_, (before, now))| now > before).map(|(name, _)| name)
}
