//! What the machine used, with the job and all others.

use resource_tracker_core::Sample;
use resource_tracker_metrics::HostMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter::{CounterSum, DEVICES};
use crate::fields::{CpuFields, DiskList, MemoryFields, NetworkList, PressureFields};
use crate::readable::Readable;
use crate::space::{FullFileSystem, Fullest};
use crate::statistics::{Level, Series, Spread};

/// Sums over the machine's samples.
#[derive(Default)]
pub(crate) struct Machine {
    /// Of the sample that was added last, as the next.
    disks: Vec<DiskList>,
    networks: Vec<NetworkList>,
    cores: Series,
    steal: Level,
    iowait: Level,
    cpus: Option<u32>,
    memory: Series,
    memory_total: Option<u64>,
    swap: Level,
    read: CounterSum,
    written: CounterSum,
    busiest_disk: Series,
    fullest: Fullest,
    received: CounterSum,
    sent: CounterSum,
    cpu_pressure: Level,
    memory_pressure: Level,
    io_pressure: Level,
    host: HostMetrics,
}

impl Machine {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        if let Some(cpu) = readable.first_fields::<CpuFields>(sample) {
            self.cores.add(cpu.cores_used, secs);
            self.steal.add(cpu.steal_cores, secs);
            self.iowait.add(cpu.iowait_cores, secs);
            let cpus = cpu.per_core_pct.and_then(|cores| u32::try_from(cores.len()).ok());
            self.cpus = cpus.filter(|cpus| *cpus > 0).or(self.cpus);
        }
        if let Some(memory) = readable.first_fields::<MemoryFields>(sample) {
            self.memory.add(memory.unavailable_mib.map(|mib| mib as f64), secs);
            self.swap.add(memory.swap_used_mib.map(|mib| mib as f64), secs);
            self.memory_total = memory.total_mib.or(self.memory_total);
        }
        let Self { disks, networks, .. } = self;
        readable.fill_fields(sample, disks);
        readable.fill_fields(sample, networks);
        self.add_disks(secs);
        for network in self.networks.iter().flat_map(|networks| &networks.0) {
            let number = network.ifindex.map(|index| index.to_string());
            match (number.as_deref().or(network.interface.as_deref()), network.is_counted) {
                (Some(device), Some(true)) => {
                    self.received.add(device, network.rx_bytes_total, network.rx_bytes_per_sec, secs);
                    self.sent.add(device, network.tx_bytes_total, network.tx_bytes_per_sec, secs);
                }
                (Some(device), None) => {
                    self.received.remember(device, network.rx_bytes_total);
                    self.sent.remember(device, network.tx_bytes_total);
                }
                (None, _) | (_, Some(false)) => (),
            }
        }
        if let Some(pressure) = readable.first_fields::<PressureFields>(sample) {
            let [cpu, memory, io] = pressure.waited_pct();
            self.cpu_pressure.add(cpu, secs);
            self.memory_pressure.add(memory, secs);
            self.io_pressure.add(io, secs);
        }
        if let Some(host) = readable.first::<HostMetrics>(sample) {
            self.add_host(&host);
        }
    }

    fn add_disks(&mut self, secs: f64) {
        let disks = || self.disks.iter().flat_map(|disks| &disks.0);
        for disk in disks().filter(|disk| disk.is_counted == Some(true)) {
            let Some(device) = &disk.device else { continue };
            self.read.add(device, disk.read_bytes_total, disk.read_bytes_per_sec, secs);
            self.written.add(device, disk.write_bytes_total, disk.write_bytes_per_sec, secs);
        }
        self.busiest_disk.add(disks().filter_map(|disk| disk.utilization_pct).reduce(f64::max), secs);
        self.fullest.add(&disks);
    }

    /// The section comes in parts: most of it in the first sample, the rest in the last.
    fn add_host(&mut self, host: &HostMetrics) {
        let HostMetrics { host_name, host_allocation, host_vcpus, host_cpu_model, host_memory_mib, .. } = host;
        let known = &mut self.host;
        known.host_name = host_name.clone().or(known.host_name.take());
        known.host_allocation = host_allocation.or(known.host_allocation);
        known.host_vcpus = host_vcpus.or(known.host_vcpus);
        known.host_cpu_model = host_cpu_model.clone().or(known.host_cpu_model.take());
        known.host_memory_mib = host_memory_mib.or(known.host_memory_mib);
    }

    /// A sentence for each kind of device that there were too many of.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let sums = [("disks", [&self.read, &self.written]), ("network interfaces", [&self.received, &self.sent])];
        let full = sums.into_iter().filter(|(_, sums)| sums.iter().any(|sum| sum.has_more()));
        full.map(|(devices, _)| format!("there are more than {DEVICES} {devices}: the others are not in the sums"))
    }

    pub(crate) fn summary(&self) -> MachineSummary {
        MachineSummary {
            host: self.host.clone(),
            cpus: self.cpus,
            cores: self.cores.spread(),
            steal_cores: self.steal.mean(),
            iowait_cores: self.iowait.mean(),
            memory_mib: self.memory.spread(),
            memory_total_mib: self.memory_total,
            peak_swap_mib: self.swap.peak(),
            disk_read_bytes: self.read.sum(),
            disk_write_bytes: self.written.sum(),
            busiest_disk_pct: self.busiest_disk.spread(),
            fullest_file_system: self.fullest.summary(),
            network_rx_bytes: self.received.sum(),
            network_tx_bytes: self.sent.sum(),
            cpu_pressure_pct: self.cpu_pressure.mean(),
            memory_pressure_pct: self.memory_pressure.mean(),
            io_pressure_pct: self.io_pressure.mean(),
        }
    }
}

