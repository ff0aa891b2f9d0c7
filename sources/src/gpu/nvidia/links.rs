//! NVLink: what each link and all together carry.

use std::time::Instant;

use nvml_wrapper::Device as Handle;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_GET_SPEED as SPEED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX as DATA_RX,
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX as DATA_TX,
};
use resource_tracker_core::metrics::{GpuMetrics, NvLinkMetrics};

use crate::gpu::Rate;
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
    counters: Paced<Vec<[Option<u64>; 2]>>,
    all: Directions,
    each: Vec<Directions>,
}

#[derive(Default)]
struct Directions {
    tx: Rate,
    rx: Rate,
}

impl Links {
    pub(super) fn fill(
        &mut self,
        metrics: &mut GpuMetrics,
        library: &Library,
        handle: &Handle<'_>,
        count: usize,
        at: Instant,
    ) {
        let active = self.active.get(count, || active(library, handle)).unwrap_or_default();
        if active.is_empty() {
            return;
        }
        let read = |link: u32| library.extra.fields(handle, [(DATA_TX, link), (DATA_RX, link)]);
        let scopes = || std::iter::once(ALL).chain(active.iter().map(|(link, _)| *link));
        let counters = self.counters.get(count, || Some(scopes().map(read).collect())).unwrap_or_default();
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
