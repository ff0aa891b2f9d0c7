//! Hardware and software counters of the job: `perf_event_open(2)`.

mod pmu;
mod sum;
mod threads;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use resource_tracker_core::{
    Host, ObservedJob, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::PerfMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backoff::{BackoffSchedule, RARE_CHECK_INTERVAL};
use crate::job::{JobDetails, cpu_time};
use pmu::Pmu;
use sum::{Cycles, Events, Sum, has_ended};
use threads::threads_of;
use watch::Watch;

/// Hardware and software counters of the job: instructions, cycles, cache and branch misses, switches, faults.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct PerfConfig {}

from_json!(PerfConfig);

#[typetag::deserialize(name = "perf")]
impl SourceConfig for PerfConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Perf::new(&host.procfs, pmu::of_cpus(&host.sysfs)))))
    }
}

register_source!(
    SourceEntry::new::<PerfConfig>("perf", "Instructions, cycles, cache and branch misses of the job (perf events)")
        .order(28)
);

/// How often opening the counters is tried while new threads begin.
const TRIES: usize = 5;

struct Perf {
    procfs: PathBuf,
    /// Of a machine whose CPUs are of several kinds.
    pmus: Vec<Pmu>,
    counters: Option<Counters>,
    /// When to try again, once that has failed.
    again: Option<BackoffSchedule>,
}

impl Source for Perf {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Some(job) = &tick.job else { return Ok(()) };
        // The process can come later; until it does, the job has no members, and nothing is opened.
        if self.counters.is_none() && self.again.as_mut().is_none_or(|again| again.is_due(tick.at)) {
            self.open(job.members, tick.at);
        }
        *out.section() = self.counters.as_mut().map(|counters| counters.read(job)).unwrap_or_default();
        Ok(())
    }
}

impl Perf {
    fn new(procfs: &Path, pmus: Vec<Pmu>) -> Self {
        Self { procfs: procfs.to_owned(), pmus, counters: None, again: None }
    }

    /// Opens the counters. A part of the job must not stand for the whole: a failure is reported once, and tried again.
    fn open(&mut self, members: &[i32], now: Instant) {
        match Counters::open(&self.procfs, &self.pmus, members) {
            Ok(counters) => self.counters = counters,
            Err(error) if self.again.is_none() => {
                log::warn!(
                    "source perf: not all threads of the job can be counted ({error}), so figures are null for now"
                );
                self.again.insert(BackoffSchedule::until(RARE_CHECK_INTERVAL)).is_due(now);
            }
            Err(_) => (),
        }
    }
}

struct Counters {
    user_only: bool,
    pmus: Vec<String>,
    cycles: Cycles,
    cache_references: Sum,
    cache_misses: Sum,
    llc_loads: Sum,
    llc_load_misses: Sum,
    branches: Sum,
    branch_misses: Sum,
    dtlb_load_misses: Sum,
    task_clock: Sum,
    context_switches: Sum,
    cpu_migrations: Sum,
    page_faults: Sum,
    watch: Watch,
}

impl Counters {
    /// Counters of what the processes and their descendants do from now on; `None` when none of them is there. A
    /// message says once which counters are missing.
    fn open(procfs: &Path, pmus: &[Pmu], pids: &[i32]) -> io::Result<Option<Self>> {
        let counters = with_all(|| threads_of(procfs, pids), |threads| Self::of(pmus, threads))?;
        counters.iter().for_each(|counters| counters.say_what_is_missing(procfs));
        Ok(counters)
    }

    fn of(pmus: &[Pmu], threads: &BTreeSet<i32>) -> Self {
        let events = Events::of(threads);
        let hardware = |event: Hardware| Sum::open(&events, pmus, event);
        let cache = |which, result| Sum::open(&events, pmus, Cache { which, operation: CacheOp::READ, result });
        let software = |event: Software| Sum::open(&events, &[], event);
        Self {
            user_only: events.user_only,
            pmus: pmus.iter().map(|pmu| pmu.name.clone()).collect(),
            cycles: Cycles::open(&events, pmus),
            cache_references: hardware(Hardware::CACHE_REFERENCES),
            cache_misses: hardware(Hardware::CACHE_MISSES),
            llc_loads: cache(CacheId::LL, CacheResult::ACCESS),
            llc_load_misses: cache(CacheId::LL, CacheResult::MISS),
            branches: hardware(Hardware::BRANCH_INSTRUCTIONS),
            branch_misses: hardware(Hardware::BRANCH_MISSES),
            dtlb_load_misses: cache(CacheId::DTLB, CacheResult::MISS),
            task_clock: software(Software::TASK_CLOCK),
            context_switches: software(Software::CONTEXT_SWITCHES),
            cpu_migrations: software(Software::CPU_MIGRATIONS),
            page_faults: software(Software::PAGE_FAULTS),
            watch: Watch::default(),
        }
    }

