//! The cgroup that the job runs in: limits, and what is used of them.

mod files;
mod hierarchy;
mod io;
mod kills_below;
mod limits;
mod membership;
mod pressure;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Instant;

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::CgroupMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backoff::RARE_CHECK_INTERVAL;
use crate::counter_deltas::CounterDeltas;
use crate::job::{Group, GroupReading, JobCgroup, JobDetails};
use crate::procfile::{assign, mib, percent};
use files::{Files, Reading};
pub use hierarchy::{Directory, Hierarchy};
use kills_below::KillsBelow;
use limits::Limits;
use membership::Membership;
use pressure::Pressure;

/// Limits and use of the cgroup that the job runs in.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct CgroupConfig {
    /// Whether the time that tasks waited (PSI) is read at each tick, which costs three files; else only at the end, for the
    /// whole run.
    pub pressure: bool,
}

#[typetag::deserialize(name = "cgroup")]
impl SourceConfig for CgroupConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Cgroup {
            procfs: host.procfs.clone(),
            sysfs: host.sysfs.clone(),
            pressure: self.pressure,
            membership: None,
            state: None,
        })))
    }
}

register_source!(
    SourceEntry::new::<CgroupConfig>("cgroup", "Limits and use of the cgroup that the job runs in")
        .on_by_default()
        .order(25)
);

struct Cgroup {
    procfs: PathBuf,
    sysfs: PathBuf,
    /// Whether pressure is read at each tick.
    pressure: bool,
    /// Of the job, once it was looked for.
    membership: Option<Membership>,
    /// `Some(None)`: it was looked for, and there is nothing to report.
    state: Option<Option<State>>,
}

struct State {
    path: String,
    hierarchy: Hierarchy,
    /// `None` for the cgroup that was made for the job, which the job's observer reads.
    group: Option<Group>,
    files: Files,
    kills_below: KillsBelow,
    before: Reading,
    limits: Limits,
    limits_at: Instant,
    pressure: Option<Pressure>,
    deltas: CounterDeltas,
}

impl Source for Cgroup {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let wants_pressure = self.pressure || tick.last;
        self.read(tick, wants_pressure, out)
    }

    /// What is counted from is read when the files are opened.
    fn prime(&mut self, tick: &Tick, _: &mut Sections) -> anyhow::Result<()> {
        self.open(tick)
    }
}

impl Cgroup {
    fn read(&mut self, tick: &Tick, wants_pressure: bool, out: &mut Sections) -> anyhow::Result<()> {
        let has_moved = self.state.is_some() && self.follow(tick)?;
        if self.state.is_none() {
            self.open(tick)?;
        }
        if let Some(Some(state)) = &mut self.state {
            let metrics = out.section();
            state.collect(tick, &observed(tick)?, metrics);
            if has_moved {
                // The CPU time of this interval is that of two cgroups.
                metrics.cpu_used_cores = None;
            }
            state.collect_pressure(wants_pressure, metrics);
        }
        Ok(())
    }

    fn open(&mut self, tick: &Tick) -> anyhow::Result<()> {
        // A command is started in the tracker's own cgroup. (One that has ended already is in none any more.)
        let other = tick.job.filter(|job| !job.spawned).map(|job| job.root);
        let hierarchy = Hierarchy::of(&self.procfs, other);
        let limits = Limits::read(&hierarchy);
        self.state = Some(match &tick.job {
            Some(job) => {
                let details = JobDetails::of(job)?;
                let made = details.cgroup();
                let hierarchy = hierarchy.with(made);
                self.membership = Some(Membership::new(&self.procfs, job.root, hierarchy.clone(), tick.at));
                State::new(hierarchy, limits, made, details.group(), &self.sysfs, tick.at)
            }
            None if limits.any() => State::of_no_job(hierarchy, limits, &self.sysfs, tick.at),
            None => None,
        });
        Ok(())
    }

    /// Follows the job to another cgroup, and says whether it has moved. The cgroup that was made for it counts as any
    /// other one from then on.
    fn follow(&mut self, tick: &Tick) -> anyhow::Result<bool> {
        let (Some(job), Some(membership)) = (&tick.job, &mut self.membership) else { return Ok(false) };
        if !JobDetails::of(job)?.alive().any(|member| member.is_root) {
            return Ok(false);
        }
        let Some(hierarchy) = membership.look(&self.procfs, tick.at) else { return Ok(false) };
        let limits = Limits::read(hierarchy);
        self.state = Some(State::of_no_job(hierarchy.clone(), limits, &self.sysfs, tick.at));
        Ok(true)
    }
}

impl State {
    /// The state where no cgroup was made for a job.
    fn of_no_job(hierarchy: Hierarchy, limits: Limits, sysfs: &Path, now: Instant) -> Option<Self> {
        Self::new(hierarchy, limits, &JobCgroup::default(), &GroupReading::default(), sysfs, now)
    }

