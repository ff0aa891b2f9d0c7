//! Hardware and software counters of the job: `perf_event_open(2)`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use perf_event::events::{Cache, CacheOp, CacheResult, Event, Hardware, Software, WhichCache};
use perf_event::{Builder, CountAndTime, Counter};
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::PerfMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scan::{number, words};

/// Hardware and software counters of the job: instructions, cycles, cache and branch misses, switches, faults.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct PerfConfig {}

#[typetag::deserialize(name = "perf")]
impl SourceConfig for PerfConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Perf { procfs: host.procfs.clone(), counters: None })))
    }
}

register_source!(
    SourceEntry::new::<PerfConfig>("perf", "Instructions, cycles, cache and branch misses of the job (perf events)")
        .order(28)
);

/// So often the counters are opened when threads begin meanwhile.
const TRIES: usize = 5;

struct Perf {
    procfs: PathBuf,
    counters: Option<Counters>,
}

impl Source for Perf {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Some(job) = &tick.job else { return Ok(()) };
        // The process can come later; until it does, the job has no members, and nothing is opened.
        if self.counters.is_none() {
            self.counters = Counters::open(&self.procfs, job.members);
        }
        *out.section() = self.counters.as_mut().map(Counters::read).unwrap_or_default();
        Ok(())
    }
}

struct Counters {
    user_only: bool,
    instructions: Sum,
    cycles: Sum,
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
}

impl Counters {
    /// Counters of what the processes and their descendants do from now on; `None` when none of them is there. What is missing
    /// is said once.
    fn open(procfs: &Path, pids: &[i32]) -> Option<Self> {
        let mut threads = threads_of(procfs, pids);
        if threads.is_empty() {
            return None;
        }
        let mut counters = Self::of(&threads);
        for _ in 1..TRIES {
            let now = threads_of(procfs, pids);
            if now.is_subset(&threads) {
                break;
            }
            // One that began before its parent was counted would be in no counter.
            threads = now;
            counters = Self::of(&threads);
        }
        counters.say_what_is_missing(procfs);
        Some(counters)
    }

    fn of(threads: &BTreeSet<i32>) -> Self {
        let user_only = !can_count_kernel(threads);
        let open = |event: Event| Sum::open(event, threads, user_only);
        let cache = |which, result| open(Event::Cache(Cache { which, operation: CacheOp::READ, result }));
        Self {
            user_only,
            instructions: open(Hardware::INSTRUCTIONS.into()),
            cycles: open(Hardware::CPU_CYCLES.into()),
            cache_references: open(Hardware::CACHE_REFERENCES.into()),
            cache_misses: open(Hardware::CACHE_MISSES.into()),
            llc_loads: cache(WhichCache::LL, CacheResult::ACCESS),
            llc_load_misses: cache(WhichCache::LL, CacheResult::MISS),
            branches: open(Hardware::BRANCH_INSTRUCTIONS.into()),
            branch_misses: open(Hardware::BRANCH_MISSES.into()),
            dtlb_load_misses: cache(WhichCache::DTLB, CacheResult::MISS),
            task_clock: open(Software::TASK_CLOCK.into()),
            context_switches: open(Software::CONTEXT_SWITCHES.into()),
            cpu_migrations: open(Software::CPU_MIGRATIONS.into()),
            page_faults: open(Software::PAGE_FAULTS.into()),
        }
    }

    fn say_what_is_missing(&self, procfs: &Path) {
        let (missing, error) = match (&self.task_clock.counters, &self.instructions.counters) {
            // What has ended has nothing to be counted.
            (Err(error), _) if has_ended(error) => return,
            (Err(error), _) => ("no counter", error),
            (_, Err(error)) => ("no hardware counter", error),
            _ => return,
        };
        let paranoid = std::fs::read_to_string(procfs.join("sys/kernel/perf_event_paranoid")).unwrap_or_default();
        let (level, reason) = (paranoid.trim(), "a virtual machine often has none");
        log::warn!(
            "source perf: {missing} could be opened ({error}), so they are null ({reason}; perf_event_paranoid is {level})"
        );
    }

    fn read(&mut self) -> PerfMetrics {
        let (instructions, cycles) = (self.instructions.read(), self.cycles.read());
        let per_cycle = |cycles: u64| (cycles > 0).then(|| instructions.map(|count| count as f64 / cycles as f64));
        PerfMetrics {
            user_only: self.user_only,
            instructions,
            cycles,
            ipc: cycles.and_then(per_cycle).flatten(),
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
        }
    }
}

/// One event, counted for each thread that was there, and for all that these start.
struct Sum {
    /// The error is that of a thread that is there and cannot be counted: the sum would be of some threads only.
    counters: io::Result<Vec<Counter>>,
    before: Counted,
}

impl Sum {
    fn open(event: Event, threads: &BTreeSet<i32>, user_only: bool) -> Self {
        let opened = threads.iter().map(|tid| open(event.clone(), *tid, user_only));
        let opened = opened.filter(|opened| !opened.as_ref().is_err_and(has_ended));
        let all_ended = || io::Error::from_raw_os_error(libc::ESRCH);
        let counters = opened.collect::<io::Result<Vec<_>>>();
        let counters = counters.and_then(|counters| if counters.is_empty() { Err(all_ended()) } else { Ok(counters) });
        Self { counters, before: Counted::default() }
    }

    /// What was added since the last time; `None` when a part of the sum cannot be read, or nothing of it was counted.
    fn read(&mut self) -> Option<u64> {
        let mut counts = self.counters.as_mut().ok()?.iter_mut().map(|counter| counter.read_count_and_time().ok());
        let now = counts.try_fold(Counted::default(), |sum, read| Some(sum.and(&read?)))?;
        std::mem::replace(&mut self.before, now).until(&now)
    }
}

