//! One card: what the amdgpu driver says of it in sysfs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use libamdgpu_top::{AMDGPU, PCI::LINK};
use resource_tracker_core::{Host, Tick};
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::drm::driver;
use crate::gpu::pace::Paced;
use crate::gpu::sleep_policy::{Power, SleepPolicy};
use crate::gpu::vram::set_vram;
use crate::procfile::attribute;

use super::kfd::{self, Kfd};
use super::libdrm::LibDrm;
use super::metrics::Metrics;
use super::pcie::Pcie;

/// What libdrm calls a device that it does not know.
const UNKNOWN: &str = "AMD Radeon Graphics";

/// The unit of many sensors.
const MICRO: f64 = 1e6;

/// `gfx_target_version` of MI200, gfx90a: its energy has "15.259uJ resolution" (`smu13_driver_if_aldebaran.h`).
const MI200: u64 = 90010;

/// Lanes of a compute unit, which AMD calls stream processors.
const LANES: u32 = 64;

pub(super) struct Card {
    /// `/sys/class/drm/cardN/device`.
    pub(super) path: PathBuf,
    pub(super) kfd: Option<kfd::Node>,
    power: Power,
    sleep_policy: SleepPolicy,
    /// Its device file, which libdrm asks.
    render: Option<PathBuf>,
    hwmon: Option<PathBuf>,
    /// What never changes: the names at first, and the rest when it is first read.
    facts: GpuMetrics,
    asked: Option<Asked>,
    attributes: HashMap<&'static str, Paced<String>>,
    memory: Paced<(u64, u64)>,
    pcie: Option<Pcie>,
}

/// What cannot be read without waking the card.
struct Asked {
    libdrm: Option<LibDrm>,
    metrics: Metrics,
}

/// The cards that the driver has, in the order of their numbers.
pub(super) fn all(host: &Host, devices: &Path, kfd: &Kfd) -> Vec<Card> {
    let root = host.sysfs.join("class/drm");
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("card")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .filter_map(|number| Card::find(host, &root.join(format!("card{number}/device")), number, devices, kfd))
        .collect()
}

impl Card {
    /// Nothing here wakes it: these files are what the kernel knows by itself.
    fn find(host: &Host, path: &Path, number: u32, devices: &Path, kfd: &Kfd) -> Option<Self> {
        let uevent = attribute(&path.join("uevent"))?;
        if driver(&uevent)? != "amdgpu" {
            return None;
        }
        let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?.to_owned();
        let render = names(&path.join("drm")).into_iter().find(|name| name.starts_with("renderD"));
        let kfd = render.as_deref().and_then(|render| kfd.node(render.strip_prefix("renderD")?.parse().ok()?));
        let facts = GpuMetrics {
            uuid: slot.clone(),
            name: name(path),
            device_type: "GPU".into(),
            host_id: format!("card{number}"),
            detail: versions(host, &slot),
            core_count: kfd.as_ref().and_then(|node| node.compute_units.checked_mul(LANES)),
            ..GpuMetrics::default()
        };
        let hwmon = names(&path.join("hwmon")).into_iter().next().map(|name| path.join("hwmon").join(name));
        Some(Self {
            kfd,
            power: Power::of(path),
            sleep_policy: SleepPolicy::default(),
            render: render.map(|render| devices.join(render)),
            hwmon,
            facts,
            asked: None,
            attributes: HashMap::new(),
            memory: Paced::default(),
            pcie: Pcie::watch(path),
            path: path.to_owned(),
        })
    }

    /// Its PCI address.
    pub(super) fn slot(&self) -> &str {
        &self.facts.uuid
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.power.is_asleep()
    }

