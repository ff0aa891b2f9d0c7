//! CPU time of the machine: `/proc/stat`, `/proc/loadavg` and the number of processes.

mod stat;

use std::time::Instant;

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source};
use resource_tracker_metrics::{CpuMetrics, cpu_list};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::process_count::{ProcessCount, Tasks};
use crate::procfile::{FASTEST, ProcFile, percent, rate};
use resource_tracker_scan::{decimal, find_near, number, words};
use stat::{Stat, Times};

/// CPU time, per core and in total, load, and the number of processes.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct CpuConfig {}

from_json!(CpuConfig);

#[typetag::deserialize(name = "cpu")]
impl SourceConfig for CpuConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Cpu {
            stat: ProcFile::open(host.procfs.join("stat"))?,
            loadavg: ProcFile::open_if_present(host.procfs.join("loadavg")).map(Loadavg::new),
            processes: ProcessCount::open(&host.procfs)?,
            before: None,
            window: None,
            online: String::new(),
            now: Stat::default(),
            deltas: CounterDeltas::new("cpu"),
            hertz: rustix::param::clock_ticks_per_second() as f64,
        })))
    }
}

register_source!(
    SourceEntry::new::<CpuConfig>("cpu", "CPU time per core and in total, load, processes").on_by_default().order(10)
);

struct Cpu {
    stat: ProcFile,
    loadavg: Option<Loadavg>,
    processes: ProcessCount,
    before: Option<Stat>,
    /// What is counted over more than the interval where that is short.
    window: Option<Window>,
    /// The CPUs that are online.
    online: String,
    now: Stat,
    deltas: CounterDeltas,
    /// Ticks a second of the kernel's CPU times.
    hertz: f64,
}

impl Source for Cpu {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.now.parse(self.stat.read()?)?;
        // Whether a task was created since the last reading.
        let has_created = self.before.as_ref().is_none_or(|before| before.forks != self.now.forks);
        let loadavg = self.loadavg.as_mut().map(|file| file.read(tick.at, has_created));
        let (load, existing) = loadavg.unwrap_or_default();
        let tasks = existing.zip(self.now.forks).map(|(existing, created)| Tasks { created, existing });
        // All that can fail comes before the counters are taken over.
        let process_count = match tick.processes {
            Some(listed) => listed.len() as u32,
            None => self.processes.read(tick.at, tasks)?,
        };

        let secs = tick.elapsed.as_secs_f64();
        let cpu = out.section::<CpuMetrics>();
        [cpu.load_1m, cpu.load_5m, cpu.load_15m] = load;
        cpu.process_count = process_count;
        // Without a reading before, every delta is against itself: 0.
        let before = self.before.get_or_insert_with(|| self.now.clone());
        if self.online.is_empty() || !before.has_cpus_of(&self.now) {
            self.online = cpu_list::text(self.now.cpus.iter().map(|(index, _)| *index));
        }
        cpu.per_core_cpus.clone_from(&self.online);
        fill(cpu, before, &self.now, self.hertz);
        let mut rate_of = |now: Option<u64>, before: Option<u64>| {
            let gained = now.zip(before).and_then(|(now, before)| self.deltas.of("/proc/stat", now, before));
            rate(gained.unwrap_or(0), 0, secs)
        };
        cpu.context_switches_per_sec = rate_of(self.now.context_switches, before.context_switches);
        cpu.forks_per_sec = rate_of(self.now.forks, before.forks);
        let window = self.window.get_or_insert_with(|| Window::new(tick.at, self.now.total));
        window.look(tick.at, &self.now);
        window.fill(cpu);
        std::mem::swap(before, &mut self.now);
        Ok(())
    }
}

/// What a few ticks of the kernel tell badly: it is counted over 100 ms at least.
struct Window {
    since: Instant,
    first: Times,
    has_been_over: bool,
    /// Cores in the last one that is over: used, without steal, and those that served interrupts, did what these had left, and
    /// ran virtual machines.
    used: f64,
    irq: f64,
    softirq: f64,
    guest: f64,
}

impl Window {
    fn new(since: Instant, first: Times) -> Self {
        Self { since, first, has_been_over: false, used: 0.0, irq: 0.0, softirq: 0.0, guest: 0.0 }
    }

