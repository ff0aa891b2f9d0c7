//! One GPU, and its parts.

use nvml_wrapper::Device as Handle;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_POWER_AVERAGE as POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT as POWER_INSTANT,
};
use resource_tracker_core::Tick;
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::counter::gained;
use crate::gpu::namespace::Namespace;
use crate::gpu::pace::Paced;
use crate::gpu::vram::set_vram;

use super::gpm::Gpm;
use super::library::Library;
use super::links::Links;
use super::mig;
use super::pcie::Counters;
use super::processes::Processes;

/// `NVML_POWER_SCOPE_GPU`, and not its module with a CPU.
const POWER_SCOPE_GPU: u32 = 0;

pub(super) struct Device {
    index: u32,
    /// What never changes: names, versions, limits of the link. It is asked once, and reported also when the device is
    /// lost.
    facts: Option<GpuMetrics>,
    calls: Calls,
    energy: Option<u64>,
    gpm: Gpm,
    links: Links,
    pcie: Counters,
    /// Whether it counts what goes over PCIe, so that there is no need to watch the link.
    tells_pcie: bool,
    processes: Processes,
    parts: Vec<mig::Part>,
}

/// The calls, each paced by the time that it takes.
#[derive(Default)]
struct Calls {
    utilization: Paced<(u32, u32)>,
    memory: Paced<(u64, u64)>,
    temperature: Paced<u32>,
    power: Paced<u32>,
    power_instant: Paced<u64>,
    power_average: Paced<u64>,
    clock: Paced<u32>,
    memory_clock: Paced<u32>,
    encoder: Paced<u32>,
    decoder: Paced<u32>,
    power_limit: Paced<u32>,
    energy: Paced<u64>,
    fan: Paced<u32>,
    throttle: Paced<Vec<String>>,
    state: Paced<u32>,
    link_generation: Paced<u32>,
    link_width: Paced<u32>,
    ecc_corrected: Paced<u64>,
    ecc_uncorrected: Paced<u64>,
    mig: Paced<bool>,
}

impl Device {
    pub(super) fn new(index: u32) -> Self {
        Self {
            index,
            facts: None,
            calls: Calls::default(),
            energy: None,
            gpm: Gpm::default(),
            links: Links::default(),
            pcie: Counters::default(),
            tells_pcie: false,
            processes: Processes::default(),
            parts: Vec::new(),
        }
    }

    pub(super) fn tells_pcie(&self) -> bool {
        self.tells_pcie
    }

    /// The facts, for times in which the device is not asked.
    pub(super) fn facts(&self) -> Option<&GpuMetrics> {
        self.facts.as_ref()
    }

    /// Gives back its objects of NVML.
    pub(super) fn let_go(&mut self) {
        self.gpm.let_go();
        self.parts.clear();
    }

    /// The device as it is now, and its parts. `count` is the number of all devices, `tree` the processes of the job.
    pub(super) fn read(
        &mut self,
        library: &'static Library,
        count: usize,
        tick: &Tick,
        tree: Option<&[i32]>,
        namespace: &mut Namespace,
    ) -> Vec<GpuMetrics> {
        let Ok(handle) = library.nvml.device_by_index(self.index) else {
            return self.facts.iter().cloned().collect();
        };
        let facts = self.facts.get_or_insert_with(|| facts(library, &handle, self.index));
        let mut metrics = facts.clone();
        self.calls.fill(&mut metrics, library, &handle, count);
        let millijoules = self.calls.energy.fresh(count, tick.last, || handle.total_energy_consumption().ok());
        metrics.energy_joules = gained(&mut self.energy, millijoules).map(|millijoules| millijoules as f64 / 1e3);
        self.links.fill(&mut metrics, library, &handle, count);
        self.processes.fill(&mut metrics, library, &handle, count, tree, namespace);
        let counted = self.gpm.read(library, || handle.gpm_support(), || handle.gpm_sample());
        metrics.sm_utilization_pct = counted.sm_utilization_pct;
        let (tx, rx) = self.pcie.rates(&metrics, library, &handle, count);
        metrics.pcie_tx_bytes_per_sec = tx.or(counted.pcie_tx);
        metrics.pcie_rx_bytes_per_sec = rx.or(counted.pcie_rx);
        self.tells_pcie = self.gpm.is_at_work() || tx.or(rx).is_some();
        let is_divided = self.calls.mig.get(count, || handle.mig_mode().ok().map(|mode| mode.current == 1));
        if is_divided != Some(true) {
            self.parts.clear();
            return vec![metrics];
        }
        let parts = mig::read(&mut self.parts, &metrics, library, &handle, count, tree, namespace);
        // Whether the list of the whole has the processes of its parts differs between callers.
        metrics.processes = metrics.processes.filter(|_| parts.is_empty());
        std::iter::once(metrics).chain(parts).collect()
    }
}