    /// What is asked once, when it is awake.
    fn ask(&mut self) -> Asked {
        let libdrm = self.render.as_deref().and_then(LibDrm::open);
        if let Some(units) = libdrm.as_ref().and_then(LibDrm::compute_units) {
            self.facts.core_count = units.checked_mul(LANES);
        }
        self.facts.pcie_link_generation_max = generation(&self.path, "max_link_speed");
        self.facts.pcie_link_width_max =
            attribute(&self.path.join("max_link_width")).and_then(|width| width.parse().ok());
        self.facts.detail.extend(detail(&self.path));
        let is_mi200 = self.kfd.as_ref().is_some_and(|node| node.target == Some(MI200));
        Asked { libdrm, metrics: Metrics::new(&self.path, is_mi200) }
    }

    /// The card as it is now; only its names while it sleeps, or is about to. `is_used`: whether the job has it open.
    pub(super) fn read(&mut self, count: usize, tick: &Tick, is_used: bool) -> GpuMetrics {
        if !self.sleep_policy.should_read(self.is_asleep(), || is_used, tick.at) {
            return self.facts.clone();
        }
        let mut asked = self.asked.take().unwrap_or_else(|| self.ask());
        let metrics = self.ask_all(&mut asked, count, tick);
        self.asked = Some(asked);
        let is_idle = !is_used && metrics.utilization_pct == Some(0.0);
        self.sleep_policy.record_reading(is_idle, || self.power.is_managed(), tick.at);
        metrics
    }

    fn ask_all(&mut self, Asked { libdrm, metrics: table }: &mut Asked, count: usize, tick: &Tick) -> GpuMetrics {
        let mut metrics = self.facts.clone();
        table.read(count, tick.last);
        metrics.utilization_pct = self.number(count, "gpu_busy_percent").or(table.utilization_pct());
        metrics.memory_utilization_pct = self.number(count, "mem_busy_percent");
        metrics.decoder_utilization_pct = self.number(count, "vcn_busy_percent");
        let memory = self.memory(count, libdrm.as_ref());
        set_vram(&mut metrics, memory.map(|(total, _)| total), memory.map(|(_, used)| used));
        let celsius = self.sensor(count, "temp1_input").map(|millis| millis / 1e3).or(table.celsius());
        metrics.temperature_celsius = celsius.filter(|celsius| *celsius >= 0.0).map(|celsius| celsius as u32);
        let watts = |micros: f64| micros / MICRO;
        metrics.power_average_watts = self.sensor(count, "power1_average").map(watts);
        metrics.power_instant_watts = self.sensor(count, "power1_input").map(watts);
        metrics.power_watts = metrics.power_average_watts.or(metrics.power_instant_watts).or(table.watts());
        metrics.power_limit_watts = self.sensor(count, "power1_cap").map(watts);
        metrics.frequency_mhz = self.clock(count, "freq1_input", "pp_dpm_sclk");
        metrics.memory_frequency_mhz = self.clock(count, "freq2_input", "pp_dpm_mclk");
        metrics.energy_joules = table.joules();
        metrics.fan_speed_pct = self.fan(count);
        metrics.throttle_reasons = table.throttle_reasons();
        metrics.performance_state = self.text(count, "power_dpm_force_performance_level");
        metrics.pcie_link_generation = generation(&self.path, "current_link_speed");
        metrics.pcie_link_width = self.text(count, "current_link_width").and_then(|width| width.parse().ok());
        if let Some(errors) = self.text(count, "ras/umc_err_count") {
            metrics.ecc_corrected_errors = errors_of(&errors, "ce");
            metrics.ecc_uncorrected_errors = errors_of(&errors, "ue");
        }
        let rates = self.pcie.as_mut().and_then(|pcie| pcie.rates(tick.at));
        metrics.pcie_rx_bytes_per_sec = rates.map(|(rx, _)| rx);
        metrics.pcie_tx_bytes_per_sec = rates.map(|(_, tx)| tx);
        metrics
    }

    /// An attribute of the device, or of its monitor with `hwmon` before its name.
    fn text(&mut self, count: usize, name: &'static str) -> Option<String> {
        self.attributes.entry(name).or_default().get(count, || attribute(&self.path.join(name)))
    }

