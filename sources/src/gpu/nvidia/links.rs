//! NVLink: what each link and all together carry.

use std::time::{Duration, Instant};

use nvml_wrapper::Device as Handle;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_GET_SPEED as SPEED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX as DATA_RX,
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX as DATA_TX,
};
use resource_tracker_metrics::{GpuMetrics, NvLinkMetrics};

use crate::gpu::pace::Paced;

use super::library::Library;

/// `NVML_NVLINK_MAX_LINKS`.
const MAX_LINKS: u32 = 18;

/// The scope of a field that means all links.
const ALL: u32 = u32::MAX;

/// The counters are in KiB, speeds in MB/s.
const KIB: u64 = 1024;
const MEGA: f64 = 1e6;

#[derive(Default)]
pub(super) struct Links {
    /// The links that are active, and what each can carry.
    active: Paced<Vec<(u32, Option<u64>)>>,
    /// With the time of the reading, which rates are over.
    counters: Paced<(Instant, Vec<[Option<u64>; 2]>)>,
    all: Directions,
    each: Vec<Directions>,
}

#[derive(Default)]
struct Directions {
    tx: Rate,
    rx: Rate,
}

/// The rate of a counter, over the time between its last two readings.
#[derive(Default)]
struct Rate {
    before: Option<(u64, Instant)>,
    per_sec: Option<f64>,
}

impl Rate {
    fn of(&mut self, now: Option<u64>, at: Instant) -> Option<f64> {
        let value = now?;
        let (before, then) = *self.before.get_or_insert((value, at));
        let elapsed = at.saturating_duration_since(then);
        if elapsed >= Duration::from_millis(1) {
            self.per_sec = Some(value.saturating_sub(before) as f64 / elapsed.as_secs_f64());
            self.before = Some((value, at));
        }
        self.per_sec
    }
}

impl Links {
    pub(super) fn fill(&mut self, metrics: &mut GpuMetrics, library: &Library, handle: &Handle<'_>, count: usize) {
        let active = self.active.get(count, || active(library, handle)).unwrap_or_default();
        if active.is_empty() {
            return;
        }
        let read = |link: u32| library.extra.fields(handle, [(DATA_TX, link), (DATA_RX, link)]);
        let scopes = || std::iter::once(ALL).chain(active.iter().map(|(link, _)| *link));
        let counters = self.counters.get(count, || Some((Instant::now(), scopes().map(read).collect())));
        let Some((at, counters)) = counters else { return };
        let bytes = |kib: Option<u64>| kib.map(|kib| kib.saturating_mul(KIB));
        if let Some([tx, rx]) = counters.first() {
            metrics.nvlink_tx_bytes_per_sec = self.all.tx.of(bytes(*tx), at);
            metrics.nvlink_rx_bytes_per_sec = self.all.rx.of(bytes(*rx), at);
        }
        let speed = |megabytes: &Option<u64>| megabytes.map(|megabytes| megabytes as f64 * MEGA);
        metrics.nvlink_max_bytes_per_sec = active.iter().map(|(_, max)| speed(max)).sum();
        self.each.resize_with(active.len(), Directions::default);
        let links = active.iter().zip(counters.iter().skip(1)).zip(&mut self.each);
        metrics.nvlinks = Some(
            links
                .map(|(((link, max), [tx, rx]), rates)| NvLinkMetrics {
                    link: *link,
                    tx_bytes_per_sec: rates.tx.of(bytes(*tx), at),
                    rx_bytes_per_sec: rates.rx.of(bytes(*rx), at),
                    max_bytes_per_sec: speed(max),
                })
                .collect(),
        );
    }
}

fn active(library: &Library, handle: &Handle<'_>) -> Option<Vec<(u32, Option<u64>)>> {
    let is_active = |link: &u32| handle.link_wrapper_for(*link).is_active().unwrap_or(false);
    let speed = |link: u32| library.extra.fields(handle, [(SPEED, link)])[0];
    Some((0..MAX_LINKS).filter(is_active).map(|link| (link, speed(link))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_is_repeated_changes_no_rate() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut rate = Rate::default();
        assert_eq!(rate.of(Some(1000), at(0)), None);
        assert_eq!(rate.of(Some(1500), at(500)), Some(1000.0));
        assert_eq!(rate.of(Some(1500), at(500)), Some(1000.0), "it was not asked since");
        assert_eq!(rate.of(Some(1500), at(1000)), Some(0.0));
        assert_eq!(rate.of(Some(3), at(1500)), Some(0.0), "a reset");
        assert_eq!(rate.of(None, at(2000)), None);
        assert_eq!(rate.of(Some(5), at(2500)), Some(2.0));
    }
}