    fn say_what_is_missing(&self, procfs: &Path) {
        let (missing, error) = match (self.task_clock.error(), self.cycles.error()) {
            // What has ended has nothing to be counted.
            (Some(error), _) if has_ended(error) => return,
            (Some(error), _) => ("no counter", error),
            (_, Some(error)) => ("no hardware counter", error),
            _ => return,
        };
        let paranoid = std::fs::read_to_string(procfs.join("sys/kernel/perf_event_paranoid")).unwrap_or_default();
        let (level, reason) = (paranoid.trim(), "a virtual machine often has none");
        log::warn!(
            "source perf: {missing} could be opened ({error}), so they are null ({reason}; perf_event_paranoid is {level})"
        );
    }

    /// Whether a part of the job ran uncounted before the last reading.
    fn misses(&mut self, job: &ObservedJob, switches: Option<u64>) -> bool {
        let (Some(enabled), Ok(job)) = (self.task_clock.enabled(), JobDetails::of(job)) else { return false };
        let used = || job.alive().filter_map(|member| Some((member.identity(), member.clock?)));
        let misses = self.watch.misses(used(), enabled, switches);
        self.watch.go_on(used().filter_map(|(who, _)| Some((who, cpu_time(who.0)?))));
        misses
    }

    fn read(&mut self, job: &ObservedJob) -> PerfMetrics {
        let (cycles, instructions, ipc) = self.cycles.read();
        let metrics = PerfMetrics {
            user_only: self.user_only,
            pmus: self.pmus.clone(),
            instructions,
            cycles,
            ipc,
            cache_references: self.cache_references.read(),
            cache_misses: self.cache_misses.read(),
            llc_loads: self.llc_loads.read(),
            llc_load_misses: self.llc_load_misses.read(),
            branches: self.branches.read(),
            branch_misses: self.branch_misses.read(),
            dtlb_load_misses: self.dtlb_load_misses.read(),
            task_clock_secs: self.task_clock.read().map(|nanos| nanos as f64 / 1e9),
            context_switches: self.context_switches.read(),
            cpu_migrations: self.cpu_migrations.read(),
            page_faults: self.page_faults.read(),
        };
        // Work in the kernel is not counted for every user.
        let switches = metrics.context_switches.filter(|_| !self.user_only);
        match self.misses(job, switches) {
            // The figures would be those of the other threads only.
            true => PerfMetrics { user_only: metrics.user_only, pmus: metrics.pmus, ..PerfMetrics::default() },
            false => metrics,
        }
    }
}