    fn number(&mut self, count: usize, name: &'static str) -> Option<f64> {
        self.text(count, name)?.parse().ok().filter(|pct: &f64| (0.0..=100.0).contains(pct))
    }

    /// A value of the hardware monitor, in thousandths or millionths of its unit.
    fn sensor(&mut self, count: usize, name: &'static str) -> Option<f64> {
        let path = self.hwmon.as_ref()?.join(name);
        self.attributes.entry(name).or_default().get(count, || attribute(&path))?.parse().ok()
    }

    fn memory(&mut self, count: usize, libdrm: Option<&LibDrm>) -> Option<(u64, u64)> {
        let Self { memory, path, .. } = self;
        let bytes = |name: &str| attribute(&path.join(name))?.parse().ok();
        let sysfs = || Some((bytes("mem_info_vram_total")?, bytes("mem_info_vram_used")?));
        memory.get(count, || libdrm.and_then(LibDrm::memory).or_else(sysfs))
    }

    /// A clock in MHz: the one that is measured, else the step that is chosen.
    fn clock(&mut self, count: usize, sensor: &'static str, steps: &'static str) -> Option<u32> {
        let measured = self.sensor(count, sensor).map(|hertz| (hertz / MICRO) as u32);
        measured.or_else(|| chosen_step(&self.text(count, steps)?))
    }

    fn fan(&mut self, count: usize) -> Option<f64> {
        let (now, most) = match (self.sensor(count, "fan1_input"), self.sensor(count, "fan1_max")) {
            (Some(now), Some(most)) => (now, most),
            _ => (self.sensor(count, "pwm1")?, 255.0),
        };
        (most > 0.0).then(|| (now / most * 100.0).clamp(0.0, 100.0))
    }
}

/// `1: 991Mhz *` among the steps of a clock.
fn chosen_step(steps: &str) -> Option<u32> {
    let line = steps.lines().find(|line| line.trim_end().ends_with('*'))?;
    let megahertz = line.split_whitespace().nth(1)?.to_ascii_lowercase();
    megahertz.strip_suffix("mhz")?.parse().ok()
}

/// `ue: 0` and `ce: 2`, a line each.
fn errors_of(counts: &str, kind: &str) -> Option<u64> {
    counts.lines().find_map(|line| line.trim().strip_prefix(kind)?.trim_start_matches(':').trim().parse().ok())
}

fn generation(path: &Path, name: &str) -> Option<u32> {
    LINK::speed_to_gen(&attribute(&path.join(name))?).map(u32::from)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn name(path: &Path) -> String {
    let hex = |name: &str| u32::from_str_radix(attribute(&path.join(name))?.trim_start_matches("0x"), 16).ok();
    let known = hex("device").zip(hex("revision")).and_then(|(id, revision)| AMDGPU::find_device_name(id, revision));
    known.or_else(|| attribute(&path.join("product_name"))).unwrap_or_else(|| UNKNOWN.to_owned())
}

fn versions(host: &Host, slot: &str) -> BTreeMap<String, String> {
    let module = attribute(&host.sysfs.join("module/amdgpu/version"));
    let details = [
        ("pci_bus_id", Some(slot.to_owned())),
        // The driver of the kernel has no version of its own.
        ("driver_version", module.or_else(|| attribute(&host.procfs.join("sys/kernel/osrelease")))),
        ("rocm_version", attribute(Path::new("/opt/rocm/.info/version"))),
    ];
    details.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn detail(path: &Path) -> impl Iterator<Item = (String, String)> {
    let files = [
        ("board_part_number", "product_number"),
        ("serial_number", "serial_number"),
        ("unique_id", "unique_id"),
        ("vbios_version", "vbios_version"),
        ("memory_vendor", "mem_info_vram_vendor"),
    ];
    files.into_iter().filter_map(|(key, file)| Some((key.to_owned(), attribute(&path.join(file))?)))
}
