//! What the job used.

use resource_tracker_core::Sample;
use resource_tracker_metrics::{
    CounterAccounting, JobGpuMetrics, JobLimitMetrics, JobNetworkMetrics, PeakSource, ProcessAccounting, ProcessMetrics,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::readable::Readable;
use crate::statistics::{Level, Series, Spread, Total};

/// A job that uses this share of its cores, or more, is at its limit.
const AT_LIMIT: f64 = 0.9;

/// Sums over the job's samples.
#[derive(Default)]
pub(crate) struct Job {
    user: Total<f64>,
    system: Total<f64>,
    cores: Series,
    core_limit: Option<f64>,
    secs_at_core_limit: Option<f64>,
    memory: Series,
    rss: Series,
    peak_memory: Level,
    swap: Level,
    memory_limit: Option<f64>,
    read: Total<u64>,
    written: Total<u64>,
    cancelled: Total<u64>,
    received: Total<u64>,
    sent: Total<u64>,
    processes: Level,
    threads: Level,
    minor_faults: Total<u64>,
    major_faults: Total<u64>,
    voluntary_switches: Total<u64>,
    involuntary_switches: Total<u64>,
    gpus: Series,
    gpu_memory: Series,
    gpus_used: Level,
    cpu_accounting: Option<ProcessAccounting>,
    peak_source: Option<PeakSource>,
    io_accounting: Option<CounterAccounting>,
    is_tracked: bool,
}

impl Job {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        if let Some(limits) = readable.first::<JobLimitMetrics>(sample) {
            self.core_limit = limits.process_cpu_limit_cores.or(self.core_limit);
            self.memory_limit = limits.process_memory_limit_mib.or(self.memory_limit);
        }
        match readable.first::<ProcessMetrics>(sample) {
            Some(job) => self.add_processes(&job, secs),
            // A sample without this section leaves a gap in the sums.
            None => self.add_processes(&ProcessMetrics::default(), secs),
        }
        if let Some(network) = readable.first::<JobNetworkMetrics>(sample) {
            // Null means that there is no such namespace, and so no traffic.
            self.received.add_if_any(network.process_network_rx_bytes);
            self.sent.add_if_any(network.process_network_tx_bytes);
        }
        if let Some(gpus) = readable.first::<JobGpuMetrics>(sample) {
            self.gpus.add(gpus.process_gpu_usage, secs);
            self.gpu_memory.add(gpus.process_gpu_vram_mib, secs);
            self.gpus_used.add(gpus.process_gpu_utilized.map(f64::from), secs);
        }
    }

    fn add_processes(&mut self, job: &ProcessMetrics, secs: f64) {
        self.is_tracked = self.is_tracked || *job != ProcessMetrics::default();
        self.user.add(job.process_utime_secs);
        self.system.add(job.process_stime_secs);
        self.cores.add(job.process_cores_used, secs);
        if let (Some(used), Some(limit)) = (job.process_cores_used, self.core_limit) {
            let secs = if used >= AT_LIMIT * limit { secs } else { 0.0 };
            self.secs_at_core_limit = Some(self.secs_at_core_limit.unwrap_or(0.0) + secs);
        }
        self.memory.add(job.process_memory_mib, secs);
        self.rss.add(job.process_rss_mib, secs);
        self.peak_memory.add(job.process_peak_memory_mib, secs);
        self.swap.add(job.process_swap_mib, secs);
        self.read.add(job.process_disk_read_bytes);
        self.written.add(job.process_disk_write_bytes);
        self.cancelled.add(job.process_cancelled_write_bytes);
        // The root is one more, as long as any process lives.
        let alive = job.process_thread_count.filter(|threads| *threads > 0);
        self.processes
            .add(job.process_child_count.filter(|_| alive.is_some()).map(|children| f64::from(children) + 1.0), secs);
        self.threads.add(alive.map(f64::from), secs);
        self.minor_faults.add(job.process_minor_faults);
        self.major_faults.add(job.process_major_faults);
        self.voluntary_switches.add(job.process_voluntary_context_switches);
        self.involuntary_switches.add(job.process_involuntary_context_switches);
        self.cpu_accounting = job.process_accounting.or(self.cpu_accounting);
        self.peak_source = job.process_peak_source.or(self.peak_source);
        self.io_accounting = job.process_io_accounting.or(self.io_accounting);
    }

    /// `None` when no job was tracked.
    pub(crate) fn summary(&self) -> Option<JobSummary> {
        self.is_tracked.then(|| JobSummary {
            user_secs: self.user.sum(),
            system_secs: self.system.sum(),
            cpu_accounting: self.cpu_accounting,
            cores: self.cores.spread(),
            core_limit: self.core_limit,
            secs_at_core_limit: self.secs_at_core_limit,
            memory_mib: self.memory.spread(),
            rss_mib: self.rss.spread(),
            peak_memory_mib: self.peak_memory.peak(),
            peak_source: self.peak_source,
            memory_limit_mib: self.memory_limit,
            peak_swap_mib: self.swap.peak(),
            disk_read_bytes: self.read.sum(),
            disk_write_bytes: self.written.sum(),
            cancelled_write_bytes: self.cancelled.sum(),
            io_accounting: self.io_accounting,
            network_rx_bytes: self.received.sum(),
            network_tx_bytes: self.sent.sum(),
            peak_processes: self.processes.peak(),
            peak_threads: self.threads.peak(),
            minor_faults: self.minor_faults.sum(),
            major_faults: self.major_faults.sum(),
            voluntary_context_switches: self.voluntary_switches.sum(),
            involuntary_context_switches: self.involuntary_switches.sum(),
            gpus: self.gpus.spread(),
            gpu_memory_mib: self.gpu_memory.spread(),
            peak_gpus_used: self.gpus_used.peak(),
        })
    }
}

