//! The process tree that is tracked: CPU time, memory, storage and switches of the root and its descendants.

mod account;
mod counted_once;
mod current_memory;
mod fork_shared;
mod memory;
mod peak;
mod pss;
mod run_queue;
mod switches;
mod top;
mod totals;

use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source};
use resource_tracker_metrics::{CounterAccounting, ProcessAccounting, ProcessMetrics, TopProcesses, cpu_list};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use account::{Account, Counted};
use memory::TreeMemory;
use peak::Peak;
use pss::PssReader;
use run_queue::RunQueue;
use switches::SwitchAccount;
use top::Top;
use totals::Totals;

use crate::job::{JobDetails, Member};
use crate::procfile::{attribute, mib};

/// CPU time, memory, storage and context switches of the process tree that is tracked.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct ProcessConfig {
    /// The most time that reading PSS may take, in percent of the run; 0 turns PSS off. Reading it holds a lock of
    /// the job for a time that grows with its memory.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub pss_budget_pct: f64,
    /// Whether the time is read that threads waited for a CPU, which costs a file of each thread at each tick.
    pub run_queue_wait: bool,
    /// So many of the processes that used most CPU time are listed in each sample, in `top_processes`; 0 lists none.
    #[schemars(range(max = 100))]
    pub top: u8,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self { pss_budget_pct: 0.2, run_queue_wait: false, top: 0 }
    }
}

from_json!(ProcessConfig);

#[typetag::deserialize(name = "process")]
impl SourceConfig for ProcessConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Process {
            account: Account::new(),
            counted: None,
            pss: PssReader::new(host, self.pss_budget_pct / 100.0),
            run_queue: self.run_queue_wait.then(|| RunQueue::new(&host.procfs)),
            top: (self.top > 0).then(|| Top::new(&host.procfs, self.top.into())),
            switches: SwitchAccount::default(),
            peak_rss: 0,
            peak: Peak::default(),
            cpus: attribute(&host.sysfs.join("devices/system/cpu/present")).and_then(|list| cpu_list::count(&list)),
        })))
    }
}

register_source!(
    SourceEntry::new::<ProcessConfig>("process", "CPU time, memory, storage and switches of the tracked process tree")
        .on_by_default()
        .order(20)
);

struct Process {
    account: Account,
    /// When the observation was made that was counted last. The time since the last reading differs from that: this
    /// source only adds up what the observer has read.
    counted: Option<Instant>,
    pss: PssReader,
    /// CPUs that there are, or can be while it runs.
    cpus: Option<u64>,
    /// Where it was asked for.
    run_queue: Option<RunQueue>,
    top: Option<Top>,
    switches: SwitchAccount,
    /// The most memory that the tree or one process of it had resident, in bytes.
    peak_rss: u64,
    peak: Peak,
}

impl Source for Process {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let metrics: &mut ProcessMetrics = out.section();
        *metrics = ProcessMetrics::default();
        let Some(job) = &tick.job else { return Ok(()) };
        // It fails only when the job was not observed, so no former member is missed.
        let (spawned, job) = (job.spawned, JobDetails::of(job)?);
        let elapsed = self.count(job);
        if !job.was_seen() {
            return Ok(());
        }
        let (members, gone) = (job.members(), job.gone());
        let possible = self.cpus.map_or(u64::MAX, |cpus| elapsed.as_nanos() as u64 * cpus);
        let counted = self.account.advance(members, gone, job.reaped(), job.group().cpu, spawned, possible);
        fill_time(metrics, &counted.used, elapsed.as_secs_f64(), self.cpus);
        fill_io(metrics, &counted.used, job);
        fill_members(metrics, members);
        fill_accounting(metrics, &counted, job);
        self.fill_switches(metrics, job);
        let waited = self.run_queue.as_mut().and_then(|queue| queue.read(job, spawned));
        metrics.process_run_queue_wait_secs = waited.map(|time| time.as_secs_f64());
        self.fill_memory(metrics, job, tick);
        if let Some(top) = &mut self.top {
            out.section::<TopProcesses>().0 = top.read(job, spawned, elapsed);
        }
        Ok(())
    }

    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        match &tick.job {
            // Its first interval began with its birth.
            Some(job) if job.spawned => {
                JobDetails::of(job).map(|job| self.counted = job.began().or(Some(job.observed_at())))
            }
            _ => self.collect(tick, out),
        }
    }
}

impl Process {
    /// What this observation finds is counted now. Says how much later it is than the one before.
    fn count(&mut self, job: &JobDetails) -> Duration {
        let now = job.observed_at();
        self.counted.replace(now).map_or(Duration::ZERO, |before| now.saturating_duration_since(before))
    }