impl Calls {
    fn fill(&mut self, metrics: &mut GpuMetrics, library: &Library, handle: &Handle<'_>, count: usize) {
        let rates = self.utilization.get(count, || handle.utilization_rates().ok().map(|now| (now.gpu, now.memory)));
        metrics.utilization_pct = rates.map(|(gpu, _)| pct(gpu));
        metrics.memory_utilization_pct = rates.map(|(_, memory)| pct(memory));
        let memory = self.memory.get(count, || library.memory(handle));
        set_vram(metrics, memory.map(|(total, _)| total), memory.map(|(_, used)| used));
        metrics.temperature_celsius = self.temperature.get(count, || handle.temperature(TemperatureSensor::Gpu).ok());
        metrics.power_watts = self.power.get(count, || handle.power_usage().ok()).map(watts);
        let field = |field| library.extra.fields(handle, &[(field, POWER_SCOPE_GPU)]).into_iter().next().flatten();
        metrics.power_instant_watts = self.power_instant.get(count, || field(POWER_INSTANT)).map(watts);
        metrics.power_average_watts = self.power_average.get(count, || field(POWER_AVERAGE)).map(watts);
        metrics.frequency_mhz = self.clock.get(count, || handle.clock_info(Clock::SM).ok());
        metrics.memory_frequency_mhz = self.memory_clock.get(count, || handle.clock_info(Clock::Memory).ok());
        let encoder = || handle.encoder_utilization().ok().map(|now| now.utilization);
        metrics.encoder_utilization_pct = self.encoder.get(count, encoder).map(pct);
        let decoder = || handle.decoder_utilization().ok().map(|now| now.utilization);
        metrics.decoder_utilization_pct = self.decoder.get(count, decoder).map(pct);
        metrics.power_limit_watts = self.power_limit.get(count, || handle.enforced_power_limit().ok()).map(watts);
        metrics.fan_speed_pct = self.fan.get(count, || fastest_fan(handle)).map(f64::from);
        metrics.throttle_reasons = self.throttle.get(count, || Some(reasons(handle.current_throttle_reasons().ok()?)));
        let state = || handle.performance_state().ok().map(|state| state.as_c());
        metrics.performance_state =
            self.state.get(count, state).filter(|state| *state < 16).map(|state| format!("P{state}"));
        metrics.pcie_link_generation = self.link_generation.get(count, || handle.current_pcie_link_gen().ok());
        metrics.pcie_link_width = self.link_width.get(count, || handle.current_pcie_link_width().ok());
        let errors = |kind: MemoryError| handle.total_ecc_errors(kind, EccCounter::Volatile).ok();
        metrics.ecc_corrected_errors = self.ecc_corrected.get(count, || errors(MemoryError::Corrected));
        metrics.ecc_uncorrected_errors = self.ecc_uncorrected.get(count, || errors(MemoryError::Uncorrected));
    }
}

fn facts(library: &Library, handle: &Handle<'_>, index: u32) -> GpuMetrics {
    let mut metrics = GpuMetrics {
        uuid: handle.uuid().unwrap_or_default(),
        name: handle.name().unwrap_or_default(),
        device_type: "GPU".into(),
        host_id: format!("nvidia{}", handle.minor_number().unwrap_or(index)),
        core_count: handle.num_cores().ok(),
        pcie_link_generation_max: handle.max_pcie_link_gen().ok(),
        pcie_link_width_max: handle.max_pcie_link_width().ok(),
        ..GpuMetrics::default()
    };
    let detail = [
        ("driver_version", library.driver_version.clone()),
        ("cuda_version", library.cuda_version.clone()),
        ("pci_bus_id", handle.pci_info().ok().map(|pci| pci.bus_id)),
        ("board_part_number", handle.board_part_number().ok()),
        ("vbios_version", handle.vbios_version().ok()),
    ];
    metrics.detail.extend(detail.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    metrics
}

fn fastest_fan(handle: &Handle<'_>) -> Option<u32> {
    (0..handle.num_fans().ok()?).filter_map(|fan| handle.fan_speed(fan).ok()).max()
}

fn reasons(reasons: ThrottleReasons) -> Vec<String> {
    reasons.iter_names().map(|(name, _)| name.to_lowercase()).filter(|name| name != "none").collect()
}

/// NVML's percentages are whole, and a reading between two of its own periods can pass 100.
fn pct(value: u32) -> f64 {
    f64::from(value.min(100))
}

fn watts(milliwatts: impl Into<u64>) -> f64 {
    milliwatts.into() as f64 / 1e3
}
