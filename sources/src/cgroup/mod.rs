//! The cgroup that the job runs in: limits, and what is used of them.

mod files;
mod hierarchy;
mod kills_below;
mod limits;
mod membership;
mod pressure;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::CgroupMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{Group, GroupReading, JobCgroup, JobDetails};
use crate::procfile::{assign, mib, percent};
use files::{Files, Reading};
pub use hierarchy::{Directory, Hierarchy};
use kills_below::KillsBelow;
use limits::Limits;
use membership::Membership;
use pressure::Pressure;

/// Limits can be changed while the job runs, but rarely are.
const LIMITS_EVERY: Duration = Duration::from_secs(5);

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
    /// Unless it is the one that was made for the job, which its observer reads.
    group: Option<Group>,
    files: Files,
    kills_below: KillsBelow,
    before: Reading,
    limits: Limits,
    limits_at: Instant,
    pressure: Option<Pressure>,
}

impl Source for Cgroup {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let has_moved = self.state.is_some() && self.follow(tick)?;
        if self.state.is_none() {
            self.open(tick)?;
        }
        if let Some(Some(state)) = &mut self.state {
            let metrics = out.section();
            state.collect(tick, &observed(tick)?, metrics);
            if has_moved {
                // What was used in this interval is of two.
                metrics.cpu_used_cores = None;
            }
            // Nobody sees the baseline, and what came before it counts.
            let is_due = tick.number > 0 && (self.pressure || tick.last);
            state.collect_pressure(is_due, metrics);
        }
        Ok(())
    }
}

impl Cgroup {
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
                State::new(hierarchy, limits, made, details.group(), tick.at)
            }
            None if limits.any() => State::of_no_job(hierarchy, limits, tick.at),
            None => None,
        });
        Ok(())
    }

    /// Goes where the job has gone, and says whether it has. All that was made for it counts as any other cgroup from then on.
    fn follow(&mut self, tick: &Tick) -> anyhow::Result<bool> {
        let (Some(job), Some(membership)) = (&tick.job, &mut self.membership) else { return Ok(false) };
        if !JobDetails::of(job)?.alive().any(|member| member.is_root) {
            return Ok(false);
        }
        let Some(hierarchy) = membership.look(&self.procfs, tick.at) else { return Ok(false) };
        let limits = Limits::read(hierarchy);
        self.state = Some(State::of_no_job(hierarchy.clone(), limits, tick.at));
        Ok(true)
    }
}

impl State {
    /// Where nothing was made for a job.
    fn of_no_job(hierarchy: Hierarchy, limits: Limits, now: Instant) -> Option<Self> {
        Self::new(hierarchy, limits, &JobCgroup::default(), &GroupReading::default(), now)
    }

    /// With what was observed of the cgroup that was made for the job. `None` when there is nothing to report.
    fn new(
        hierarchy: Hierarchy,
        limits: Limits,
        made: &JobCgroup,
        observed: &GroupReading,
        now: Instant,
    ) -> Option<Self> {
        let reported = hierarchy.reported(made)?;
        let path = format!("/{}", reported.path.display());
        let pressure = match (&made.unified, &reported.unified) {
            (Some(made), _) => Some(Pressure::open(made, true)),
            (None, found) => found.as_deref().map(|found| Pressure::open(found, false)),
        };
        let mut files = Files::open(&reported);
        // That of the whole machine has what is not the job's in it.
        let memory = reported.legacy("memory").filter(|_| !reported.path.as_os_str().is_empty());
        let mut kills_below = KillsBelow::new(memory.map(Into::into));
        kills_below.look();
        let directories = reported.directories();
        let is_made = directories == *made && directories != JobCgroup::default();
        let mut group = (!is_made).then(|| Group::open(&directories));
        let before = with_kills(files.read(&read(&mut group, observed, now, false)), &kills_below);
        Some(Self { path, hierarchy, group, files, kills_below, before, limits, limits_at: now, pressure })
    }

