//! What goes over PCIe. NVML watches the link for 20 ms whenever it is asked, in each direction: the one call that is
//! slow by design. So one device is read at a time, in turn, and all together take a small share of the time.

use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use resource_tracker_metrics::GpuMetrics;

use super::library::Library;

/// One part in this many of the time is spent so.
const PARTS: u32 = 20;

/// NVML's unit.
const KILO: f64 = 1e3;

#[derive(Default)]
pub(super) struct Pcie {
    /// Sent and received, in bytes a second, by the device's index.
    rates: Vec<(Option<f64>, Option<f64>)>,
    turn: usize,
    due: Option<Instant>,
}

impl Pcie {
    /// Reads the device whose turn it is, and tells what is known of all. Parts of devices have no link of their own.
    pub(super) fn read(&mut self, library: &Library, gpus: &mut [GpuMetrics]) {
        let mut whole: Vec<&mut GpuMetrics> = gpus.iter_mut().filter(|gpu| gpu.parent_uuid.is_none()).collect();
        self.rates.resize(whole.len(), (None, None));
        let now = Instant::now();
        if !whole.is_empty() && self.due.is_none_or(|due| now >= due) {
            self.turn = (self.turn + 1) % whole.len();
            self.rates[self.turn] = rates(library, self.turn as u32);
            self.due = Some(now + pause(now.elapsed()));
        }
        for (gpu, (tx, rx)) in whole.iter_mut().zip(&self.rates) {
            gpu.pcie_tx_bytes_per_sec = *tx;
            gpu.pcie_rx_bytes_per_sec = *rx;
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