/// What `open` gives for all threads that there are; `None` when there are none.
///
/// # Errors
/// When they cannot be listed, or more begin each time before it is done.
fn with_all<T>(
    list: impl Fn() -> io::Result<BTreeSet<i32>>,
    open: impl Fn(&BTreeSet<i32>) -> T,
) -> io::Result<Option<T>> {
    let mut threads = list()?;
    if threads.is_empty() {
        return Ok(None);
    }
    for _ in 0..TRIES {
        let opened = open(&threads);
        let now = list()?;
        if now.is_subset(&threads) {
            return Ok(Some(opened));
        }
        // One that began before its parent was counted would be in no counter.
        threads = now;
    }
    Err(io::Error::other("others begin all the time"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use resource_tracker_core::{Moment, Observer};

    use super::*;
    use crate::job::{JobObserver, TrackedJob};

    #[test]
    fn a_process_that_starts_others_is_counted_with_them() {
        // It waits for a line, so that the counters are there before it begins.
        let script = "read line; i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done; echo done; read line";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let members = [shell.id() as i32];
        let job = ObservedJob::new(members[0], false, &members);
        let mut perf = Perf::new(Path::new("/proc"), Vec::new());
        let mut read = |number| {
            let mut out = Sections::default();
            let second = Duration::from_secs(1);
            let tick = Tick::new(number, Instant::now(), second, second).with_job(job);
            perf.collect(&tick, &mut out).unwrap();
            out.get::<PerfMetrics>().unwrap().clone()
        };
        let is_permitted = read(0).task_clock_secs.is_some();
        let input = shell.stdin.as_mut().unwrap();
        std::io::Write::write_all(input, b"go\n").unwrap();
        let output = shell.stdout.as_mut().unwrap();
        std::io::Read::read_exact(output, &mut [0; 5]).unwrap();
        let metrics = read(1);
        shell.kill().unwrap();
        shell.wait().unwrap();
        if !is_permitted {
            eprintln!("skipped: perf events are not permitted here");
            return;
        }
        let (secs, faults) = (metrics.task_clock_secs.unwrap(), metrics.page_faults.unwrap());
        assert!((0.005..2.0).contains(&secs) && faults > 50 * 20, "{metrics:?}");
    }

    #[test]
    fn a_process_that_comes_later_is_counted_from_then_on() {
        // Not this program, whose threads come and go with its tests.
        let mut sleeps = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = sleeps.id() as i32;
        let mut perf = Perf::new(Path::new("/proc"), Vec::new());
        let mut opens = |members: &[i32]| {
            let job = ObservedJob::new(pid, false, members);
            let second = Duration::from_secs(1);
            let tick = Tick::new(0, Instant::now(), second, second).with_job(job);
            let mut out = Sections::default();
            perf.collect(&tick, &mut out).unwrap();
            assert!(out.get::<PerfMetrics>().is_some(), "all of it is null");
            perf.counters.is_some()
        };
        assert_eq!([opens(&[]), opens(&[1 << 23]), opens(&[pid])], [false, false, true]);
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
    }

    #[test]
    fn threads_that_begin_meanwhile_are_none_too_many_or_said() {
        for (begin, expected) in [(0, Some(1)), (TRIES as i32 - 1, Some(TRIES as i32)), (TRIES as i32, None)] {
            let count = Cell::new(0);
            let list = || {
                count.set((count.get() + 1).min(begin + 1));
                Ok((0..count.get()).collect())
            };
            assert_eq!(with_all(list, |threads| threads.len() as i32).ok(), expected.map(Some));
        }
        assert!(with_all(|| Ok(BTreeSet::new()), |_| ()).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_counted_as_a_whole_is_null_until_it_can() {
        let procfs = tempfile::tempdir().unwrap();
        let pid = std::process::id() as i32;
        let task = procfs.path().join(format!("{pid}/task"));
        std::fs::create_dir(task.parent().unwrap()).unwrap();
        std::fs::write(&task, "").unwrap();
        let mut perf = Perf::new(procfs.path(), Vec::new());
        let start = Instant::now();
        let mut counts = |tenths: u32| {
            let tenth = Duration::from_millis(100);
            let tick = Tick::new(tenths.into(), start + tenth * tenths, tenth, tenth);
            let mut out = Sections::default();
            perf.collect(&tick.with_job(ObservedJob::new(pid, false, &[pid])), &mut out).unwrap();
            assert!(perf.counters.is_some() || *out.get::<PerfMetrics>().unwrap() == PerfMetrics::default());
            perf.counters.is_some()
        };
        assert_eq!([counts(0), counts(1)], [false; 2]);
        std::fs::remove_file(&task).unwrap();
        std::fs::create_dir_all(task.join(pid.to_string())).unwrap();
        assert_eq!([counts(2), counts(3)], [false, true], "it was tried just now");
    }

    #[test]
    fn a_thread_that_only_wakes_up_is_counted() {
        let mut observer = JobObserver::new(TrackedJob::attached(std::process::id() as i32), Host::default());
        let mut perf = Perf::new(Path::new("/proc"), Vec::new());
        let mut clock = |number| {
            let second = Duration::from_secs(1);
            let moment = Moment::new(number, Instant::now(), second, second);
            observer.observe(&moment).unwrap();
            let mut out = Sections::default();
            perf.collect(&Tick::of(&moment, observer.seen()), &mut out).unwrap();
            out.get::<PerfMetrics>().unwrap().task_clock_secs
        };
        if clock(0).is_none() {
            eprintln!("skipped: perf events are not permitted here");
            return;
        }
        for number in 1..5 {
            let naps = || (0..500).for_each(|_| std::thread::sleep(Duration::from_micros(50)));
            std::thread::spawn(naps).join().unwrap();
            assert!(clock(number).is_some_and(|secs| secs > 0.0));
        }
    }

    /// The kernel ends the counters of a program that takes on the rights of its file's owner.
    #[test]
    fn a_program_that_is_counted_no_more_is_null_and_not_nothing() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a program of root's that a user starts needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let shell = folder.path().join("sh");
        let copy = "cp \"$(command -v sh)\" \"$0\" && chmod 4755 \"$0\" && chmod 755 \"$(dirname \"$0\")\"";
        assert!(Command::new("sh").args(["-c", copy]).arg(&shell).status().unwrap().success());
        let script = "read line; exec \"$0\" -p -c 'echo begun; while :; do :; done'";
        let mut user = Command::new("sh");
        user.uid(65534).gid(65534).args(["-c", script]).arg(&shell).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut job = Running(user.spawn().unwrap());
        let pid = job.0.id() as i32;
        let mut observer = JobObserver::new(TrackedJob::attached(pid), Host::default());
        let mut perf = Perf::new(Path::new("/proc"), Vec::new());
        let mut clock = |number| {
            let second = Duration::from_secs(1);
            let moment = Moment::new(number, Instant::now(), second, second);
            observer.observe(&moment).unwrap();
            let mut out = Sections::default();
            perf.collect(&Tick::of(&moment, observer.seen()), &mut out).unwrap();
            out.get::<PerfMetrics>().unwrap().task_clock_secs
        };
        if clock(0).is_none() {
            eprintln!("skipped: perf events are not permitted here");
            return;
        }
        std::io::Write::write_all(job.0.stdin.as_mut().unwrap(), b"go\n").unwrap();
        std::io::Read::read_exact(job.0.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        if std::fs::metadata(format!("/proc/{pid}")).unwrap().uid() != 0 {
            eprintln!("skipped: files do not give rights here");
            return;
        }
        let is_null = (1..3000).any(|number| {
            std::thread::sleep(Duration::from_millis(20));
            clock(number).is_none()
        });
        assert!(is_null);
    }

    struct Running(std::process::Child);

    impl Drop for Running {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }
}
