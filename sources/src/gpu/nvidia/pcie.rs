//! What goes over PCIe: counters where they can be trusted, else what NVML sees of it now and then.

use std::time::{Duration, Instant};

use nvml_wrapper::Device as Handle;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES as RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES as TX_BYTES,
};
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::counter::Rate;
use crate::gpu::pace::Paced;

use super::library::Library;

/// One part in this many of the time is spent with windows.
const PARTS: u32 = 20;

/// NVML's unit.
const KILO: f64 = 1e3;

/// What a lane of the first generation can carry in a second. Each later one carries at most twice as much.
const LANE: f64 = 250e6;

/// The counters go round after so many bytes ("Value can be wrapped", says NVML's header): the driver's have 32 bits.
const ROUND: u64 = 1 << 32;

/// A device's counters, which take NVML a fraction of a millisecond.
#[derive(Default)]
pub(super) struct Counters {
    read: Paced<(Instant, [Option<u64>; 2])>,
    rates: [Rate; 2],
}

impl Counters {
    /// Bytes a second that the device sent and received; `None` where it does not count, or may have counted once round
    /// since.
    pub(super) fn rates(
        &mut self,
        metrics: &GpuMetrics,
        library: &Library,
        handle: &Handle<'_>,
        count: usize,
    ) -> (Option<f64>, Option<f64>) {
        let fields = || {
            let values = library.extra.fields(handle, &[(TX_BYTES, 0), (RX_BYTES, 0)]);
            Some((Instant::now(), values.try_into().ok()?))
        };
        let Some((at, [tx, rx])) = self.read.get(count, fields) else { return (None, None) };
        let most = most(metrics.pcie_link_generation_max, metrics.pcie_link_width_max);
        let gained = |before, now, elapsed: Duration| gained(before, now, most? * elapsed.as_secs_f64());
        let [sent, received] = &mut self.rates;
        (sent.by(tx, at, gained), received.by(rx, at, gained))
    }
}

/// What a link can carry in a second.
fn most(generation: Option<u32>, width: Option<u32>) -> Option<f64> {
    let doublings = generation?.checked_sub(1)?.min(16);
    Some(LANE * f64::from(1u32 << doublings) * f64::from(width?))
}

/// What a counter gained in a time in which the link can carry `most` bytes.
fn gained(before: u64, now: u64, most: f64) -> Option<u64> {
    if before.max(now) >= ROUND {
        // It has more bits.
        return now.checked_sub(before);
    }
    let gained = now.wrapping_sub(before) % ROUND;
    // More than the link can carry is a counter that was reset.
    (most < ROUND as f64 && gained as f64 <= most).then_some(gained)
}

/// What NVML sees when it watches the link for 20 ms, in each direction: the one call that is slow by design. So one device is
/// read at a time, in turn, and all together take a small share of the time.
#[derive(Default)]
pub(super) struct Windows {
    /// Sent and received, in bytes a second, by the device's index.
    rates: Vec<(Option<f64>, Option<f64>)>,
    turn: usize,
    due: Option<Instant>,
}

impl Windows {
    /// Reads the device whose turn it is, of those without counters, and sets the rates that are known of them. Parts
    /// of devices have no link of their own.
    pub(super) fn read(&mut self, library: &Library, gpus: &mut [GpuMetrics], tells: impl Fn(usize) -> bool) {
        let mut whole: Vec<&mut GpuMetrics> = gpus.iter_mut().filter(|gpu| gpu.parent_uuid.is_none()).collect();
        self.rates.resize(whole.len(), (None, None));
        let silent: Vec<usize> = (0..whole.len()).filter(|index| !tells(*index)).collect();
        let now = Instant::now();
        if !silent.is_empty() && self.due.is_none_or(|due| now >= due) {
            self.turn = self.turn.wrapping_add(1);
            let index = silent[self.turn % silent.len()];
            self.rates[index] = rates(library, index as u32);
            self.due = Some(now + pause(now.elapsed()));
        }
        for index in silent {
            (whole[index].pcie_tx_bytes_per_sec, whole[index].pcie_rx_bytes_per_sec) = self.rates[index];
        }
    }
}

fn rates(library: &Library, index: u32) -> (Option<f64>, Option<f64>) {
    let Ok(handle) = library.nvml.device_by_index(index) else { return (None, None) };
    let rate = |counter| handle.pcie_throughput(counter).ok().map(|kilobytes| f64::from(kilobytes) * KILO);
    // NVML says what the GPU sends and receives.
    (rate(PcieUtilCounter::Send), rate(PcieUtilCounter::Receive))
}

fn pause(took: Duration) -> Duration {
    took.saturating_mul(PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NV2080_CTRL_BUS_GET_PEX_UTIL_COUNTERS_PARAMS` of the open kernel module has `NvU32 pexCounters`.
    #[test]
    fn a_counter_that_goes_round_is_believed_where_it_cannot_have_done_so_twice() {
        // Generation 4 with 16 lanes: 3.2 GB in a tenth of a second, and 32 GB in one.
        let link = most(Some(4), Some(16)).unwrap();
        assert_eq!(link, 32e9);
        assert_eq!(gained(5, 1_000_000_005, link / 10.0), Some(1_000_000_000));
        assert_eq!(gained(u64::from(u32::MAX) - 9, 90, link / 10.0), Some(100), "round");
        assert_eq!(gained(100, 90, link / 10.0), None, "a reset: 4.3 GB are more than it can carry");
        assert_eq!(gained(5, 1_000_000_005, link), None, "it may have gone round seven times");
        assert_eq!(gained(5 << 32, (5 << 32) + 7, link), Some(7), "one with more bits");
        assert_eq!(gained(5 << 32, 7, link), None);
        assert_eq!((most(None, Some(16)), most(Some(0), Some(16)), most(Some(4), None)), (None, None, None));
    }
}