/// What the machine used over the run, the job included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MachineSummary {
    /// What is known of the machine itself.
    pub host: HostMetrics,
    /// Logical CPUs. Length of `per_core_pct`
    pub cpus: Option<u32>,
    /// Cores in use. `cpu`, `cores_used`
    pub cores: Option<Spread>,
    /// Mean of what the hypervisor gave to others. `cpu`, `steal_cores`
    pub steal_cores: Option<f64>,
    /// Mean of what idled for a disk. `cpu`, `iowait_cores`
    pub iowait_cores: Option<f64>,
    /// Memory that programs could not get. `memory`, `unavailable_mib`
    pub memory_mib: Option<Spread>,
    /// Memory of the machine. `memory`, `total_mib`
    pub memory_total_mib: Option<u64>,
    /// The most swap in use. `memory`, `swap_used_mib`
    pub peak_swap_mib: Option<f64>,
    /// Bytes read from all disks, each once. What `read_bytes_total` of `disk` grew by
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to all disks, each once. What `write_bytes_total` of `disk` grew by
    pub disk_write_bytes: Option<u64>,
    /// Share of time in which the disk that was busiest at each sample had something to do. `disk`, `utilization_pct`
    pub busiest_disk_pct: Option<Spread>,
    /// The file system that was fullest at a sample: one that had no room left before one that had, else by the share.
    pub fullest_file_system: Option<FullFileSystem>,
    /// Bytes received from other machines, each once. What `rx_bytes_total` of `network` grew by
    pub network_rx_bytes: Option<u64>,
    /// Bytes sent to other machines, each once. What `tx_bytes_total` of `network` grew by
    pub network_tx_bytes: Option<u64>,
    /// Share of time in which a task waited for a CPU. `pressure`, `cpu`, `some`
    pub cpu_pressure_pct: Option<f64>,
    /// Share of time in which a task waited for memory. `pressure`, `memory`, `some`
    pub memory_pressure_pct: Option<f64>,
    /// Share of time in which a task waited for storage. `pressure`, `io`, `some`
    pub io_pressure_pct: Option<f64>,
}
