//! CPU time of the machine: `/proc/stat`, `/proc/loadavg` and the number of processes.

use std::time::Instant;

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::{CpuMetrics, cpu_list};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process_count::{ProcessCount, Tasks};
use crate::procfile::{FASTEST, ProcFile, percent, rate};
use crate::scan::{decimal, find_near, lines, number, numbers, words};

/// CPU time, per core and in total, load, and the number of processes.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct CpuConfig {}

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
    /// The reading that `cores_used` is counted from, and what it was last.
    window: Option<(Instant, Times, f64)>,
    /// The CPUs that are online.
    online: String,
    now: Stat,
    /// Ticks a second of the kernel's CPU times.
    hertz: f64,
}

impl Source for Cpu {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.now.parse(self.stat.read()?);
        // Whether a task was created since the last reading.
        let has_created = self.before.as_ref().is_none_or(|before| before.forks != self.now.forks);
        let loadavg = self.loadavg.as_mut().map(|file| file.read(tick.at, has_created));
        let (load, existing) = loadavg.unwrap_or_default();
        let tasks = existing.map(|existing| Tasks { created: self.now.forks, existing });
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
        fill(cpu, before, &self.now, self.hertz, secs);
        let cores = self.now.cpus.len() as f64;
        let (since, first, cores_used) = self.window.get_or_insert((tick.at, self.now.total, 0.0));
        if tick.at.saturating_duration_since(*since) >= FASTEST {
            let used = self.now.total.since(first);
            *cores_used = percent((used.busy() - used.steal) as f64, used.sum() as f64) / 100.0 * cores;
            (*since, *first) = (tick.at, self.now.total);
        }
        cpu.cores_used = *cores_used;
        std::mem::swap(before, &mut self.now);
        Ok(())
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
            let text = self.file.read();
            self.values = text.map(|text| (parse_loadavg(text), existing_tasks(text))).unwrap_or_default();
            self.last_read = Some(at);
        }
        self.values
    }
}

fn fill(cpu: &mut CpuMetrics, before: &Stat, now: &Stat, hertz: f64, secs: f64) {
    let used = now.total.since(&before.total);
    let cores = now.cpus.len() as f64;
    let share = |ticks: u64| percent(ticks as f64, used.sum() as f64) / 100.0 * cores;
    cpu.utilization_pct = share(used.busy());
    cpu.iowait_cores = share(used.iowait);
    cpu.steal_cores = share(used.steal);
    cpu.irq_cores = share(used.irq);
    cpu.softirq_cores = share(used.softirq);
    cpu.guest_cores = share(used.guest);
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
    cpu.context_switches_per_sec = rate(now.context_switches, before.context_switches, secs);
    cpu.forks_per_sec = rate(now.forks, before.forks, secs);
}

/// CPU times in ticks. The kernel has guest time inside user and nice as well.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
    guest: u64,
}

impl Times {
    /// The columns of a `cpu` line; old kernels have fewer.
    fn parse(columns: &[u8]) -> Self {
        let mut values = numbers(columns);
        let mut next = || values.next().unwrap_or(0);
        Self {
            user: next(),
            nice: next(),
            system: next(),
            idle: next(),
            iowait: next(),
            irq: next(),
            softirq: next(),
            steal: next(),
            guest: next() + next(),
        }
    }

    /// What was added since. Some counters (iowait, steal) can go back a little; that counts as nothing.
    fn since(&self, before: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            nice: self.nice.saturating_sub(before.nice),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
            guest: self.guest.saturating_sub(before.guest),
        }
    }

    fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq + self.steal
    }

    fn sum(&self) -> u64 {
        self.busy() + self.idle + self.iowait
    }
}

#[derive(Debug, Clone, Default)]
struct Stat {
    total: Times,
    cpus: Vec<(u64, Times)>,
    context_switches: u64,
    forks: u64,
    running: u32,
    blocked: u32,
}

impl Stat {
    fn has_cpus_of(&self, other: &Self) -> bool {
        self.cpus.iter().map(|(index, _)| index).eq(other.cpus.iter().map(|(index, _)| index))
    }

    /// Reads `/proc/stat` over what was here, keeping the list's memory.
    fn parse(&mut self, text: &[u8]) {
        self.cpus.clear();
        let count = |value: &[u8]| number(value).unwrap_or(0);
        for line in lines(text) {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let (key, rest) = (&line[..space], &line[space + 1..]);
            match key {
                b"cpu" => self.total = Times::parse(rest),
                b"ctxt" => self.context_switches = count(rest),
                b"processes" => self.forks = count(rest),
                b"procs_running" => self.running = count(rest) as u32,
                b"procs_blocked" => self.blocked = count(rest) as u32,
                _ => {
                    if let Some(index) = key.strip_prefix(b"cpu").and_then(number) {
                        self.cpus.push((index, Times::parse(rest)));
                    }
                }
            }
        }
    }
}

/// `0.31 0.25 0.32 1/105 13394`: 105.
fn existing_tasks(text: &[u8]) -> Option<u64> {
    let tasks = words(text).nth(3)?;
    number(&tasks[tasks.iter().position(|byte| *byte == b'/')? + 1..])
}

