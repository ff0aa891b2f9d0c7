//! What the view shows of one sample.

use std::borrow::Cow;

use resource_tracker_core::{Sample, Section};
use resource_tracker_metrics::{
    CpuMetrics, Disks, GpuMetrics, Gpus, HostMetrics, JobLimitMetrics, Mark, Marks, MemoryMetrics, Networks,
    OutcomeMetrics, PressureMetrics, ProcessMetrics, ResourcePressure, RunMetrics, TopProcesses, cpu_list,
};
use resource_tracker_report::printable;
use serde::Deserialize;
use serde::de::DeserializeOwned;

const MIB: f64 = 1_048_576.0;
/// The most items of a kind; no screen shows more.
const MOST: usize = 1024;

/// A sample, with texts that can be printed. Memory is in MiB, rates are in bytes a second, shares in percent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moment {
    /// When it was taken, in seconds since the Unix epoch.
    pub(crate) at: f64,
    /// The time since the sample before.
    pub(crate) secs: f64,
    pub(crate) pid: Option<i32>,
    pub(crate) run: Option<RunMetrics>,
    pub(crate) outcome: Option<OutcomeMetrics>,
    pub(crate) host: Option<String>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) memory: Option<Memory>,
    pub(crate) job: Option<Job>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) networks: Vec<Network>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) waiting: Option<Waiting>,
    /// Those of the job, the busiest first.
    pub(crate) processes: Vec<Process>,
    /// What could not be read of it.
    pub(crate) problem: Option<String>,
}

/// The machine's processors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) cores: f64,
    pub(crate) per_core: Vec<f64>,
    /// The number of each of them.
    pub(crate) numbers: Vec<usize>,
}

/// The machine's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) used: f64,
    pub(crate) total: f64,
    pub(crate) swap: f64,
}

/// The process tree that is tracked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Job {
    pub(crate) cores: Option<f64>,
    pub(crate) core_limit: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) peak_memory: Option<f64>,
    pub(crate) memory_limit: Option<f64>,
    pub(crate) swap: Option<f64>,
    pub(crate) read: Option<f64>,
    pub(crate) written: Option<f64>,
    pub(crate) processes: Option<u32>,
    pub(crate) threads: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) read: Option<f64>,
    pub(crate) written: Option<f64>,
    pub(crate) busy: Option<f64>,
    /// The fullest of the file systems on it: where it is, and how full.
    pub(crate) fullest: Option<(String, f64)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) received: f64,
    pub(crate) sent: f64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) used: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) memory_total: Option<f64>,
    pub(crate) watts: Option<f64>,
    pub(crate) celsius: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) cores: f64,
    pub(crate) memory: f64,
}

/// The share of time in which some task waited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting {
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) storage: Option<f64>,
}

impl Moment {
    /// The moment of a sample. A recording has the process id beside the sections.
    pub(crate) fn of(sample: &Sample, pid: Option<i32>) -> Self {
        let mut reader = Reader { sample, problem: None };
        let elapsed = sample.elapsed().as_secs_f64();
        let host = reader.first::<HostMetrics>().and_then(|host| host.into_owned().host_name);
        let mut moment = Self {
            at: sample.timestamp().as_secs_f64(),
            secs: elapsed,
            pid,
            run: reader.first::<RunMetrics>().map(Cow::into_owned),
            outcome: reader.first::<OutcomeMetrics>().map(Cow::into_owned),
            host: host.as_deref().map(printable),
            marks: reader.all::<Marks>().iter().flat_map(|marks| &marks.0).map(printable_mark).collect(),
            // Where the machine's figures are off, `cpu` has those of the job alone.
            cpu: sample.read_all::<CpuMetrics>().flatten().next().map(|cpu| Cpu {
                cores: cpu.cores_used,
                per_core: cpu.per_core_pct.iter().copied().take(MOST).collect(),
                numbers: numbers(&cpu.per_core_cpus, cpu.per_core_pct.len().min(MOST)),
            }),
            memory: reader.first::<MemoryMetrics>().map(|memory| Memory {
                used: memory.unavailable_mib as f64,
                total: memory.total_mib as f64,
                swap: memory.swap_used_mib as f64,
            }),
            job: reader.job(elapsed),
            disks: reader.all::<Disks>().iter().flat_map(|disks| disks_of(disks)).take(MOST).collect(),
            networks: networks_of(&reader.all::<Networks>()),
            gpus: reader.all::<Gpus>().iter().flat_map(|gpus| &gpus.0).filter_map(gpu_of).take(MOST).collect(),
            waiting: reader.first::<PressureMetrics>().map(|pressure| {
                let some = |of: Option<ResourcePressure>| of.map(|of| of.some.interval_pct);
                Waiting { cpu: some(pressure.cpu), memory: some(pressure.memory), storage: some(pressure.io) }
            }),
            processes: reader
                .all::<TopProcesses>()
                .iter()
                .flat_map(|processes| processes_of(processes))
                .take(MOST)
                .collect(),
            problem: None,
        };
        moment.problem = reader.problem;
        moment
    }
}

/// The process id in a line of a recording.
pub(crate) fn pid_of(line: &[u8]) -> Option<i32> {
    #[derive(Deserialize)]
    struct Head {
        pid: Option<i32>,
    }
    serde_json::from_slice::<Head>(line).ok()?.pid
}

struct Reader<'a> {
    sample: &'a Sample,
    problem: Option<String>,
}