    fn fill_switches(&mut self, metrics: &mut ProcessMetrics, job: &JobDetails) {
        let (new, is_whole) = self.switches.advance(job.members(), job.gone(), job.reaped());
        metrics.process_voluntary_context_switches = Some(new.voluntary);
        metrics.process_involuntary_context_switches = Some(new.involuntary);
        metrics.process_switches_accounting = Some(counters(is_whole, job));
    }

    fn fill_memory(&mut self, metrics: &mut ProcessMetrics, job: &JobDetails, tick: &Tick) {
        let (tree, ended) = (TreeMemory::of(job), job.reaped().usage.max_rss);
        // Without a living member there is nothing to read, as at the end of a very short run.
        if tree.rss > 0 {
            self.pss.refresh(job, tick.at);
        }
        let counted = self.pss.counted_once(job);
        self.peak.look(&tree, &counted, ended, job.group());
        let (most, source) = self.peak.so_far();
        self.peak_rss = self.peak_rss.max(tree.rss).max(job.status_summary().peak_rss).max(ended);
        metrics.process_peak_rss_mib = Some(mib(self.peak_rss));
        metrics.process_peak_memory_mib = Some(mib(most));
        metrics.process_peak_source = Some(source);
        // One that is about to end has given its memory back.
        if tree.rss == 0 {
            return;
        }
        metrics.process_rss_mib = Some(mib(tree.rss));
        metrics.process_anon_mib = tree.sum.anon.map(mib);
        metrics.process_file_mib = tree.sum.file.map(mib);
        metrics.process_shmem_mib = tree.sum.shmem.map(mib);
        metrics.process_swap_mib = tree.sum.swap.map(mib);
        metrics.process_hugetlb_mib = tree.sum.hugetlb.map(mib);
        metrics.process_kinds_age_secs = Some(tree.age.as_secs_f64());
        // PSS is older than the other figures: it is cut to what is resident by now.
        let age = self.pss.age(tick.at).filter(|_| counted.pss > 0);
        metrics.process_pss_mib = age.map(|_| mib(counted.pss.min(tree.rss)));
        metrics.process_pss_age_secs = age.map(|age| age.as_secs_f64());
        metrics.process_memory_mib = Some(mib(counted.resident));
    }
}

fn fill_time(metrics: &mut ProcessMetrics, used: &Totals, secs: f64, cpus: Option<u64>) {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let cores = if secs > 0.0 { seconds(used.cpu) / secs } else { 0.0 };
    // The last interval can be shorter than the time that was left to count in it.
    metrics.process_cores_used = Some(cpus.map_or(cores, |cpus| cores.min(cpus as f64)));
    metrics.process_utime_secs = Some(seconds(used.user));
    metrics.process_stime_secs = Some(seconds(used.cpu - used.user));
    metrics.process_minor_faults = Some(used.minor_faults);
    metrics.process_major_faults = Some(used.major_faults);
}

fn fill_io(metrics: &mut ProcessMetrics, used: &Totals, job: &JobDetails) {
    // Without the permission to trace a process, its I/O cannot be read.
    let members = job.members();
    if !members.is_empty() && members.iter().all(|member| member.io.is_none()) {
        return;
    }
    metrics.process_disk_read_bytes = Some(used.io.read_bytes);
    metrics.process_disk_write_bytes = Some(used.io.write_bytes);
    if !job.reaped().usage.lacks_io {
        metrics.process_cancelled_write_bytes = Some(used.io.cancelled_write_bytes);
        metrics.process_read_chars = Some(used.io.read_chars);
        metrics.process_write_chars = Some(used.io.write_chars);
    }
}

fn fill_accounting(metrics: &mut ProcessMetrics, counted: &Counted, job: &JobDetails) {
    metrics.process_accounting = Some(match counted.accounting {
        ProcessAccounting::Exact if job.status_summary().ignores_children => ProcessAccounting::Sampled,
        accounting => accounting,
    });
    metrics.process_io_accounting = Some(counters(counted.is_whole, job));
}

/// Of children that vanish none may have been seen, but there can be some that were too short for it.
fn counters(is_whole: bool, job: &JobDetails) -> CounterAccounting {
    match is_whole && !job.status_summary().ignores_children {
        true => CounterAccounting::Exact,
        false => CounterAccounting::Sampled,
    }
}

fn fill_members(metrics: &mut ProcessMetrics, members: &[Member]) {
    let alive = || members.iter().filter(|member| !member.stat.is_dead());
    metrics.process_child_count = Some(alive().filter(|member| !member.is_root).count() as u32);
    metrics.process_thread_count = Some(alive().map(|member| member.stat.threads).sum::<u64>() as u32);
}
