//! The process tree that is tracked: CPU time, memory, storage and switches of the root and its descendants.

mod account;
mod pss;
mod stat;
mod tree;

use resource_tracker_core::metrics::ProcessMetrics;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use account::{Account, Totals};
use pss::PssReader;
use tree::{Member, Tree};

/// CPU time, memory, storage and context switches of the process tree that is tracked.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ProcessConfig {
    /// The most time that reading PSS may take, in percent of the run; 0 turns PSS off. Reading it holds a lock of
    /// the job for a time that grows with its memory.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub pss_budget_pct: f64,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self { pss_budget_pct: 0.2 }
    }
}

#[typetag::deserialize(name = "process")]
impl SourceConfig for ProcessConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Process {
            tree: Tree::new(host),
            account: Account::default(),
            pss: PssReader::new(host, self.pss_budget_pct / 100.0),
        })))
    }
}

register_source!(
    SourceEntry::new::<ProcessConfig>("process", "CPU time, memory, storage and switches of the tracked process tree")
        .on_by_default()
        .order(20)
);

struct Process {
    tree: Tree,
    account: Account,
    pss: PssReader,
}

impl Source for Process {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let metrics: &mut ProcessMetrics = out.section();
        *metrics = ProcessMetrics::default();
        let Some(tracked) = tick.tracked else { return Ok(()) };
        self.tree.walk(tracked)?;
        if !self.tree.was_seen() {
            return Ok(());
        }
        let members = self.tree.members();
        // A command's first interval begins with its birth, not with the baseline.
        let used = match tick.number {
            0 if tracked.spawned => Totals::default(),
            _ => self.account.advance(members, tracked.spawned),
        };
        fill(metrics, members, &used, tick.elapsed.as_secs_f64());
        let pss = self.pss.read(members, tick.at);
        metrics.process_pss_mib = pss.map(|pss| pss.kib as f64 / 1024.0);
        metrics.process_pss_age_secs = pss.map(|pss| pss.age.as_secs_f64());
        Ok(())
    }
}

fn fill(metrics: &mut ProcessMetrics, members: &[Member], used: &Totals, secs: f64) {
    let hertz = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let (utime, stime) = (used.utime as f64 / hertz, used.stime as f64 / hertz);
    let alive = members.iter().filter(|member| !member.stat.is_dead());
    let rss_pages: u64 = alive.clone().map(|member| member.stat.rss).sum();
    let has_io = members.is_empty() || members.iter().any(|member| member.io.is_some());
    metrics.process_cores_used = Some(if secs > 0.0 { (utime + stime) / secs } else { 0.0 });
    metrics.process_child_count = Some(alive.clone().filter(|member| !member.is_root).count() as u32);
    metrics.process_utime_secs = Some(utime);
    metrics.process_stime_secs = Some(stime);
    metrics.process_rss_mib = Some(rss_pages as f64 * page / (1 << 20) as f64);
    metrics.process_disk_read_bytes = has_io.then_some(used.read_bytes);
    metrics.process_disk_write_bytes = has_io.then_some(used.write_bytes);
    metrics.process_thread_count = Some(alive.map(|member| member.stat.threads).sum::<u64>() as u32);
    metrics.process_major_faults = Some(used.major_faults);
    metrics.process_voluntary_context_switches = Some(used.voluntary_switches);
    metrics.process_involuntary_context_switches = Some(used.involuntary_switches);
}
