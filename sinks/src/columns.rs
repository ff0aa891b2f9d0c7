//! A sample as a row of CSV: the columns that the Python package and the Sentinel service know.

use resource_tracker_core::Sample;
use resource_tracker_metrics::{CpuMetrics, Disks, Gpus, JobGpuMetrics, MemoryMetrics, Networks, ProcessMetrics};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which columns a CSV has. All are numbers; one that is not known is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Columns {
    /// The 21 columns of the specification, about the machine.
    #[default]
    Tracker,
    /// The same 21, under the names of the Python package since it moved to MiB, and with its meaning of used memory
    /// (total less available).
    Python,
    /// The 21 of `tracker`, and 11 more about the command, or the process that is watched, and its children.
    Job,
    /// The 32 columns that Sentinel takes, about the machine and the process tree.
    Sentinel,
}

const SYSTEM: [&str; 21] = [
    "timestamp",
    "processes",
    "utime",
    "stime",
    "cpu_usage",
    "memory_free",
    "memory_used",
    "memory_buffers",
    "memory_cached",
    "memory_active",
    "memory_inactive",
    "disk_read_bytes",
    "disk_write_bytes",
    "disk_space_total_gb",
    "disk_space_used_gb",
    "disk_space_free_gb",
    "net_recv_bytes",
    "net_sent_bytes",
    "gpu_usage",
    "gpu_vram",
    "gpu_utilized",
];

const PROCESS: [&str; 11] = [
    "pid",
    "children",
    "utime",
    "stime",
    "cpu_usage",
    "memory_mib",
    "disk_read_bytes",
    "disk_write_bytes",
    "gpu_usage",
    "gpu_vram_mib",
    "gpu_utilized",
];

impl Columns {
    /// The header line, without a line end.
    pub fn header(self) -> String {
        let with_unit = |name: &&str| match *name {
            name if name.starts_with("memory_") || name == "gpu_vram" => format!("{name}_mib"),
            name => name.to_owned(),
        };
        let process = || PROCESS.iter().map(|name| format!("process_{name}"));
        let names: Vec<String> = match self {
            Columns::Tracker => SYSTEM.iter().map(|name| (*name).to_owned()).collect(),
            Columns::Python => SYSTEM.iter().map(with_unit).collect(),
            Columns::Job => SYSTEM.iter().map(|name| (*name).to_owned()).chain(process()).collect(),
            Columns::Sentinel => {
                let system = SYSTEM[1..].iter().map(|name| format!("system_{}", with_unit(name)));
                std::iter::once("timestamp".to_owned()).chain(system).chain(process()).collect()
            }
        };
        names.join(",")
    }

    /// Appends the row of a sample, without a line end.
    pub fn write_row(self, sample: &Sample, out: &mut Vec<u8>) {
        let mut row = Row { out, first: true };
        timestamp(sample, &mut row);
        cpu(sample, &mut row);
        memory(sample, self, &mut row);
        disk(sample, &mut row);
        network(sample, &mut row);
        gpu(sample, &mut row);
        if matches!(self, Columns::Job | Columns::Sentinel) {
            process(sample, &mut row);
        }
    }
}

/// Values between commas.
struct Row<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Row<'_> {
    fn put(&mut self, value: Option<std::fmt::Arguments<'_>>) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        if let Some(value) = value {
            // Writing into memory does not fail.
            let _ = std::io::Write::write_fmt(self.out, value);
        }
    }

    fn integer(&mut self, value: Option<u64>) {
        match value {
            Some(value) => self.put(Some(format_args!("{value}"))),
            None => self.put(None),
        }
    }

    fn decimals(&mut self, value: Option<f64>, decimals: usize) {
        match value.filter(|value| value.is_finite()) {
            Some(value) => self.put(Some(format_args!("{value:.decimals$}"))),
            None => self.put(None),
        }
    }
}

fn timestamp(sample: &Sample, row: &mut Row<'_>) {
    if sample.run().interval.subsec_nanos() == 0 {
        row.integer(Some(sample.timestamp().as_secs()));
    } else {
        let (secs, millis) = (sample.timestamp().as_secs(), sample.timestamp().subsec_millis());
        row.put(Some(format_args!("{secs}.{millis:03}")));
    }
}

fn cpu(sample: &Sample, row: &mut Row<'_>) {
    let cpu = sample.get::<CpuMetrics>();
    row.integer(cpu.map(|cpu| cpu.process_count.into()));
    row.decimals(cpu.map(|cpu| cpu.utime_secs), 3);
    row.decimals(cpu.map(|cpu| cpu.stime_secs), 3);
    row.decimals(cpu.map(|cpu| cpu.utilization_pct), 4);
}

fn memory(sample: &Sample, columns: Columns, row: &mut Row<'_>) {
    let memory = sample.get::<MemoryMetrics>();
    row.integer(memory.map(|memory| memory.free_mib));
    row.integer(memory.map(|memory| match columns {
        Columns::Tracker | Columns::Job => memory.used_mib,
        // The Python package, and with it the service, takes reclaimable memory off since 0.5.0.
        Columns::Python | Columns::Sentinel => memory.total_mib.saturating_sub(memory.available_mib),
    }));
    row.integer(memory.map(|memory| memory.buffers_mib));
    row.integer(memory.map(|memory| memory.cached_mib));
    row.integer(memory.map(|memory| memory.active_mib));
    row.integer(memory.map(|memory| memory.inactive_mib));
}

