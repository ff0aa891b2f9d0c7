//! The calls of NVML that the tracker makes.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use crate::launch::spread;

/// Each call is timed so often, a little apart, as a tracker makes it.
pub(super) const TIMES: usize = 50;
const APART: Duration = Duration::from_millis(5);

/// By the name that the tracker uses: the name without a number is installed only to build programs with it.
pub(super) fn open() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()
}

pub(super) type Call = (&'static str, fn(&Device<'_>) -> bool);

pub(super) const CALLS: [Call; 17] = [
    ("UtilizationRates", |gpu| gpu.utilization_rates().is_ok()),
    ("MemoryInfo_v2", |gpu| gpu.memory_info().is_ok()),
    ("Temperature", |gpu| gpu.temperature(TemperatureSensor::Gpu).is_ok()),
    ("PowerUsage", |gpu| gpu.power_usage().is_ok()),
    ("EnforcedPowerLimit", |gpu| gpu.enforced_power_limit().is_ok()),
    ("TotalEnergyConsumption", |gpu| gpu.total_energy_consumption().is_ok()),
    ("ClockInfo", |gpu| gpu.clock_info(Clock::SM).is_ok()),
    ("EncoderUtilization", |gpu| gpu.encoder_utilization().is_ok()),
    ("CurrentClocksThrottleReasons", |gpu| gpu.current_throttle_reasons().is_ok()),
    ("PerformanceState", |gpu| gpu.performance_state().is_ok()),
    ("CurrPcieLinkGeneration", |gpu| gpu.current_pcie_link_gen().is_ok()),
    ("TotalEccErrors", |gpu| gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).is_ok()),
    ("ComputeRunningProcesses", |gpu| gpu.running_compute_processes().is_ok()),
    ("GraphicsRunningProcesses", |gpu| gpu.running_graphics_processes().is_ok()),
    ("ProcessUtilization", |gpu| gpu.process_utilization_stats(0).is_ok()),
    ("GpmSampleGet", |gpu| gpu.gpm_sample().is_ok()),
    ("PcieThroughput", |gpu| gpu.pcie_throughput(PcieUtilCounter::Send).is_ok()),
];

/// The median and the longest time of a call in microseconds, and how often it was answered.
pub(super) fn time(call: fn(&Device<'_>) -> bool, gpu: &Device<'_>) -> (f64, f64, usize) {
    let (mut times, mut answered) = (Vec::new(), 0);
    for _ in 0..TIMES {
        std::thread::sleep(APART);
        let start = Instant::now();
        answered += usize::from(call(gpu));
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let (median, _, longest) = spread(times);
    (median, longest, answered)
}