/// What counters have counted, how long their threads ran, and how long of that they were counted: those that share a
/// register take turns.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    count: u64,
    enabled: u64,
    running: u64,
}

impl Counted {
    fn and(self, read: &CountAndTime) -> Self {
        Self {
            count: self.count.saturating_add(read.count),
            enabled: self.enabled.saturating_add(read.time_enabled),
            running: self.running.saturating_add(read.time_running),
        }
    }

    /// The count from here on, as if every thread had been counted the whole time. `None` when threads ran, and none of that
    /// was counted.
    fn until(&self, now: &Self) -> Option<u64> {
        let count = u128::from(now.count.saturating_sub(self.count));
        let enabled = u128::from(now.enabled.saturating_sub(self.enabled));
        match u128::from(now.running.saturating_sub(self.running)) {
            0 => (enabled == 0).then_some(0),
            running => u64::try_from(count * enabled / running).ok(),
        }
    }
}

fn open(event: Event, tid: i32, user_only: bool) -> io::Result<Counter> {
    let mut builder = Builder::new().kind(event).observe_pid(tid).any_cpu();
    builder.inherit(true).exclude_kernel(user_only).enabled(true);
    builder.build()
}

fn can_count_kernel(threads: &BTreeSet<i32>) -> bool {
    let mut opened = threads.iter().map(|tid| open(Software::TASK_CLOCK.into(), *tid, false));
    opened.find(|opened| !opened.as_ref().is_err_and(has_ended)).is_none_or(|opened| opened.is_ok())
}

/// Whether there is no such thread any more.
fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// The threads of these processes, and those of their descendants.
fn threads_of(procfs: &Path, pids: &[i32]) -> BTreeSet<i32> {
    let mut threads = BTreeSet::new();
    pids.iter().for_each(|pid| collect_threads(procfs, *pid, &mut threads));
    threads
}

fn collect_threads(procfs: &Path, pid: i32, threads: &mut BTreeSet<i32>) {
    let tasks = std::fs::read_dir(procfs.join(pid.to_string()).join("task")).into_iter().flatten().flatten();
    for task in tasks {
        let tid = number(task.file_name().as_encoded_bytes()).and_then(|tid| i32::try_from(tid).ok());
        if !tid.is_some_and(|tid| threads.insert(tid)) {
            continue;
        }
        let children = std::fs::read(task.path().join("children")).unwrap_or_default();
        for child in words(&children).filter_map(number).filter_map(|child| i32::try_from(child).ok()) {
            collect_threads(procfs, child, threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use resource_tracker_core::ObservedJob;

    use super::*;

    #[test]
    fn a_process_that_starts_others_is_counted_with_them() {
        // It waits for a line, so that the counters are there before it begins.
        let script = "read line; i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done; echo done; read line";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let members = [shell.id() as i32];
        let job = ObservedJob::new(members[0], false, &members);
        let mut perf = Perf { procfs: "/proc".into(), counters: None };
        let mut read = |number| {
            let mut out = Sections::default();
            let second = Duration::from_secs(1);
            let tick = Tick::new(number, Instant::now(), second, second).with_job(job);
            perf.collect(&tick, &mut out).unwrap();
            out.get::<PerfMetrics>().unwrap().clone()
        };
        let is_permitted = read(0).task_clock_secs.is_some();
        let input = shell.stdin.as_mut().unwrap();
        io::Write::write_all(input, b"go\n").unwrap();
        let output = shell.stdout.as_mut().unwrap();
        io::Read::read_exact(output, &mut [0; 5]).unwrap();
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
    fn a_count_is_scaled_to_the_time_that_threads_ran_meanwhile() {
        let counted = |count, enabled, running| Counted { count, enabled, running };
        let before = counted(1000, 50, 10);
        // It was counted the whole time now, which a share of all the time so far would not say.
        assert_eq!(before.until(&counted(1600, 110, 70)), Some(600));
        assert_eq!(before.until(&counted(1600, 110, 30)), Some(1800), "a third of it");
        assert_eq!(before.until(&counted(1000, 110, 10)), None, "the others had their turn");
        assert_eq!(before.until(&before), Some(0), "nobody ran");
        assert_eq!(before.until(&counted(0, 0, 0)), Some(0), "what goes back is no count");
    }

    /// A thread that has ended is no part of it; one that is there and cannot be counted is.
    #[test]
    fn a_sum_with_a_part_that_is_missing_is_null() {
        let own = BTreeSet::from([std::process::id() as i32]);
        let mut sum = Sum::open(Software::TASK_CLOCK.into(), &own, true);
        if sum.counters.is_err() {
            eprintln!("skipped: perf events are not permitted here");
            return;
        }
        assert!(sum.read().is_some());
        let gone = BTreeSet::from([own.first().copied().unwrap(), 1 << 23]);
        assert!(Sum::open(Software::TASK_CLOCK.into(), &gone, true).read().is_some(), "a thread that has ended");
        let all_gone = BTreeSet::from([1 << 23]);
        assert_eq!(Sum::open(Software::TASK_CLOCK.into(), &all_gone, true).read(), None);
        sum.counters = Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(sum.read(), None, "there was no descriptor for one more");
    }

    #[test]
    fn a_process_that_comes_later_is_counted_from_then_on() {
        let pid = std::process::id() as i32;
        let mut perf = Perf { procfs: "/proc".into(), counters: None };
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
    }
}
