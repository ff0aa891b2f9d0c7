use std::collections::BTreeMap;

use resource_tracker_core::unit::{Attribute, Counter, Delta, Gauge, Info};
use resource_tracker_core::{Section, SectionEntry, register_section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The accelerators: `gpu`. Empty on a machine without any. A field that a device does not have, or that it may not
/// be asked for, is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Gpus(pub Vec<GpuMetrics>);

impl Section for Gpus {
    const NAME: &'static str = "gpu";

    fn without_deltas(&self) -> Option<Self> {
        let mut copy = self.clone();
        copy.0.iter_mut().for_each(|gpu| gpu.energy_joules = None);
        Some(copy)
    }
}

register_section!(entry SectionEntry::always_present::<Gpus>().shared());

/// One accelerator, or one part of it that is used as a device of its own (MIG).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuMetrics {
    /// Identifier of the device, stable over reboots. NVML `DeviceGetUUID`; on AMD the PCI bus address
    #[schemars(transform = Attribute("hw.id"))]
    pub uuid: String,
    /// Name of the device. NVML `DeviceGetName`; on AMD by PCI id and revision
    #[schemars(transform = Attribute("hw.name"))]
    pub name: String,
    /// `GPU`, `NPU` or `TPU`.
    #[schemars(transform = Info)]
    pub device_type: String,
    /// The machine's own identifier of the device: `nvidia0` or `card0`, with `/INDEX` for a part of it.
    #[schemars(transform = Info)]
    pub host_id: String,
    /// What else is known of the device: versions of the driver, PCI bus address, board part, VBIOS; and what the job
    /// was given, such as `CUDA_VISIBLE_DEVICES`.
    #[schemars(transform = Info)]
    pub detail: BTreeMap<String, String>,
    /// The device that this one is a part of.
    #[schemars(transform = Attribute("hw.parent"))]
    pub parent_uuid: Option<String>,
    /// Share of time in which the device computed. NVML `DeviceGetUtilizationRates`; AMD `gpu_busy_percent`
    #[schemars(transform = Gauge("percent").named("hw.gpu.utilization", &[("hw.gpu.task", "general")]))]
    pub utilization_pct: Option<f64>,
    /// Memory of the device. NVML `DeviceGetMemoryInfo`; AMD `mem_info_vram_total`
    #[schemars(transform = Gauge("bytes").summed("hw.gpu.memory.limit", &[]))]
    pub vram_total_bytes: Option<u64>,
    /// Memory of the device in use. NVML `DeviceGetMemoryInfo`; AMD `mem_info_vram_used`
    #[schemars(transform = Gauge("bytes").summed("hw.gpu.memory.usage", &[]))]
    pub vram_used_bytes: Option<u64>,
    /// The same as a share of the device's memory; 0 when it has none.
    #[schemars(transform = Gauge("percent").named("hw.gpu.memory.utilization", &[]))]
    pub vram_used_pct: Option<f64>,
    /// Temperature of the die. NVML `DeviceGetTemperature`; AMD hwmon `temp1_input`, else `gpu_metrics`
    #[schemars(transform = Gauge("celsius").named("hw.temperature", &[]))]
    pub temperature_celsius: Option<u32>,
    /// Power draw, over which time depends on the device. NVML `DeviceGetPowerUsage`: averaged over a second from Ampere on
    /// (but for GA100), of the moment before; AMD hwmon `power1_average` or `power1_input`, else `gpu_metrics`
    #[schemars(transform = Gauge("watts").named("hw.power", &[("hw.type", "gpu")]))]
    pub power_watts: Option<f64>,
    /// Power draw at the moment. NVML field `POWER_INSTANT`; AMD hwmon `power1_input`
    #[schemars(transform = Gauge("watts"))]
    pub power_instant_watts: Option<f64>,
    /// Power draw, averaged: over a second by NVML field `POWER_AVERAGE`; by AMD's firmware, hwmon `power1_average`
    #[schemars(transform = Gauge("watts"))]
    pub power_average_watts: Option<f64>,
    /// Clock of the cores. NVML `DeviceGetClockInfo`; AMD hwmon `freq1_input`, else `pp_dpm_sclk`
    #[schemars(transform = Gauge("MHz"))]
    pub frequency_mhz: Option<u32>,
    /// Compute cores. NVML `DeviceGetNumGpuCores`; AMD 64 for each active compute unit, libdrm
    #[schemars(transform = Gauge("cores"))]
    pub core_count: Option<u32>,
    /// Share of time in which a multiprocessor had work, as the mean over all of them, over more than 100 ms; of a part (MIG),
    /// over its GPU instance. NVML `GpmMetricsGet`, since Hopper
    #[schemars(transform = Gauge("percent"))]
    pub sm_utilization_pct: Option<f64>,
    /// Share of time in which some multiprocessor had work, by process, as the sum over the processes that the device lists. Not
    /// `sm_utilization_pct`: one busy multiprocessor of many makes this 100. NVML `DeviceGetProcessUtilization`
    #[schemars(transform = Gauge("percent"))]
    pub process_sm_utilization_pct: Option<f64>,
    /// Share of time in which the device's memory was read or written. NVML `DeviceGetUtilizationRates`; AMD
    /// `mem_busy_percent`
    #[schemars(transform = Gauge("percent"))]
    pub memory_utilization_pct: Option<f64>,
    /// Use of the video encoder. NVML `DeviceGetEncoderUtilization`
    #[schemars(transform = Gauge("percent").named("hw.gpu.utilization", &[("hw.gpu.task", "encoder")]))]
    pub encoder_utilization_pct: Option<f64>,
    /// Use of the video decoder. NVML `DeviceGetDecoderUtilization`; AMD `vcn_busy_percent`
    #[schemars(transform = Gauge("percent").named("hw.gpu.utilization", &[("hw.gpu.task", "decoder")]))]
    pub decoder_utilization_pct: Option<f64>,
    /// Clock of the memory. NVML `DeviceGetClockInfo`; AMD hwmon `freq2_input`, else `pp_dpm_mclk`
    #[schemars(transform = Gauge("MHz"))]
    pub memory_frequency_mhz: Option<u32>,
    /// Power draw that the device keeps below. NVML `DeviceGetEnforcedPowerLimit`; AMD hwmon `power1_cap`
    #[schemars(transform = Gauge("watts"))]
    pub power_limit_watts: Option<f64>,
    /// Energy used since it was last read, which is not at every sample where the call is slow; always at the last one. NVML
    /// `DeviceGetTotalEnergyConsumption`; AMD `gpu_metrics`, `energy_accumulator` (from table 1.4 on, and MI200)
    #[schemars(transform = Delta("joules").named("hw.energy", &[("hw.type", "gpu")]))]
    pub energy_joules: Option<f64>,
    /// Speed of the fastest fan, as a share of its maximum. NVML `DeviceGetFanSpeed_v2`; AMD hwmon `fan1_input`
    #[schemars(transform = Gauge("percent").named("hw.fan.speed_ratio", &[]))]
    pub fan_speed_pct: Option<f64>,
    /// Why the clocks are lower than they could be; empty when nothing holds them back. NVML
    /// `DeviceGetCurrentClocksThrottleReasons`; AMD `gpu_metrics`, `indep_throttle_status`, from table 1.6 on the limits whose
    /// `residency_acc` has grown
    #[schemars(transform = Info)]
    pub throttle_reasons: Option<Vec<String>>,
    /// Performance state. NVML `DeviceGetPerformanceState`, `P0` the fastest; AMD `power_dpm_force_performance_level`
    #[schemars(transform = Info)]
    pub performance_state: Option<String>,
    /// Bytes that the device sent over PCIe. NVML field `PCIE_COUNT_TX_BYTES` where that cannot have gone round since, else
    /// `GpmMetricsGet` (since Hopper), else `DeviceGetPcieThroughput`, which sees 20 ms now and then; AMD `pcie_bw`, an upper
    /// bound, as if each packet were full
    #[schemars(transform = Gauge("bytes/second"))]
    pub pcie_tx_bytes_per_sec: Option<f64>,
    /// Bytes that the device received over PCIe. NVML field `PCIE_COUNT_RX_BYTES`, and as `pcie_tx_bytes_per_sec`
    #[schemars(transform = Gauge("bytes/second"))]
    pub pcie_rx_bytes_per_sec: Option<f64>,
    /// PCIe generation that the link has now. NVML `DeviceGetCurrPcieLinkGeneration`; AMD `current_link_speed`
    #[schemars(transform = Gauge("generation"))]
    pub pcie_link_generation: Option<u32>,
    /// The highest that it can have. NVML `DeviceGetMaxPcieLinkGeneration`; AMD `max_link_speed`
    #[schemars(transform = Gauge("generation"))]
    pub pcie_link_generation_max: Option<u32>,
    /// PCIe lanes in use. NVML `DeviceGetCurrPcieLinkWidth`; AMD `current_link_width`
    #[schemars(transform = Gauge("lanes"))]
    pub pcie_link_width: Option<u32>,
    /// PCIe lanes that there are. NVML `DeviceGetMaxPcieLinkWidth`; AMD `max_link_width`
    #[schemars(transform = Gauge("lanes"))]
    pub pcie_link_width_max: Option<u32>,
    /// What the device sent over all its NVLinks. NVML field `NVLINK_THROUGHPUT_DATA_TX`, which is payload, or from NVLink 5
    /// on `NVLINK_COUNT_XMIT_BYTES`
    #[schemars(transform = Gauge("bytes/second"))]
    pub nvlink_tx_bytes_per_sec: Option<f64>,
    /// What the device received over all its NVLinks. NVML field `NVLINK_THROUGHPUT_DATA_RX`, which is payload, or from NVLink 5
    /// on `NVLINK_COUNT_RCV_BYTES`
    #[schemars(transform = Gauge("bytes/second"))]
    pub nvlink_rx_bytes_per_sec: Option<f64>,
    /// What all active NVLinks can carry in one direction.
    #[schemars(transform = Gauge("bytes/second"))]
    pub nvlink_max_bytes_per_sec: Option<f64>,
    /// The active NVLinks one by one.
    pub nvlinks: Option<Vec<NvLinkMetrics>>,
    /// Memory errors that were corrected, since the driver was loaded. NVML `DeviceGetTotalEccErrors`, volatile; AMD
    /// `ras/umc_err_count`
    #[schemars(transform = Counter("errors").named("hw.errors", &[("hw.type", "gpu"), ("error.type", "corrected")]))]
    pub ecc_corrected_errors: Option<u64>,
    /// Memory errors that could not be corrected, since the driver was loaded. As `ecc_corrected_errors`
    #[schemars(transform = Counter("errors").named("hw.errors", &[("hw.type", "gpu"), ("error.type", "uncorrected")]))]
    pub ecc_uncorrected_errors: Option<u64>,
    /// Processes that compute on the device. NVML `DeviceGetComputeRunningProcesses` and
    /// `DeviceGetMPSComputeRunningProcesses`; AMD `/sys/class/kfd/kfd/proc`
    #[schemars(transform = Gauge("processes"))]
    pub process_count: Option<u32>,
    /// Processes of the tracked tree that use the device; null when that cannot be known.
    pub processes: Option<Vec<GpuProcess>>,
}

