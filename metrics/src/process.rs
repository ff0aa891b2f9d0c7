use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge, Info};

use crate::lenient::known;

/// The process tree that is tracked, in `cpu` beside the machine's figures. All fields are null when no process is
/// tracked or the process was never seen. Once nothing of it lives, what it holds is null (memory, its share of GPUs)
/// and so spoils no mean, what is counted is 0, and its peak stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMetrics {
    /// How CPU time was counted.
    #[schemars(transform = Info)]
    #[serde(default, deserialize_with = "known")]
    pub process_accounting: Option<ProcessAccounting>,
    /// Cores that the tree used. The process CPU-time clock of each, `cutime` + `cstime` of `/proc/PID/stat` and `wait4`
    /// for what has ended
    #[schemars(transform = Gauge("cores"))]
    pub process_cores_used: Option<f64>,
    /// Descendants that exist, without the root. `/proc/PID/stat`, `ppid`
    #[schemars(transform = Gauge("processes"))]
    pub process_child_count: Option<u32>,
    /// CPU time of the tree in user mode. As `process_cores_used`, divided by `utime` and `stime`
    #[schemars(transform = Delta("seconds").named("process.cpu.time", &[("cpu.mode", "user")]))]
    pub process_utime_secs: Option<f64>,
    /// CPU time of the tree in the kernel. As `process_utime_secs`
    #[schemars(transform = Delta("seconds").named("process.cpu.time", &[("cpu.mode", "system")]))]
    pub process_stime_secs: Option<f64>,
    /// Resident memory of the tree; pages that processes share count in each. `/proc/PID/stat`, `rss`
    #[schemars(transform = Gauge("MiB").summed("process.memory.usage", &[]))]
    pub process_rss_mib: Option<f64>,
    /// The most memory so far that the tree had resident at a tick, or that one process of it ever had, pages of files
    /// included. Processes that peak together between two ticks are in `process_peak_memory_mib`. `/proc/PID/status`, `VmHWM`; for what has ended `ru_maxrss` of `wait4`
    #[schemars(transform = Gauge("MiB"))]
    pub process_peak_rss_mib: Option<f64>,
    /// Resident memory of the tree, where a page that N processes share counts 1/N. Reading it costs the job, so it is
    /// read rarely enough to stay within its budget: it is of those who still live, as it was then, and not more than
    /// `process_rss_mib`. `/proc/PID/smaps_rollup`, `Pss`
    #[schemars(transform = Gauge("MiB"))]
    pub process_pss_mib: Option<f64>,
    /// How old `process_pss_mib` is.
    #[schemars(transform = Gauge("seconds"))]
    pub process_pss_age_secs: Option<f64>,
    /// Resident memory of the tree at the sample, in which shared memory counts about once; at least so much is in use, unless processes map
    /// other files and shared memory than when PSS was read. It adds the
    /// anonymous memory of each process, less what it shared when `process_pss_mib` was read: copies of that count once PSS is read
    /// again, which is sooner when there may be many. A fork whose PSS was not read yet adds what it has more than its parent ever
    /// had. Pages of files and shared memory count as PSS showed and is still there, or as the process with the most has, and so
    /// does what a process got since its kinds of memory were read (`process_kinds_age_secs`).
    /// `/proc/PID/stat`, `rss`; `/proc/PID/status`; `/proc/PID/smaps_rollup`
    #[schemars(transform = Gauge("MiB"))]
    pub process_memory_mib: Option<f64>,
    /// The most memory so far that the tree needed at one time: without page cache and mapped pages of files, which the kernel
    /// can take back; with files in `tmpfs` and memory of the kernel if a cgroup counts it; and with swap and huge pages of
    /// `hugetlbfs` if they were there at a tick, each about once. Found at the samples it lacks what came between them, but can have pages of a file that one process had
    /// mapped only then. `process_peak_source` says how it was found.
    /// v2 `memory.peak` and `memory.stat`, v1 `memory.max_usage_in_bytes` and `memory.stat`; else as `process_peak_rss_mib` and, at
    /// the samples, `process_memory_mib`
    #[schemars(transform = Gauge("MiB"))]
    pub process_peak_memory_mib: Option<f64>,
    /// How `process_peak_memory_mib` was found.
    #[schemars(transform = Info)]
    #[serde(default, deserialize_with = "known")]
    pub process_peak_source: Option<PeakSource>,
    /// Anonymous memory of the tree: heaps and stacks. This one and the next four are sums over the processes, in which what
    /// some share counts in each. They are read of at most 100 threads a second. `/proc/PID/status`, `RssAnon`, since
    /// Linux 4.5
    #[schemars(transform = Gauge("MiB"))]
    pub process_anon_mib: Option<f64>,
    /// Pages of files that the tree has mapped: programs, libraries, data. `/proc/PID/status`, `RssFile`
    #[schemars(transform = Gauge("MiB"))]
    pub process_file_mib: Option<f64>,
    /// Shared memory that the tree has mapped: that of `MAP_SHARED | MAP_ANONYMOUS`, System V and `tmpfs`. `/proc/PID/status`,
    /// `RssShmem`
    #[schemars(transform = Gauge("MiB"))]
    pub process_shmem_mib: Option<f64>,
    /// Anonymous memory of the tree that is in swap. `/proc/PID/status`, `VmSwap`
    #[schemars(transform = Gauge("MiB"))]
    pub process_swap_mib: Option<f64>,
    /// Huge pages of `hugetlbfs` that the tree has mapped, which are in no other figure but the peak.
    /// `/proc/PID/status`, `HugetlbPages`
    #[schemars(transform = Gauge("MiB"))]
    pub process_hugetlb_mib: Option<f64>,
    /// How old the oldest part of the five sums before is: one process has run for so long since it was read, or was found so
    /// long ago and is not in them yet.
    #[schemars(transform = Gauge("seconds"))]
    pub process_kinds_age_secs: Option<f64>,
    /// How faults and I/O were counted. I/O is sampled as well while that of a process cannot be read, such as a program of another
    /// user: what it did is missing until one whose I/O can be read has waited for it.
    #[schemars(transform = Info)]
    #[serde(default, deserialize_with = "known")]
    pub process_io_accounting: Option<CounterAccounting>,
    /// Bytes that the tree caused to be read from storage. `/proc/PID/io`, `read_bytes`; for what has ended the same at its
    /// end, or `ru_inblock` of `wait4`
    #[schemars(transform = Delta("bytes").named("process.disk.io", &[("disk.io.direction", "read")]))]
    pub process_disk_read_bytes: Option<u64>,
    /// Bytes that the tree wrote to page cache which is to go to storage, or past it. When and whether they went is not in it:
    /// what is deleted soon never does. `/proc/PID/io`, `write_bytes`; for what has ended the same, or `ru_oublock`
    #[schemars(transform = Delta("bytes").named("process.disk.io", &[("disk.io.direction", "write")]))]
    pub process_disk_write_bytes: Option<u64>,
    /// Bytes that the tree took out of page cache before they went to storage, by deleting or cutting files, whoever had
    /// written them. Null from then on when the `io` of somebody who has ended could not be read. `/proc/PID/io`,
    /// `cancelled_write_bytes`
    #[schemars(transform = Delta("bytes"))]
    pub process_cancelled_write_bytes: Option<u64>,
    /// Bytes that system calls of the tree read, from files, pipes and devices: also those that were in memory.
    /// `/proc/PID/io`, `rchar`
    #[schemars(transform = Delta("bytes"))]
    pub process_read_chars: Option<u64>,
    /// Bytes that system calls of the tree wrote, to files, pipes and devices. `/proc/PID/io`, `wchar`
    #[schemars(transform = Delta("bytes"))]
    pub process_write_chars: Option<u64>,
    /// Threads of the tree. `/proc/PID/stat`, `num_threads`
    #[schemars(transform = Gauge("threads").summed("process.thread.count", &[]))]
    pub process_thread_count: Option<u32>,
    /// Page faults of the tree that needed no disk. `/proc/PID/stat`, `minflt` + `cminflt`; for what has ended `ru_minflt`
    #[schemars(transform = Delta("faults").named("process.paging.faults", &[("system.paging.fault.type", "minor")]))]
    pub process_minor_faults: Option<u64>,
    /// Page faults of the tree that needed a disk. `/proc/PID/stat`, `majflt` + `cmajflt`; for what has ended `ru_majflt`
    #[schemars(transform = Delta("faults").named("process.paging.faults", &[("system.paging.fault.type", "major")]))]
    pub process_major_faults: Option<u64>,
    /// Time that threads of the tree could have run and had no CPU, added up. Null unless `run_queue_wait = true`: it costs a
    /// file of each thread. What came between the last sample and a thread's end is missing, and so is all of children that came
    /// and went; `cpu_pressure_some_secs` of `cgroup` misses none. `/proc/PID/task/TID/schedstat`, second number
    #[schemars(transform = Delta("seconds"))]
    pub process_run_queue_wait_secs: Option<f64>,
    /// How context switches were counted. While a command lives they are sampled: only its end tells of children that were too short
    /// to be seen. Those are in the last sample, whose word holds for the sum over the run.
    #[schemars(transform = Info)]
    #[serde(default, deserialize_with = "known")]
    pub process_switches_accounting: Option<CounterAccounting>,
    /// Times that a thread of the tree gave up its CPU to wait. `/proc/PID/task/TID/status`, of at most 100 threads a second; for
    /// what has ended `ru_nvcsw` of `wait4`
    #[schemars(transform = Delta("switches").named("process.context_switches", &[("process.context_switch.type", "voluntary")]))]
    pub process_voluntary_context_switches: Option<u64>,
    /// Times that a thread of the tree was taken off its CPU. As the one before, `ru_nivcsw`
    #[schemars(transform = Delta("switches").named("process.context_switches", &[("process.context_switch.type", "involuntary")]))]
    pub process_involuntary_context_switches: Option<u64>,
}

