//! NVLink: what each link and all together carry.

use std::collections::BTreeMap;
use std::time::Instant;

use nvml_wrapper::Device as Handle;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES as RECEIVED_BYTES, NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES as SENT_BYTES,
    NVML_FI_DEV_NVLINK_GET_SPEED as SPEED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX as DATA_RX,
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX as DATA_TX,
};
use resource_tracker_metrics::{GpuMetrics, NvLinkMetrics};

use crate::gpu::counter::Rate;
use crate::gpu::pace::Paced;

use super::library::Library;

/// `NVML_NVLINK_MAX_LINKS`, which was 18 before Rubin.
const MAX_LINKS: u32 = 36;

/// The scope of a field that means all links.
const ALL: u32 = u32::MAX;

/// Speeds are in MB/s.
const MEGA: f64 = 1e6;

/// The fields that count what is sent and received, and the bytes in one of their units.
type Counters = ([u32; 2], u64);

/// The fields before NVLink 5, in KiB; and those of NVLink 5, which no longer has the others.
const COUNTERS: [Counters; 2] = [([DATA_TX, DATA_RX], 1024), ([SENT_BYTES, RECEIVED_BYTES], 1)];

/// Bytes sent and received, by link and of `ALL`.
type Readings = Vec<(u32, [Option<u64>; 2])>;

/// The links that are active, with what each can carry, and what counts them.
#[derive(Clone)]
struct Active {
    links: Vec<(u32, Option<u64>)>,
    counters: Option<Counters>,
}

#[derive(Default)]
pub(super) struct Links {
    active: Paced<Active>,
    /// With the time of the reading, which rates are over.
    readings: Paced<(Instant, Readings)>,
    rates: BTreeMap<u32, [Rate; 2]>,
}

impl Links {
    pub(super) fn fill(&mut self, metrics: &mut GpuMetrics, library: &Library, handle: &Handle<'_>, count: usize) {
        let Some(Active { links, counters }) = self.active.get(count, || active(library, handle)) else { return };
        let Self { readings, rates, .. } = self;
        let readings = counters.and_then(|counters| {
            let scopes: Vec<u32> = std::iter::once(ALL).chain(links.iter().map(|(link, _)| *link)).collect();
            readings.get(count, || Some((Instant::now(), read(library, handle, counters, &scopes))))
        });
        let told: BTreeMap<u32, [Option<f64>; 2]> = readings.map_or_else(BTreeMap::new, |(at, readings)| {
            rates.retain(|link, _| readings.iter().any(|(known, _)| known == link));
            let rate = |(link, [tx, rx]): (u32, [Option<u64>; 2])| {
                let [sent, received] = rates.entry(link).or_default();
                (link, [sent.of(tx, at), received.of(rx, at)])
            };
            readings.into_iter().map(rate).collect()
        });
        let of = |link: &u32| told.get(link).copied().unwrap_or_default();
        let speed = |megabytes: &Option<u64>| megabytes.map(|megabytes| megabytes as f64 * MEGA);
        let sum = |direction: usize| links.iter().map(|(link, _)| of(link)[direction]).sum::<Option<f64>>();
        metrics.nvlink_tx_bytes_per_sec = of(&ALL)[0].or_else(|| sum(0));
        metrics.nvlink_rx_bytes_per_sec = of(&ALL)[1].or_else(|| sum(1));
        metrics.nvlink_max_bytes_per_sec = links.iter().map(|(_, max)| speed(max)).sum();
        let link = |(link, max): &(u32, Option<u64>)| NvLinkMetrics {
            link: *link,
            tx_bytes_per_sec: of(link)[0],
            rx_bytes_per_sec: of(link)[1],
            max_bytes_per_sec: speed(max),
        };
        metrics.nvlinks = Some(links.iter().map(link).collect());
    }
}

/// `None`: there are none.
fn active(library: &Library, handle: &Handle<'_>) -> Option<Active> {
    let is_active = |link: &u32| handle.link_wrapper_for(*link).is_active().unwrap_or(false);
    let speed = |link: u32| library.extra.fields(handle, &[(SPEED, link)]).into_iter().next().flatten();
    let links: Vec<(u32, Option<u64>)> = (0..MAX_LINKS).filter(is_active).map(|link| (link, speed(link))).collect();
    let (first, _) = *links.first()?;
    let tells = |counters: &Counters| {
        let readings = read(library, handle, *counters, &[first]);
        readings.iter().any(|(_, [tx, rx])| tx.or(*rx).is_some())
    };
    Some(Active { counters: COUNTERS.into_iter().find(tells), links })
}

fn read(library: &Library, handle: &Handle<'_>, (fields, unit): Counters, scopes: &[u32]) -> Readings {
    let asked: Vec<(u32, u32)> = scopes.iter().flat_map(|scope| fields.map(|field| (field, *scope))).collect();
    let values = library.extra.fields(handle, &asked);
    let bytes = |value: Option<u64>| value.and_then(|value| value.checked_mul(unit));
    let pairs = scopes.iter().zip(values.chunks_exact(2));
    pairs.map(|(scope, pair)| (*scope, [bytes(pair[0]), bytes(pair[1])])).collect()
}