/// One NVLink of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NvLinkMetrics {
    /// Number of the link.
    #[schemars(transform = Attribute("resource_tracker.gpu.nvlink"))]
    pub link: u32,
    /// What it carried away. NVML field `NVLINK_THROUGHPUT_DATA_TX`, or from NVLink 5 on `NVLINK_COUNT_XMIT_BYTES`
    #[schemars(transform = Gauge("bytes/second"))]
    pub tx_bytes_per_sec: Option<f64>,
    /// What it brought. NVML field `NVLINK_THROUGHPUT_DATA_RX`, or from NVLink 5 on `NVLINK_COUNT_RCV_BYTES`
    #[schemars(transform = Gauge("bytes/second"))]
    pub rx_bytes_per_sec: Option<f64>,
    /// What the link can carry in one direction. NVML `DeviceGetFieldValues`, `NVLINK_GET_SPEED`
    #[schemars(transform = Gauge("bytes/second"))]
    pub max_bytes_per_sec: Option<f64>,
}

/// What one process of the tracked tree has of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuProcess {
    /// Its process id.
    #[schemars(transform = Attribute("process.pid"))]
    pub pid: i32,
    /// Memory of the device that it holds; what processes share may be in each of them. NVML `DeviceGetComputeRunningProcesses`,
    /// `DeviceGetGraphicsRunningProcesses` and `DeviceGetMPSComputeRunningProcesses`; AMD `/proc/PID/fdinfo`,
    /// `/sys/class/kfd/kfd/proc`
    #[schemars(transform = Gauge("bytes"))]
    pub vram_bytes: Option<u64>,
    /// Share of the device's time that it used; null where the driver does not tell it. NVML `DeviceGetProcessUtilization`;
    /// AMD `/proc/PID/fdinfo`, null for one that computes (ROCm, HIP), whose time nobody counts
    #[schemars(transform = Gauge("percent"))]
    pub utilization_pct: Option<f64>,
    /// Compute units that its waves in flight would fill, as a share of all: of the moment, and no share of the time. AMD
    /// `/sys/class/kfd/kfd/proc`, `cu_occupancy`
    #[schemars(transform = Gauge("percent"))]
    pub cu_occupancy_pct: Option<f64>,
}