fn disk(sample: &Sample, row: &mut Row<'_>) {
    let disks = sample.get::<Disks>().map(|list| &list.0);
    let counted = || disks.into_iter().flatten().filter(|disk| disk.is_counted);
    row.integer(disks.map(|_| counted().map(|disk| disk.read_bytes).sum()));
    row.integer(disks.map(|_| counted().map(|disk| disk.write_bytes).sum()));

    let mounts = || disks.into_iter().flatten().flat_map(|disk| &disk.mounts);
    // In units of the last decimal (10⁻⁶ GB), so that the three columns add up as printed.
    let kilobytes = |bytes: u64| (bytes + 500) / 1000;
    let total = kilobytes(mounts().filter_map(|mount| mount.total_bytes).sum());
    let free = kilobytes(mounts().filter_map(|mount| mount.available_bytes).sum());
    for value in [total, total.saturating_sub(free), free] {
        match disks {
            Some(_) => row.put(Some(format_args!("{}.{:06}", value / 1_000_000, value % 1_000_000))),
            None => row.put(None),
        }
    }
}

fn network(sample: &Sample, row: &mut Row<'_>) {
    let interfaces = sample.get::<Networks>().map(|list| &list.0);
    row.integer(interfaces.map(|list| list.iter().map(|interface| interface.counted_rx_bytes).sum()));
    row.integer(interfaces.map(|list| list.iter().map(|interface| interface.counted_tx_bytes).sum()));
}

fn gpu(sample: &Sample, row: &mut Row<'_>) {
    // What a part of a device uses is in the figures of the whole.
    let gpus = || sample.all::<Gpus>().flat_map(|list| &list.0).filter(|gpu| gpu.parent_uuid.is_none());
    let utilization = || gpus().filter_map(|gpu| gpu.utilization_pct);
    let vram = gpus().filter_map(|gpu| gpu.vram_used_bytes).sum::<u64>() as f64 / f64::from(1 << 20);
    // A sum of nothing would be -0.
    row.decimals(Some(utilization().fold(0.0, |sum, pct| sum + pct / 100.0)), 4);
    row.decimals(Some(vram), 4);
    row.integer(Some(utilization().filter(|pct| *pct > 0.0).count() as u64));
}

fn process(sample: &Sample, row: &mut Row<'_>) {
    let process = sample.get::<ProcessMetrics>().filter(|process| process.process_child_count.is_some());
    let pid = process.and(sample.run().pid).and_then(|pid| u64::try_from(pid).ok());
    row.integer(pid);
    row.integer(process.and_then(|process| process.process_child_count).map(u64::from));
    row.decimals(process.and_then(|process| process.process_utime_secs), 3);
    row.decimals(process.and_then(|process| process.process_stime_secs), 3);
    row.decimals(process.and_then(|process| process.process_cores_used), 4);
    row.decimals(process.and_then(|process| process.process_memory_mib), 4);
    row.integer(process.and_then(|process| process.process_disk_read_bytes));
    row.integer(process.and_then(|process| process.process_disk_write_bytes));
    let gpus = sample.get::<JobGpuMetrics>();
    row.decimals(gpus.and_then(|gpus| gpus.process_gpu_usage), 4);
    row.decimals(gpus.and_then(|gpus| gpus.process_gpu_vram_mib), 4);
    row.integer(gpus.and_then(|gpus| gpus.process_gpu_utilized).map(u64::from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_specification_the_package_and_the_service() {
        assert_eq!(
            Columns::Tracker.header(),
            "timestamp,processes,utime,stime,cpu_usage,memory_free,memory_used,memory_buffers,memory_cached,\
             memory_active,memory_inactive,disk_read_bytes,disk_write_bytes,disk_space_total_gb,disk_space_used_gb,\
             disk_space_free_gb,net_recv_bytes,net_sent_bytes,gpu_usage,gpu_vram,gpu_utilized"
        );
        let python = Columns::Python.header();
        assert!(python.contains(",memory_free_mib,memory_used_mib,") && python.contains(",gpu_vram_mib,"));
        let sentinel = Columns::Sentinel.header();
        assert_eq!(sentinel.split(',').count(), 32);
        assert!(sentinel.starts_with("timestamp,system_processes,system_utime,"));
        assert!(sentinel.contains(",system_gpu_utilized,process_pid,process_children,"));
        assert!(sentinel.ends_with(",process_gpu_usage,process_gpu_vram_mib,process_gpu_utilized"));
        let job = Columns::Job.header();
        assert!(job.starts_with(&(Columns::Tracker.header() + ",process_pid,process_children,process_utime,")));
        assert_eq!(job.split(',').count(), 32);
    }

    #[test]
    fn a_row_of_nothing_known_has_all_its_columns() {
        for columns in [Columns::Tracker, Columns::Python, Columns::Job, Columns::Sentinel] {
            let mut row = Vec::new();
            columns.write_row(&Sample::default(), &mut row);
            let commas = row.iter().filter(|byte| **byte == b',').count();
            assert_eq!(commas + 1, columns.header().split(',').count());
        }
    }
}