impl<'a> Reader<'a> {
    fn first<T: Section + DeserializeOwned>(&mut self) -> Option<Cow<'a, T>> {
        self.all().into_iter().next()
    }

    fn all<T: Section + DeserializeOwned>(&mut self) -> Vec<Cow<'a, T>> {
        let sections = self.sample.read_all::<T>().filter_map(|section| match section {
            Ok(section) => Some(section),
            Err(error) => {
                self.problem
                    .get_or_insert_with(|| format!("{} cannot be read: {}", T::NAME, printable(&error.to_string())));
                None
            }
        });
        sections.collect()
    }

    /// `None` when no job is tracked.
    fn job(&mut self, secs: f64) -> Option<Job> {
        let process = self.first::<ProcessMetrics>()?;
        let limits = self.first::<JobLimitMetrics>().map(Cow::into_owned).unwrap_or_default();
        let rate = |bytes: Option<u64>| bytes.filter(|_| secs > 0.0).map(|bytes| bytes as f64 / secs);
        let is_tracked = process.process_cores_used.is_some() || process.process_peak_memory_mib.is_some();
        let threads = process.process_thread_count.filter(|threads| *threads > 0);
        is_tracked.then(|| Job {
            cores: process.process_cores_used,
            core_limit: limits.process_cpu_limit_cores,
            memory: process.process_memory_mib,
            peak_memory: process.process_peak_memory_mib,
            memory_limit: limits.process_memory_limit_mib,
            swap: process.process_swap_mib,
            read: rate(process.process_disk_read_bytes),
            written: rate(process.process_disk_write_bytes),
            // The root is one more, as long as any process lives.
            processes: process
                .process_child_count
                .filter(|_| threads.is_some())
                .map(|children| children.saturating_add(1)),
            threads,
        })
    }
}

/// Disks that count in sums, where each byte is counted once.
fn disks_of(disks: &Disks) -> impl Iterator<Item = Disk> + '_ {
    disks.0.iter().filter(|disk| disk.is_counted).map(|disk| {
        let mounts = disk.mounts.iter().filter_map(|mount| Some((&mount.mount_point, mount.full_pct()?)));
        let fullest = mounts.max_by(|one, other| one.1.total_cmp(&other.1));
        Disk {
            name: printable(&disk.device),
            read: disk.read_bytes_per_sec,
            written: disk.write_bytes_per_sec,
            busy: disk.utilization_pct,
            fullest: fullest.map(|(mount, used)| (printable(mount), used)),
        }
    })
}

/// Interfaces that count in sums; all of them if it is not known which do.
fn networks_of(networks: &[Cow<Networks>]) -> Vec<Network> {
    let all = || networks.iter().flat_map(|networks| &networks.0);
    let is_known = all().any(|network| network.is_counted == Some(true));
    let shown = all().filter(|network| !is_known || network.is_counted == Some(true)).take(MOST);
    let shown = shown.map(|network| Network {
        name: printable(&network.interface),
        received: network.rx_bytes_per_sec,
        sent: network.tx_bytes_per_sec,
    });
    shown.collect()
}

/// `None` for a part of a GPU, whose figures are in those of the whole.
fn gpu_of(gpu: &GpuMetrics) -> Option<Gpu> {
    gpu.parent_uuid.is_none().then(|| Gpu {
        name: printable(&gpu.name),
        used: gpu.utilization_pct.or(gpu.sm_utilization_pct),
        memory: gpu.vram_used_bytes.map(|bytes| bytes as f64 / MIB),
        memory_total: gpu.vram_total_bytes.map(|bytes| bytes as f64 / MIB),
        watts: gpu.power_watts,
        celsius: gpu.temperature_celsius,
    })
}

fn printable_mark(mark: &Mark) -> Mark {
    Mark { name: printable(&mark.name), ..mark.clone() }
}

fn processes_of(processes: &TopProcesses) -> impl Iterator<Item = Process> + '_ {
    processes.0.iter().map(|process| Process {
        pid: process.pid,
        name: printable(&process.name),
        cores: process.cores_used,
        memory: process.rss_mib,
    })
}

/// The numbers in a list of CPUs, if they are `count`; else those from zero on.
fn numbers(list: &str, count: usize) -> Vec<usize> {
    let numbers: Vec<usize> = cpu_list::numbers(list).take(count + 1).map(|number| number as usize).collect();
    if numbers.len() == count { numbers } else { (0..count).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_can_be_printed() {
        let line = r#"{"timestamp_ms": 1000, "elapsed_secs": 1, "pid": 7, "marks": [{"name": "a\u001b[2Jb\nc", "kind": "next", "at_ms": 1}],
            "host": {"host_name": "h\u009b1m"}, "network": {"no": "list"}}"#;
        let moment = Moment::of(&Sample::from_json(line).unwrap(), pid_of(line.as_bytes()));
        assert_eq!((moment.marks[0].name.as_str(), moment.host.as_deref()), ("a [2Jb c", Some("h 1m")));
        assert_eq!(moment.pid, Some(7));
        assert!(moment.job.is_none() && moment.cpu.is_none());
        assert!(moment.problem.unwrap().starts_with("network cannot be read: "));
    }

    #[test]
    fn cpus_have_their_numbers() {
        assert_eq!(numbers("0-2,6", 4), [0, 1, 2, 6]);
        assert_eq!(numbers("3", 1), [3]);
        for list in ["", "0-99999999999", "5-2", "0-1"] {
            assert_eq!(numbers(list, 3), [0, 1, 2], "{list}");
        }
    }
}
