//! Hardware and software counters of the job: `perf_event_open(2)`.

mod pmu;
mod sum;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::PerfMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scan::{number, words};
use pmu::Pmu;
use sum::{Cycles, Events, Sum, has_ended};

/// Hardware and software counters of the job: instructions, cycles, cache and branch misses, switches, faults.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct PerfConfig {}

#[typetag::deserialize(name = "perf")]
impl SourceConfig for PerfConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Perf { procfs: host.procfs.clone(), pmus: pmu::of_cpus(&host.sysfs), counters: None })))
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
    /// Of a machine whose CPUs are of several kinds.
    pmus: Vec<Pmu>,
    counters: Option<Counters>,
}

impl Source for Perf {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Some(job) = &tick.job else { return Ok(()) };
        // The process can come later; until it does, the job has no members, and nothing is opened.
        if self.counters.is_none() {
            self.counters = Counters::open(&self.procfs, &self.pmus, job.members);
        }
        *out.section() = self.counters.as_mut().map(Counters::read).unwrap_or_default();
        Ok(())
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
}

impl Counters {
    /// Counters of what the processes and their descendants do from now on; `None` when none of them is there. What is missing
    /// is said once.
    fn open(procfs: &Path, pmus: &[Pmu], pids: &[i32]) -> Option<Self> {
        let mut threads = threads_of(procfs, pids);
        if threads.is_empty() {
            return None;
        }
        let mut counters = Self::of(pmus, &threads);
        for _ in 1..TRIES {
            let now = threads_of(procfs, pids);
            if now.is_subset(&threads) {
                break;
            }
            // One that began before its parent was counted would be in no counter.
            threads = now;
            counters = Self::of(pmus, &threads);
        }
        counters.say_what_is_missing(procfs);
        Some(counters)
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

    fn read(&mut self) -> PerfMetrics {
        let (cycles, instructions, ipc) = self.cycles.read();
        PerfMetrics {
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
        }
    }
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
        let mut perf = Perf { procfs: "/proc".into(), pmus: Vec::new(), counters: None };
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
        let pid = std::process::id() as i32;
        let mut perf = Perf { procfs: "/proc".into(), pmus: Vec::new(), counters: None };
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
