//! The cgroup that the job runs in: limits, and what is used of them.

mod files;
mod hierarchy;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use resource_tracker_core::metrics::CgroupMetrics;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};

use crate::keyless::keyless;
use crate::procfile::{assign, mib, percent};
use files::{Files, Limits, Reading};
pub use hierarchy::{Directory, Hierarchy};

/// Limits can be changed while the job runs, but rarely are.
const LIMITS_EVERY: Duration = Duration::from_secs(5);

keyless! {
    /// Limits and use of the cgroup that the job runs in.
    pub struct CgroupConfig
}

#[typetag::deserialize(name = "cgroup")]
impl SourceConfig for CgroupConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Cgroup { procfs: host.procfs.clone(), state: None })))
    }
}

register_source!(
    SourceEntry::new::<CgroupConfig>("cgroup", "Limits and use of the cgroup that the job runs in")
        .on_by_default()
        .order(25)
);

struct Cgroup {
    procfs: PathBuf,
    /// The inner one is missing where there is nothing to tell.
    state: Option<Option<State>>,
}

struct State {
    path: String,
    hierarchy: Hierarchy,
    files: Files,
    before: Reading,
    limits: Limits,
    limits_at: Instant,
}

impl Source for Cgroup {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let state = self.state.get_or_insert_with(|| State::open(&self.procfs, tick));
        if let Some(state) = state {
            state.collect(tick, out.section());
        }
        Ok(())
    }
}

impl State {
    fn open(procfs: &std::path::Path, tick: &Tick) -> Option<Self> {
        // A command is started in the tracker's own cgroup. (One that has ended already is in none any more.)
        let other = tick.tracked.as_ref().filter(|tracked| !tracked.spawned).map(|tracked| tracked.pid);
        let mut hierarchy = Hierarchy::of(procfs, other);
        let limits = files::limits(&hierarchy);
        if tick.tracked.is_none() && !limits.any() {
            return None;
        }
        if let Some(job) = tick.tracked.as_ref().and_then(|tracked| tracked.cgroup.as_deref()) {
            hierarchy = hierarchy.with(job);
        }
        let path = format!("/{}", hierarchy.name()?.display());
        let mut files = Files::open(&hierarchy);
        let before = files.read();
        Some(Self { path, hierarchy, files, before, limits, limits_at: tick.at })
    }

    fn collect(&mut self, tick: &Tick, metrics: &mut CgroupMetrics) {
        if tick.at.saturating_duration_since(self.limits_at) >= LIMITS_EVERY {
            self.limits = files::limits(&self.hierarchy);
            self.limits_at = tick.at;
        }
        let now = self.files.read();
        let before = std::mem::replace(&mut self.before, now);
        assign(&mut metrics.path, &self.path);
        metrics.cpu_limit_cores = self.limits.cores;
        metrics.memory_limit_mib = self.limits.memory.map(mib);
        metrics.pids_limit = self.limits.pids;
        metrics.memory_used_mib = now.memory.map(mib);
        metrics.memory_peak_mib = now.memory_peak.map(mib);
        metrics.pids_current = now.pids;
        let secs = tick.elapsed.as_secs_f64();
        metrics.cpu_used_cores =
            since(now.cpu, before.cpu).map(|nanos| if secs > 0.0 { nanos as f64 / 1e9 / secs } else { 0.0 });
        metrics.oom_kills = since(now.oom_kills, before.oom_kills);
        metrics.io_read_bytes = since(now.io.map(|io| io.read), before.io.map(|io| io.read));
        metrics.io_write_bytes = since(now.io.map(|io| io.written), before.io.map(|io| io.written));
        let throttling = now.throttling.map(|now| {
            let before = before.throttling.unwrap_or(now);
            let periods = now.periods.saturating_sub(before.periods);
            let throttled = now.throttled.saturating_sub(before.throttled);
            (percent(throttled as f64, periods as f64), now.time.saturating_sub(before.time) as f64 / 1e9)
        });
        metrics.cpu_throttled_pct = throttling.map(|(share, _)| share);
        metrics.cpu_throttled_secs = throttling.map(|(_, secs)| secs);
    }
}

/// What a counter has risen by. One that has only now come up begins at 0.
fn since(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    now.map(|now| now.saturating_sub(before.unwrap_or(now)))
}