/// How the CPU time of the tree was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ProcessAccounting {
    /// From every process while it lives, and from its parent or the tracker, who waited for it, when it has ended.
    Exact,
    /// From a cgroup that the tracker made for the job: what nobody waited for is in it as well.
    Cgroup,
    /// As `exact`, but there are processes for which nobody waits; what those used after they were last seen is missing.
    Sampled,
}

/// How what the tree did was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CounterAccounting {
    /// The sum until now is the kernel's, with children that came and went between two samples.
    Exact,
    /// What was seen is in it, and what the kernel told of those who ended. What others did after they were last seen is missing.
    Sampled,
}

/// How the most memory that the tree needed at one time was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PeakSource {
    /// From what the kernel kept for a cgroup that the tracker made for the job: a peak between two ticks is not missed. Page
    /// cache is taken off as it was at the ticks.
    Cgroup,
    /// The most at a tick, or in one process at any time: processes that peak together between two ticks are missed.
    Sampled,
}

impl Section for ProcessMetrics {
    const NAME: &'static str = "cpu";
}

crate::shared_section!(ProcessMetrics);

/// What the tree that is tracked has of all GPUs, in `cpu` beside what else it uses. All fields are null when no process is
/// tracked, and once nothing of it lives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobGpuMetrics {
    /// GPUs that the tree used, as the sum of its shares of each; null where there is no GPU, or one does not tell.
    /// `processes` of `gpu`
    #[schemars(transform = Gauge("GPUs"))]
    pub process_gpu_usage: Option<f64>,
    /// GPU memory that the tree holds; null as `process_gpu_usage`. `processes` of `gpu`
    #[schemars(transform = Gauge("MiB"))]
    pub process_gpu_vram_mib: Option<f64>,
    /// GPUs of which the tree used a share. `processes` of `gpu`
    #[schemars(transform = Gauge("GPUs"))]
    pub process_gpu_utilized: Option<u32>,
}

impl Section for JobGpuMetrics {
    const NAME: &'static str = "cpu";
}

crate::shared_section!(JobGpuMetrics);