fn parse_loadavg(text: &[u8]) -> [Option<f64>; 3] {
    let mut values = words(text).map(decimal);
    std::array::from_fn(|_| values.next().flatten())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Two CPUs, of which CPU 1 is offline at first. Columns as in kernel 2.6.11 and later: `guest` is the ninth.
    const BEFORE: &str = "cpu  100 10 50 800 40 5 5 0 30 0\ncpu0 100 10 50 800 40 5 5 0 30 0\n\
                          intr 12 3\nctxt 1000\nbtime 1\nprocesses 50\nprocs_running 2\nprocs_blocked 1\nsoftirq 1 2\n";
    const AFTER: &str = "cpu  200 20 90 900 30 5 5 40 130 0\ncpu0 150 15 70 850 40 5 5 20 80 0\ncpu1 50 5 20 50 0 0 0 20 0 0\n\
                         ctxt 3000\nprocesses 60\nprocs_running 3\nprocs_blocked 0\n";

    fn host(directory: &std::path::Path) -> Host {
        Host::new(directory, directory)
    }

    fn tick(number: u64, elapsed: u64) -> Tick<'static> {
        Tick::new(number, Instant::now(), Duration::from_secs(elapsed), Duration::from_secs(1))
    }

    #[test]
    fn t_cpu_06_the_first_reading_has_no_deltas() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("stat"), BEFORE)?;
        std::fs::write(directory.path().join("loadavg"), "0.50 1.25 2.00 1/497 11947\n")?;
        std::fs::create_dir(directory.path().join("1"))?;
        std::fs::create_dir(directory.path().join("4711"))?;
        std::fs::create_dir(directory.path().join("self"))?;
        let mut source = CpuConfig::default().build(&host(directory.path()))?.ok_or(anyhow::anyhow!("absent"))?;

        let mut out = Sections::default();
        source.collect(&tick(0, 0), &mut out)?;
        let first = out.get::<CpuMetrics>().cloned().unwrap_or_default();
        assert_eq!((first.utilization_pct, first.utime_secs, first.stime_secs), (0.0, 0.0, 0.0));
        assert_eq!((first.per_core_pct, first.context_switches_per_sec), (vec![0.0], 0.0));
        assert_eq!((first.process_count, first.load_5m), (2, Some(1.25)));

        std::fs::write(directory.path().join("stat"), AFTER)?;
        source.collect(&tick(1, 2), &mut out)?;
        let second = out.get::<CpuMetrics>().cloned().unwrap_or_default();
        // Of 290 ticks 190 were busy, on two cores; guest time (the ninth column) is not added again, and iowait,
        // which went back by 10, counts as nothing.
        assert!((second.utilization_pct - 190.0 / 290.0 * 2.0).abs() < 1e-9);
        assert_eq!((second.utime_secs, second.stime_secs), (1.1, 0.4));
        assert_eq!(second.per_core_pct.len(), 2);
        assert!((second.per_core_pct[0] - 95.0 / 145.0 * 100.0).abs() < 1e-9);
        assert_eq!(second.per_core_pct[1], 0.0);
        assert_eq!((second.context_switches_per_sec, second.forks_per_sec), (1000.0, 5.0));
        assert_eq!((second.processes_running, second.processes_blocked), (2, 0));
        assert_eq!((first.per_core_cpus.as_str(), second.per_core_cpus.as_str()), ("0", "0-1"));
        assert!((second.guest_cores - 100.0 / 290.0 * 2.0).abs() < 1e-9 && second.softirq_cores == 0.0);
        Ok(())
    }

    /// A core that is busy all the time, sampled faster than the kernel counts; half of it is given to others.
    #[test]
    fn cores_used_is_smooth_where_the_ticks_of_the_kernel_are_coarse() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let start = Instant::now();
        let mut source = None;
        let (mut coarse, mut smooth) = (Vec::new(), Vec::new());
        for number in 0..60u64 {
            let ticks = number * 4 / 10;
            let line = format!("{} 0 0 0 0 0 0 {}", ticks / 2, ticks - ticks / 2);
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
        }
        assert!(coarse[30..].contains(&0.0) && coarse[30..].contains(&1.0));
        assert!(smooth[30..].iter().all(|cores| (0.4..=0.6).contains(cores)), "{smooth:?}");
        Ok(())
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::CurrentSI;
        let text = std::fs::read("/proc/stat")?;
        let mut ours = Stat::default();
        ours.parse(&text);
        let theirs = procfs::KernelStats::current()?;
        assert_eq!(ours.cpus.len(), theirs.cpu_time.len());
        assert!(theirs.total.user >= ours.total.user && theirs.total.user - ours.total.user < 1000);
        assert!(theirs.ctxt >= ours.context_switches && theirs.processes >= ours.forks);
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in prop::collection::vec(any::<u8>(), 0..300)) {
            Stat::default().parse(&text);
            parse_loadavg(&text);
        }

        #[test]
        fn utilisation_stays_within_the_cores(a in prop::array::uniform8(0u64..1 << 40), b in prop::array::uniform8(0u64..1 << 40)) {
            let line = |values: [u64; 8]| values.map(|value| value.to_string()).join(" ");
            let stat = |values| {
                let mut stat = Stat::default();
                stat.parse(format!("cpu  {0}\ncpu0 {0}\ncpu1 {0}\n", line(values)).as_bytes());
                stat
            };
            let mut cpu = CpuMetrics::default();
            fill(&mut cpu, &stat(a), &stat(b), 100.0, 1.0);
            prop_assert!((0.0..=2.0).contains(&cpu.utilization_pct));
            prop_assert!(cpu.per_core_pct.iter().all(|share| (0.0..=100.0).contains(share)));
        }
    }
}