    fn look(&mut self, at: Instant, now: &Stat) {
        let is_over = at.saturating_duration_since(self.since) >= FASTEST;
        // As long as none is over, what there is of the first tells more than nothing.
        if !is_over && self.has_been_over {
            return;
        }
        let times = now.total.since(&self.first);
        let cores = |ticks: u64| now.cores(ticks, &times);
        let (since, first) = if is_over { (at, now.total) } else { (self.since, self.first) };
        *self = Self {
            since,
            first,
            has_been_over: is_over,
            used: cores(times.busy() - times.steal),
            irq: cores(times.irq),
            softirq: cores(times.softirq),
            guest: cores(times.guest),
        };
    }

    fn fill(&self, cpu: &mut CpuMetrics) {
        cpu.cores_used = self.used;
        cpu.irq_cores = self.irq;
        cpu.softirq_cores = self.softirq;
        cpu.guest_cores = self.guest;
    }
}

/// `/proc/loadavg`: read at most every 100 ms while no task is created, so that a process that ends is missed for so
/// long at most.
struct Loadavg {
    file: ProcFile,
    last_read: Option<Instant>,
    /// The three averages, and how many tasks exist.
    values: ([Option<f64>; 3], Option<u64>),
}

impl Loadavg {
    fn new(file: ProcFile) -> Self {
        Self { file, last_read: None, values: Default::default() }
    }

    fn read(&mut self, at: Instant, has_created: bool) -> ([Option<f64>; 3], Option<u64>) {
        let is_old = self.last_read.is_none_or(|last| at.saturating_duration_since(last) >= FASTEST);
        if has_created || is_old {
            let values = self.file.parse(|text| Some((parse_loadavg(text)?.map(Some), existing_tasks(text))));
            self.values = values.unwrap_or_default();
            self.last_read = Some(at);
        }
        self.values
    }
}

fn fill(cpu: &mut CpuMetrics, before: &Stat, now: &Stat, hertz: f64) {
    let used = now.total.since(&before.total);
    let cores = |ticks: u64| now.cores(ticks, &used);
    cpu.utilization_pct = cores(used.busy());
    cpu.iowait_cores = cores(used.iowait);
    cpu.steal_cores = cores(used.steal);
    cpu.utime_secs = (used.user + used.nice) as f64 / hertz;
    cpu.stime_secs = used.system as f64 / hertz;
    cpu.per_core_pct.clear();
    cpu.per_core_pct.extend(now.cpus.iter().enumerate().map(|(place, (index, times))| {
        // A CPU that has just come online has no reading before.
        let before = find_near(&before.cpus, place, |(other, _)| other == index).map_or(times, |at| &before.cpus[at].1);
        let used = times.since(before);
        percent(used.busy() as f64, used.sum() as f64)
    }));
    cpu.processes_running = now.running.saturating_sub(1);
    cpu.processes_blocked = now.blocked;
}

/// `0.31 0.25 0.32 1/105 13394`: 105.
fn existing_tasks(text: &[u8]) -> Option<u64> {
    let tasks = words(text).nth(3)?;
    number(&tasks[tasks.iter().position(|byte| *byte == b'/')? + 1..])
}