    /// The state with what was observed of the cgroup that was made for the job. `None` when there is nothing to
    /// report.
    fn new(
        hierarchy: Hierarchy,
        limits: Limits,
        made: &JobCgroup,
        observed: &GroupReading,
        sysfs: &Path,
        now: Instant,
    ) -> Option<Self> {
        let reported = hierarchy.reported(made)?;
        let path = format!("/{}", reported.path.display());
        let pressure = match (&made.unified, &reported.unified) {
            (Some(made), _) => Some(Pressure::open(made, true)),
            (None, found) => found.as_deref().map(|found| Pressure::open(found, false)),
        };
        let mut files = Files::open(&reported, sysfs);
        // The root cgroup counts kills that are not the job's.
        let memory = reported.legacy("memory").filter(|_| !reported.path.as_os_str().is_empty());
        let mut kills_below = KillsBelow::new(memory.map(Into::into));
        kills_below.look();
        let directories = reported.directories();
        let is_made = directories == *made && directories != JobCgroup::default();
        let mut group = (!is_made).then(|| Group::open(&directories));
        let before = with_kills(files.read(&read(&mut group, observed, now, false)), &kills_below);
        let deltas = CounterDeltas::new("cgroup");
        Some(Self { path, hierarchy, group, files, kills_below, before, limits, limits_at: now, pressure, deltas })
    }

    fn collect(&mut self, tick: &Tick, observed: &GroupReading, metrics: &mut CgroupMetrics) {
        if tick.at.saturating_duration_since(self.limits_at) >= RARE_CHECK_INTERVAL {
            self.limits = Limits::read(&self.hierarchy);
            self.limits_at = tick.at;
            self.kills_below.look();
        } else if tick.last {
            self.kills_below.look();
        }
        let group = read(&mut self.group, observed, tick.at, tick.last);
        let now = with_kills(self.files.read(&group), &self.kills_below);
        let before = self.before;
        self.before = now.or_before(&before);
        let mut since = |now: u64, before: u64| self.deltas.of(&self.path, now, before);
        assign(&mut metrics.path, &self.path);
        metrics.cpu_limit_cores = self.limits.cores;
        assign(&mut metrics.cpuset_cpus, &self.limits.cpus);
        metrics.memory_limit_mib = self.limits.memory.map(mib);
        metrics.memory_high_mib = self.limits.memory_high.map(mib);
        metrics.swap_limit_mib = self.limits.swap.map(mib);
        metrics.pids_limit = self.limits.pids;
        metrics.memory_used_mib = now.memory.map(mib);
        let inactive = group.memory_stat.and_then(|stat| stat.inactive_file);
        let working_set = now.memory.zip(inactive).map(|(used, inactive)| used.saturating_sub(inactive));
        metrics.memory_working_set_mib = working_set.map(mib);
        metrics.memory_peak_mib = now.memory_peak.map(mib);
        metrics.memory_anon_mib = group.memory_stat.map(|stat| mib(stat.anon));
        metrics.memory_file_mib = group.memory_stat.map(|stat| mib(stat.file));
        metrics.memory_shmem_mib = group.memory_stat.map(|stat| mib(stat.shmem));
        metrics.pids_current = now.pids;
        let secs = tick.elapsed.as_secs_f64();
        let used = now.cpu.zip(before.cpu).and_then(|(now, before)| since(now, before));
        metrics.cpu_used_cores = used.map(|nanos| if secs > 0.0 { nanos as f64 / 1e9 / secs } else { 0.0 });
        metrics.oom_kills = now.oom_kills.zip(before.oom_kills).and_then(|(now, before)| since(now, before));
        let io = now.io.zip(before.io);
        metrics.io_read_bytes = io.and_then(|(now, before)| since(now.read, before.read));
        metrics.io_write_bytes = io.and_then(|(now, before)| since(now.written, before.written));
        let throttling = now.throttling.zip(before.throttling).and_then(|(now, before)| {
            let (periods, throttled) = (since(now.periods, before.periods)?, since(now.throttled, before.throttled)?);
            Some((periods, throttled, since(now.time, before.time)? as f64 / 1e9))
        });
        metrics.cpu_periods = throttling.map(|(periods, ..)| periods);
        metrics.cpu_throttled_periods = throttling.map(|(_, throttled, _)| throttled);
        let share = throttling.filter(|(periods, ..)| *periods > 0);
        metrics.cpu_throttled_pct = share.map(|(periods, throttled, _)| percent(throttled as f64, periods as f64));
        metrics.cpu_throttled_secs = throttling.map(|(.., secs)| secs);
    }

    fn collect_pressure(&mut self, is_wanted: bool, metrics: &mut CgroupMetrics) {
        let pressure = self.pressure.as_mut().filter(|_| is_wanted);
        let [cpu, memory, io] = pressure.map(|pressure| pressure.read(&mut self.deltas)).unwrap_or_default();
        (metrics.cpu_pressure_some_secs, metrics.cpu_pressure_full_secs) = (cpu.some, cpu.full);
        (metrics.memory_pressure_some_secs, metrics.memory_pressure_full_secs) = (memory.some, memory.full);
        (metrics.io_pressure_some_secs, metrics.io_pressure_full_secs) = (io.some, io.full);
    }
}

/// What was observed of the cgroup that was made for the job.
fn observed(tick: &Tick) -> anyhow::Result<GroupReading> {
    let Some(job) = &tick.job else { return Ok(GroupReading::default()) };
    Ok(*JobDetails::of(job)?.group())
}

/// Reads the cgroup, unless it is the one that was observed.
fn read(group: &mut Option<Group>, observed: &GroupReading, now: Instant, last: bool) -> GroupReading {
    let Some(group) = group else { return *observed };
    // A cgroup that was removed cannot be read.
    let _ = group.read(0, now, last);
    *group.reading()
}

fn with_kills(reading: Reading, below: &KillsBelow) -> Reading {
    Reading { oom_kills: reading.oom_kills.map(|kills| kills + below.sum()), ..reading }
}