/// What the job used over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct JobSummary {
    /// CPU time in user mode. Sum of `process_utime_secs`
    pub user_secs: Option<f64>,
    /// CPU time in the kernel. Sum of `process_stime_secs`
    pub system_secs: Option<f64>,
    /// How CPU time was counted. Last `process_accounting`
    pub cpu_accounting: Option<ProcessAccounting>,
    /// Cores that it used. `process_cores_used`
    pub cores: Option<Spread>,
    /// Cores that it could use. Last `process_cpu_limit_cores`
    pub core_limit: Option<f64>,
    /// Time in which it used 90 % of them or more.
    pub secs_at_core_limit: Option<f64>,
    /// Memory that it had. `process_memory_mib`
    pub memory_mib: Option<Spread>,
    /// Its resident memory. `process_rss_mib`
    pub rss_mib: Option<Spread>,
    /// The most memory that it needed at one time. `process_peak_memory_mib`
    pub peak_memory_mib: Option<f64>,
    /// How that was found. Last `process_peak_source`
    pub peak_source: Option<PeakSource>,
    /// Memory that it could have. Last `process_memory_limit_mib`
    pub memory_limit_mib: Option<f64>,
    /// The most that it had in swap. `process_swap_mib`
    pub peak_swap_mib: Option<f64>,
    /// Bytes that it read from storage. Sum of `process_disk_read_bytes`
    pub disk_read_bytes: Option<u64>,
    /// Bytes that it wrote for storage. Sum of `process_disk_write_bytes`
    pub disk_write_bytes: Option<u64>,
    /// Bytes of these that never went there. Sum of `process_cancelled_write_bytes`
    pub cancelled_write_bytes: Option<u64>,
    /// How faults and I/O were counted. Last `process_io_accounting`
    pub io_accounting: Option<CounterAccounting>,
    /// Bytes received over the edge of its own network namespaces. Sum of `process_network_rx_bytes`
    pub network_rx_bytes: Option<u64>,
    /// Bytes sent. Sum of `process_network_tx_bytes`
    pub network_tx_bytes: Option<u64>,
    /// The most processes at a sample. `process_child_count` + 1
    pub peak_processes: Option<f64>,
    /// The most threads at a sample. `process_thread_count`
    pub peak_threads: Option<f64>,
    /// Page faults that needed no disk. Sum of `process_minor_faults`
    pub minor_faults: Option<u64>,
    /// Page faults that needed one. Sum of `process_major_faults`
    pub major_faults: Option<u64>,
    /// Times that a thread waited. Sum of `process_voluntary_context_switches`
    pub voluntary_context_switches: Option<u64>,
    /// Times that a thread had to make room. Sum of `process_involuntary_context_switches`
    pub involuntary_context_switches: Option<u64>,
    /// GPUs that it used, as a sum of shares. `process_gpu_usage`
    pub gpus: Option<Spread>,
    /// GPU memory that it had. `process_gpu_vram_mib`
    pub gpu_memory_mib: Option<Spread>,
    /// The most GPUs at a sample of which it used a share. `process_gpu_utilized`
    pub peak_gpus_used: Option<f64>,
}

impl JobSummary {
    /// CPU time in all.
    pub fn cpu_secs(&self) -> Option<f64> {
        Some(self.user_secs? + self.system_secs?)
    }
}