fn parse_loadavg(text: &[u8]) -> Option<[f64; 3]> {
    let mut values = words(text).map_while(decimal);
    Some([values.next()?, values.next()?, values.next()?])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Two CPUs, of which CPU 1 is offline at first. Columns as in kernel 2.6.11 and later: `guest` is the ninth.
    const BEFORE: &str = "cpu  100 10 50 800 40 2 4 0 30 0\ncpu0 100 10 50 800 40 2 4 0 30 0\n\
                          intr 12 3\nctxt 1000\nbtime 1\nprocesses 50\nprocs_running 2\nprocs_blocked 1\nsoftirq 1 2\n";
    const AFTER: &str = "cpu  200 20 90 900 30 5 10 40 130 0\ncpu0 150 15 70 850 40 5 10 20 80 0\ncpu1 50 5 20 50 0 0 0 20 0 0\n\
                         ctxt 3000\nprocesses 60\nprocs_running 3\nprocs_blocked 0\n";

    fn host(directory: &std::path::Path) -> Host {
        Host::new(directory, directory)
    }

    /// What is told of one reading after the other, two seconds apart.
    struct Machine {
        directory: tempfile::TempDir,
        source: Box<dyn Source>,
        start: Instant,
        number: u32,
    }

    impl Machine {
        fn new() -> anyhow::Result<Self> {
            let directory = tempfile::tempdir()?;
            std::fs::write(directory.path().join("stat"), "")?;
            std::fs::write(directory.path().join("loadavg"), "0.50 1.25 2.00 1/497 11947\n")?;
            for process in ["1", "4711", "self"] {
                std::fs::create_dir(directory.path().join(process))?;
            }
            let source = CpuConfig::default().build(&host(directory.path()))?.ok_or(anyhow::anyhow!("absent"))?;
            Ok(Self { directory, source, start: Instant::now(), number: 0 })
        }

        fn tells(&mut self, stat: &str) -> anyhow::Result<CpuMetrics> {
            std::fs::write(self.directory.path().join("stat"), stat)?;
            let seconds = Duration::from_secs(2);
            let elapsed = if self.number == 0 { Duration::ZERO } else { seconds };
            let tick = Tick::new(self.number.into(), self.start + seconds * self.number, elapsed, seconds);
            let mut out = Sections::default();
            self.source.collect(&tick, &mut out)?;
            self.number += 1;
            out.get::<CpuMetrics>().cloned().ok_or(anyhow::anyhow!("no section"))
        }
    }

    #[test]
    fn t_cpu_06_the_first_reading_has_no_deltas() -> anyhow::Result<()> {
        let mut machine = Machine::new()?;
        let first = machine.tells(BEFORE)?;
        assert_eq!((first.utilization_pct, first.utime_secs, first.stime_secs), (0.0, 0.0, 0.0));
        assert_eq!((first.per_core_pct, first.context_switches_per_sec), (vec![0.0], 0.0));
        assert_eq!((first.process_count, first.load_5m), (2, Some(1.25)));

        let second = machine.tells(AFTER)?;
        // Of 299 ticks 199 were busy, on two cores; guest time (the ninth column) is not added again, and iowait,
        // which went back by 10, counts as nothing.
        let is = |cores: f64, ticks: f64| (cores - ticks / 299.0 * 2.0).abs() < 1e-9;
        assert!(is(second.utilization_pct, 199.0) && is(second.steal_cores, 40.0) && is(second.iowait_cores, 0.0));
        assert!(is(second.cores_used, 159.0) && is(second.irq_cores, 3.0) && is(second.softirq_cores, 6.0));
        assert!(is(second.guest_cores, 100.0));
        assert_eq!((second.utime_secs, second.stime_secs), (1.1, 0.4));
        assert_eq!(second.per_core_pct.len(), 2);
        assert!((second.per_core_pct[0] - 104.0 / 154.0 * 100.0).abs() < 1e-9);
        assert_eq!(second.per_core_pct[1], 0.0);
        assert_eq!((second.context_switches_per_sec, second.forks_per_sec), (1000.0, 5.0));
        assert_eq!((second.processes_running, second.processes_blocked), (2, 0));
        assert_eq!((first.per_core_cpus.as_str(), second.per_core_cpus.as_str()), ("0", "0-1"));
        Ok(())
    }

    #[test]
    fn a_cpu_that_goes_offline_shifts_those_after_it() -> anyhow::Result<()> {
        let line = |name: &str, busy: u64| format!("{name} {busy} 0 0 {} 0 0 0 0 0 0\n", 1000 - busy);
        let mut machine = Machine::new()?;
        machine.tells(&(line("cpu ", 60) + &line("cpu0", 10) + &line("cpu1", 20) + &line("cpu2", 30)))?;
        let cpu = machine.tells(&(line("cpu ", 160) + &line("cpu0", 20) + &line("cpu2", 130)))?;
        assert_eq!((cpu.per_core_cpus.as_str(), cpu.per_core_pct), ("0,2", vec![100.0, 100.0]), "each against itself");
        Ok(())
    }

    #[test]
    fn a_reading_with_garbage_is_left_out_and_gives_no_spike_after_it() -> anyhow::Result<()> {
        let good = |count: u64| {
            let columns = format!("{count} 0 {count} {count} 0 0 0 0 0 0");
            format!(
                "cpu  {columns}\ncpu0 {columns}\nctxt {count}\nprocesses {count}\nprocs_running 2\nprocs_blocked 0\n"
            )
        };
        let bad = [
            ("cpu  110 0", "cpu  110 junk"),
            ("cpu  110 0 110 110 0 0 0 0 0 0", "cpu  110 0 110"),
            ("cpu0 110", "cpu0 18446744073709551615"),
            ("cpu0", "cpux"),
            ("cpu  ", "gpu  "),
            ("ctxt 110", "ctxt junk"),
            ("processes 110", "processes -1"),
            ("procs_running 2", "procs_running 99999999999"),
            ("procs_blocked 0", "procs_blocked "),
        ];
        for (from, to) in bad {
            let mut machine = Machine::new()?;
            machine.tells(&good(100))?;
            let text = good(110).replace(from, to);
            assert_ne!(text, good(110));
            let error = machine.tells(&text).map_or_else(|error| error.to_string(), |cpu| format!("{cpu:?}"));
            assert!(error.starts_with("/proc/stat"), "{to}: {error}");
            assert!(machine.tells("").is_err());
            let cpu = machine.tells(&good(120))?;
            assert_eq!((cpu.utime_secs, cpu.stime_secs, cpu.context_switches_per_sec), (0.2, 0.2, 10.0), "{to}");
        }
        Ok(())
    }

    /// Of a sandbox, or after a checkpoint.
    #[test]
    fn a_counter_that_is_missing_or_begins_anew_counts_as_nothing() -> anyhow::Result<()> {
        let mut machine = Machine::new()?;
        let mut told = |rest: &str| -> anyhow::Result<_> {
            let cpu = machine.tells(&format!("cpu  9 0 9 9\ncpu0 9 0 9 9\n{rest}"))?;
            Ok((cpu.context_switches_per_sec, cpu.forks_per_sec))
        };
        assert_eq!(told("")?, (0.0, 0.0));
        assert_eq!(told("ctxt 1000\nprocesses 1000\n")?, (0.0, 0.0));
        assert_eq!(told("ctxt 10\nprocesses 1004\n")?, (0.0, 2.0));
        assert_eq!(told("ctxt 14\nprocesses 1004\n")?, (2.0, 0.0));
        Ok(())
    }

    /// A core that is busy all the time, sampled faster than the kernel counts: half of it with what interrupts left to be done,
    /// half of it is given to others.
    #[test]
    fn cores_used_is_smooth_where_the_ticks_of_the_kernel_are_coarse() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let start = Instant::now();
        let mut source = None;
        let (mut coarse, mut smooth) = (Vec::new(), Vec::new());
        for number in 0..60u64 {
            let ticks = number * 4 / 10;
            let line = format!("0 0 0 0 0 0 {} {}", ticks / 2, ticks - ticks / 2);
            std::fs::write(directory.path().join("stat"), format!("cpu  {line}\ncpu0 {line}\n"))?;
            if source.is_none() {
                source = CpuConfig::default().build(&host(directory.path()))?;
            }
            let Some(source) = &mut source else { anyhow::bail!("absent") };
            let interval = Duration::from_millis(4);
            let mut out = Sections::default();
            source.collect(&Tick::new(number, start + interval * number as u32, interval, interval), &mut out)?;
            let cpu = out.get::<CpuMetrics>().cloned().unwrap_or_default();
            coarse.push(cpu.utilization_pct);
            smooth.push(cpu.cores_used);
            assert_eq!(cpu.softirq_cores, cpu.cores_used);
        }
        assert!(coarse[30..].contains(&0.0) && coarse[30..].contains(&1.0));
        assert!(smooth[30..].iter().all(|cores| (0.4..=0.6).contains(cores)), "{smooth:?}");
        assert!(
            smooth[10..30].iter().all(|cores| (0.2..=0.8).contains(cores)),
            "also in a run that is short: {smooth:?}"
        );
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in prop::collection::vec(any::<u8>(), 0..300)) {
            parse_loadavg(&text);
        }

        #[test]
        fn utilisation_stays_within_the_cores(a in prop::array::uniform8(0u64..1 << 40), b in prop::array::uniform8(0u64..1 << 40)) {
            let line = |values: [u64; 8]| values.map(|value| value.to_string()).join(" ");
            let stat = |values| {
                let mut stat = Stat::default();
                stat.parse(format!("cpu  {0}\ncpu0 {0}\ncpu1 {0}\n", line(values)).as_bytes()).unwrap();
                stat
            };
            let mut cpu = CpuMetrics::default();
            fill(&mut cpu, &stat(a), &stat(b), 100.0);
            prop_assert!((0.0..=2.0).contains(&cpu.utilization_pct));
            prop_assert!(cpu.per_core_pct.iter().all(|share| (0.0..=100.0).contains(share)));
        }
    }
}