    fn collect(&mut self, tick: &Tick, observed: &GroupReading, metrics: &mut CgroupMetrics) {
        if tick.at.saturating_duration_since(self.limits_at) >= LIMITS_EVERY {
            self.limits = Limits::read(&self.hierarchy);
            self.limits_at = tick.at;
            self.kills_below.look();
        } else if tick.last {
            self.kills_below.look();
        }
        let group = read(&mut self.group, observed, tick.at, tick.last);
        let now = with_kills(self.files.read(&group), &self.kills_below);
        let before = std::mem::replace(&mut self.before, now);
        assign(&mut metrics.path, &self.path);
        metrics.cpu_limit_cores = self.limits.cores;
        assign(&mut metrics.cpuset_cpus, &self.limits.cpus);
        metrics.memory_limit_mib = self.limits.memory.map(mib);
        metrics.memory_high_mib = self.limits.memory_high.map(mib);
        metrics.swap_limit_mib = self.limits.swap.map(mib);
        metrics.pids_limit = self.limits.pids;
        metrics.memory_used_mib = now.memory.map(mib);
        metrics.memory_peak_mib = now.memory_peak.map(mib);
        metrics.memory_anon_mib = group.memory_stat.map(|stat| mib(stat.anon));
        metrics.memory_file_mib = group.memory_stat.map(|stat| mib(stat.file));
        metrics.memory_shmem_mib = group.memory_stat.map(|stat| mib(stat.shmem));
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

    fn collect_pressure(&mut self, is_due: bool, metrics: &mut CgroupMetrics) {
        let pressure = self.pressure.as_mut().filter(|_| is_due);
        let [cpu, memory, io] = pressure.map(Pressure::read).unwrap_or_default();
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
    // It says no more when it has been removed.
    let _ = group.read(0, now, last);
    *group.reading()
}

fn with_kills(reading: Reading, below: &KillsBelow) -> Reading {
    Reading { oom_kills: reading.oom_kills.map(|kills| kills + below.sum()), ..reading }
}

/// What a counter has risen by. One that has only now come up begins at 0.
fn since(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    now.map(|now| now.saturating_sub(before.unwrap_or(now)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use resource_tracker_core::{Moment, Observer};

    use super::*;
    use crate::job::{JobObserver, TrackedJob};

    /// Directories with files, by their paths.
    pub(super) fn tree(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    pub(super) fn hierarchy(root: &Path, unified: Option<&str>, legacy: &[(&str, &str)]) -> Hierarchy {
        let directory =
            |mount: &str, path: &str| Directory { mount: root.join(mount), path: root.join(mount).join(path) };
        Hierarchy {
            unified: unified.map(|path| directory("unified", path)),
            legacy: legacy
                .iter()
                .map(|(controller, path)| (vec![(*controller).to_owned()], directory(controller, path)))
                .collect(),
        }
    }

    /// A job whose shell goes to a cgroup that another one made, which limits it.
    #[test]
    fn a_job_that_goes_elsewhere_is_followed() {
        let (directory, procfs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, procfs) = (directory.path(), procfs.path());
        let stat = "30 (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17";
        let mounts = format!("29 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.display());
        tree(
            procfs,
            &[("self/cgroup", "0::/a\n"), ("self/mountinfo", &mounts), ("30/stat", stat), ("30/cgroup", "0::/a/job\n")],
        );
        tree(
            root,
            &[
                ("a/memory.current", "7\n"),
                ("a/cpu.stat", "usage_usec 5\n"),
                ("a/job/cpu.stat", "usage_usec 5\n"),
                ("t/memory.current", "3\n"),
                ("t/memory.max", "104857600\n"),
                ("t/cpu.stat", "usage_usec 9000000\n"),
            ],
        );
        let mut job = TrackedJob::spawned(30);
        job.cgroup.unified = Some(root.join("a/job"));
        let mut observer = JobObserver::new(job, Host::new(procfs, procfs));
        let mut source = CgroupConfig::default().build(&Host::new(procfs, procfs)).unwrap().unwrap();
        let start = Instant::now();
        let mut told = |number: u32| {
            let tenth = Duration::from_millis(100);
            let moment = Moment::new(number.into(), start + tenth * number, tenth, tenth);
            observer.observe(&moment).unwrap();
            let mut out = Sections::default();
            source.collect(&Tick::of(&moment, observer.seen()), &mut out).unwrap();
            let metrics = out.get::<CgroupMetrics>().unwrap();
            (metrics.path.clone(), metrics.memory_limit_mib, metrics.cpu_used_cores)
        };
        let at_home = ("/a".to_owned(), None, Some(0.0));
        assert_eq!([told(0), told(1)], [at_home.clone(), at_home.clone()], "it is where it was put");
        tree(procfs, &[("30/cgroup", "0::/t\n")]);
        assert_eq!(told(2), at_home, "it was looked at just now");
        let limit = Some(100.0);
        assert_eq!(told(3), ("/t".into(), limit, None), "it was in two");
        tree(root, &[("t/cpu.stat", "usage_usec 9100000\n")]);
        assert_eq!(told(4), ("/t".into(), limit, Some(1.0)));
        assert_eq!((5..200).map(&mut told).last(), Some(("/t".into(), limit, Some(0.0))));
        // One that ends is nowhere.
        std::fs::remove_file(procfs.join("30/cgroup")).unwrap();
        assert_eq!((200..300).map(&mut told).last(), Some(("/t".into(), limit, Some(0.0))));
    }

    fn read(hierarchy: Hierarchy, job: &JobCgroup) -> (String, Reading) {
        let reported = hierarchy.with(job).reported(job).unwrap();
        let group = super::read(
            &mut Some(Group::open(&reported.directories())),
            &GroupReading::default(),
            Instant::now(),
            false,
        );
        (reported.path.display().to_string(), Files::open(&reported).read(&group))
    }

    /// A hybrid machine, where the job got a cgroup of v2 and stayed where the shell is in those of v1.
    #[test]
    fn figures_of_the_shell_are_not_those_of_the_job() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        tree(
            root,
            &[
                ("unified/job/cpu.stat", "usage_usec 5\n"),
                ("memory/shell/memory.usage_in_bytes", "7\n"),
                ("memory/shell/memory.max_usage_in_bytes", "2036334592\n"),
                ("pids/pids.current", "100\n"),
                ("cpu/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 1\n"),
            ],
        );
        let membership = hierarchy(root, Some(""), &[("memory", "shell"), ("pids", ""), ("cpu", "")]);
        let job = JobCgroup { unified: Some(root.join("unified/job")), ..JobCgroup::default() };
        let own = Reading { cpu: Some(5000), ..Reading::default() };
        assert_eq!(read(membership.clone(), &job), ("job".into(), own));
        // One of v1 for memory, which nothing but the job is in.
        tree(root, &[("memory/shell/job/memory.usage_in_bytes", "3\n")]);
        let job = JobCgroup { memory: Some(root.join("memory/shell/job")), ..job };
        assert_eq!(read(membership.clone(), &job), ("job".into(), Reading { memory: Some(3), ..own }));
        // Without one of its own, it is the shell's by name as well.
        let shells = Reading { memory: Some(7), memory_peak: Some(2_036_334_592), ..Reading::default() };
        assert_eq!(read(membership, &JobCgroup::default()), ("shell".into(), shells));
    }

    #[test]
    fn in_v1_the_job_s_own_are_used_whatever_lies_above_them() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        tree(
            root,
            &[
                ("memory/shell/job/memory.usage_in_bytes", "1\n"),
                ("cpuacct/job/cpuacct.usage", "2\n"),
                ("cpuacct/job/cpuacct.stat", "user 0\nsystem 0\n"),
                ("pids/pids.current", "100\n"),
            ],
        );
        let membership = hierarchy(root, None, &[("pids", ""), ("cpuacct", ""), ("memory", "shell")]);
        let [cpuacct, memory] = ["cpuacct/job", "memory/shell/job"].map(|path| Some(root.join(path)));
        let job = JobCgroup { unified: None, cpuacct: cpuacct.clone(), memory };
        let own = Reading { cpu: Some(2), memory: Some(1), ..Reading::default() };
        assert_eq!(read(membership.clone(), &job), ("shell/job".into(), own));
        // One for its CPU time only: the memory of the shell is left out.
        let job = JobCgroup { cpuacct, ..JobCgroup::default() };
        let own = Reading { cpu: Some(2), ..Reading::default() };
        assert_eq!(read(membership, &job), ("job".into(), own));
    }

    /// The new cgroup of v2 has the controllers only that the one above gives to it.
    #[test]
    fn in_v2_all_figures_are_of_the_nearest_cgroup_with_controllers() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        tree(
            root,
            &[
                ("unified/cpu.stat", "usage_usec 900\n"),
                ("unified/scope/cpu.stat", "usage_usec 50\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1\n"),
                ("unified/scope/memory.current", "7\n"),
                ("unified/scope/pids.current", "3\n"),
                ("unified/scope/job/cpu.stat", "usage_usec 5\n"),
            ],
        );
        let job = JobCgroup { unified: Some(root.join("unified/scope/job")), ..JobCgroup::default() };
        let (path, figures) = read(hierarchy(root, Some("scope"), &[]), &job);
        assert_eq!(path, "scope");
        assert_eq!((figures.cpu, figures.memory, figures.pids), (Some(50_000), Some(7), Some(3)));
        assert_eq!(figures.throttling.map(|throttling| throttling.throttled), Some(2));
        // With controllers of its own it speaks for itself; without any above it as well.
        tree(root, &[("unified/scope/job/memory.current", "1\n")]);
        let (path, figures) = read(hierarchy(root, Some("scope"), &[]), &job);
        assert_eq!(
            (path.as_str(), figures.cpu, figures.memory, figures.pids),
            ("scope/job", Some(5000), Some(1), None)
        );
        let (path, _) = read(hierarchy(root, Some(""), &[]), &JobCgroup::default());
        assert_eq!(path, "");
    }
}
