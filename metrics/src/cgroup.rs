use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge, Info};

/// The cgroup that the job runs in: its limits and what is used, by all that is in it. What is used is that of the cgroup
/// that `path` names, and null where that does not count it: on v1 each controller has its own hierarchy, in which the
/// job can be elsewhere. (In a hierarchy in which one was made for the job, it is that one.) Limits are the lowest that hold for the job, on the way up, and null where none is set. Without
/// a job it is the tracker's own cgroup, and only there when something limits it. Where the root of the job is, is looked at
/// again, often at first and then every five seconds: when it has gone to another cgroup, all is of that one from then on. What
/// is counted over an interval in which a counter began anew is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupMetrics {
    /// Path below the root of the hierarchy: the cgroup that was made for the job, else the one that it is in. On v2 it is
    /// the nearest one upwards that has controllers.
    #[schemars(transform = Info)]
    pub path: String,
    /// Cores that may be used at most. v2 `cpu.max`, v1 `cpu.cfs_quota_us` of `cpu.cfs_period_us`
    #[schemars(transform = Gauge("cores"))]
    pub cpu_limit_cores: Option<f64>,
    /// CPUs that it may run on, as the kernel writes a list of them: `0-3,8`. v2 `cpuset.cpus.effective`, v1
    /// `cpuset.effective_cpus`
    #[schemars(transform = Info)]
    pub cpuset_cpus: Option<String>,
    /// Cores that were used; null in the sample in which the job has gone to another cgroup. v2 `cpu.stat`, `usage_usec`; v1 `cpuacct.usage`
    #[schemars(transform = Gauge("cores").named("container.cpu.usage", &[]))]
    pub cpu_used_cores: Option<f64>,
    /// Enforcement periods that ended: 100 ms each, unless somebody set another length. Those in which it had nothing to do do not count. `cpu.stat`, `nr_periods`
    #[schemars(transform = Delta("periods"))]
    pub cpu_periods: Option<u64>,
    /// Those of them in which it ran out of its quota. `cpu.stat`, `nr_throttled`
    #[schemars(transform = Delta("periods"))]
    pub cpu_throttled_periods: Option<u64>,
    /// `cpu_throttled_periods` as a share of `cpu_periods`. Null where no period ended in the interval.
    #[schemars(transform = Gauge("percent"))]
    pub cpu_throttled_pct: Option<f64>,
    /// Time that its threads were kept from running by the quota. v2 `cpu.stat`, `throttled_usec`; v1 `throttled_time`
    #[schemars(transform = Delta("seconds"))]
    pub cpu_throttled_secs: Option<f64>,
    /// Time in which at least one task was kept from running because other tasks had the CPUs, its own among them, or by the quota. This one and the
    /// next five are of the cgroup that was made for the job, where there is one, whatever `path` says; of the whole run in its last
    /// sample and else null, or of each interval with `pressure = true`. Null without v2, or before Linux 4.20. `cpu.pressure`, `some`
    #[schemars(transform = Delta("seconds"))]
    pub cpu_pressure_some_secs: Option<f64>,
    /// Time in which all tasks that had something to do were kept from running, by the quota or by others. Since Linux 5.13.
    /// `cpu.pressure`, `full`
    #[schemars(transform = Delta("seconds"))]
    pub cpu_pressure_full_secs: Option<f64>,
    /// Memory that may be used at most. v2 `memory.max`, v1 `memory.limit_in_bytes`
    #[schemars(transform = Gauge("MiB"))]
    pub memory_limit_mib: Option<f64>,
    /// Memory above which its processes are slowed down and have to give back. v2 `memory.high`
    #[schemars(transform = Gauge("MiB"))]
    pub memory_high_mib: Option<f64>,
    /// Swap that may be used at most. v2 `memory.swap.max`, v1 `memory.memsw.limit_in_bytes` less the limit of memory
    #[schemars(transform = Gauge("MiB"))]
    pub swap_limit_mib: Option<f64>,
    /// Memory that is used, page cache included. v2 `memory.current`, v1 `memory.usage_in_bytes`
    #[schemars(transform = Gauge("MiB").summed("container.memory.usage", &[]))]
    pub memory_used_mib: Option<f64>,
    /// The part of `memory_used_mib` that is in use: without page cache that was not used lately, which the kernel takes back
    /// first. What `kubectl top` shows. `memory.stat`, v2 `inactive_file`, v1 `total_inactive_file`
    #[schemars(transform = Gauge("MiB").summed("container.memory.working_set", &[]))]
    pub memory_working_set_mib: Option<f64>,
    /// The most memory that was ever used since the cgroup was made. v2 `memory.peak`, v1 `memory.max_usage_in_bytes`
    #[schemars(transform = Gauge("MiB"))]
    pub memory_peak_mib: Option<f64>,
    /// The part of `memory_used_mib` that is anonymous: heaps and stacks. Read at most every 100 ms. `memory.stat`, v2 `anon`,
    /// v1 `total_rss`
    #[schemars(transform = Gauge("MiB").summed("container.memory.rss", &[]))]
    pub memory_anon_mib: Option<f64>,
    /// The part that is page cache, which the kernel takes back when memory is short. v2 `file` less `shmem`, v1 `total_cache`
    /// less `total_shmem`
    #[schemars(transform = Gauge("MiB"))]
    pub memory_file_mib: Option<f64>,
    /// The part that is shared memory and files in `tmpfs`. v2 `shmem`, v1 `total_shmem`
    #[schemars(transform = Gauge("MiB"))]
    pub memory_shmem_mib: Option<f64>,
    /// Time in which at least one task waited for memory to be freed or read back. `memory.pressure`, `some`
    #[schemars(transform = Delta("seconds"))]
    pub memory_pressure_some_secs: Option<f64>,
    /// Time in which all tasks that had something to do waited for that. `memory.pressure`, `full`
    #[schemars(transform = Delta("seconds"))]
    pub memory_pressure_full_secs: Option<f64>,
    /// Processes that were killed because memory ran out. v2 `memory.events`; v1 `memory.oom_control`, with those of the
    /// cgroups in it, which are looked for every 5 s and at the end. `oom_kill`
    #[schemars(transform = Delta("processes"))]
    pub oom_kills: Option<u64>,
    /// Bytes read from storage. v2 `io.stat`, `rbytes`; v1 `blkio.throttle.io_service_bytes_recursive`
    #[schemars(transform = Delta("bytes").named("container.disk.io", &[("disk.io.direction", "read")]))]
    pub io_read_bytes: Option<u64>,
    /// Bytes that were sent to storage to be written. Where `path` is the cgroup that was made for the job, this is what
    /// the job wrote to disks until now; what is in page cache as yet is not in it. v2 `io.stat`, `wbytes`; v1
    /// `blkio.throttle.io_service_bytes_recursive`, without what went by page cache
    #[schemars(transform = Delta("bytes").named("container.disk.io", &[("disk.io.direction", "write")]))]
    pub io_write_bytes: Option<u64>,
    /// Time in which at least one task waited for storage. `io.pressure`, `some`
    #[schemars(transform = Delta("seconds"))]
    pub io_pressure_some_secs: Option<f64>,
    /// Time in which all tasks that had something to do waited for storage. `io.pressure`, `full`
    #[schemars(transform = Delta("seconds"))]
    pub io_pressure_full_secs: Option<f64>,
    /// Processes and threads that there may be at most. `pids.max`
    #[schemars(transform = Gauge("threads"))]
    pub pids_limit: Option<u64>,
    /// Processes and threads that there are. `pids.current`
    #[schemars(transform = Gauge("threads"))]
    pub pids_current: Option<u64>,
}

impl Section for CgroupMetrics {
    const NAME: &'static str = "cgroup";
}

crate::shared_section!(CgroupMetrics);
