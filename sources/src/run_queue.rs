//! How long tasks that could run waited for a CPU of the machine: `/proc/schedstat`.

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::RunQueueMetrics;

use crate::counter_deltas::CounterDeltas;
use crate::procfile::ProcFile;
use resource_tracker_scan::{find_near, lines, numbers};

register_source!(SourceEntry::new::<RunQueueConfig>("run-queue", "How long tasks waited for a CPU of the machine"));

/// How long tasks waited for a CPU of the machine. Needs a kernel with `CONFIG_SCHED_INFO`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct RunQueueConfig {}

from_json!(RunQueueConfig);

#[typetag::deserialize(name = "run-queue")]
impl SourceConfig for RunQueueConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(RunQueue {
            schedstat: ProcFile::open(host.procfs.join("schedstat"))?,
            cpus: Vec::new(),
            deltas: CounterDeltas::new("run-queue"),
        })))
    }

    fn is_plainly_absent(&self, host: &Host) -> bool {
        !host.procfs.join("schedstat").exists()
    }
}

struct RunQueue {
    schedstat: ProcFile,
    /// Those of a CPU that is offline go on when it comes back.
    cpus: Vec<Cpu>,
    deltas: CounterDeltas,
}

/// What is counted of one since it first came up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cpu {
    number: u64,
    wait_nanos: u64,
    turns: u64,
}

impl Source for RunQueue {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        *out.section() = since(self.schedstat.read_to_end()?, &mut self.cpus, &mut self.deltas);
        Ok(())
    }
}

/// What came since these were read, which become those of now. One that is new begins now; where one began anew, the sum is
/// not known.
fn since(text: &[u8], cpus: &mut Vec<Cpu>, deltas: &mut CounterDeltas) -> RunQueueMetrics {
    let (mut wait_nanos, mut turns) = (0u64, 0u64);
    let (mut was_known, mut has_fallen) = (false, false);
    for (place, now) in lines(text).filter_map(parse_line).enumerate() {
        let Some(known) = find_near(cpus, place, |cpu| cpu.number == now.number) else {
            cpus.push(now);
            continue;
        };
        let before = std::mem::replace(&mut cpus[known], now);
        let mut gained = |now, before| deltas.of("/proc/schedstat", now, before);
        match (gained(now.wait_nanos, before.wait_nanos), gained(now.turns, before.turns)) {
            (Some(nanos), Some(more)) => {
                wait_nanos = wait_nanos.saturating_add(nanos);
                turns = turns.saturating_add(more);
            }
            _ => has_fallen = true,
        }
        was_known = true;
    }
    if !was_known || has_fallen {
        return RunQueueMetrics::default();
    }
    let secs = wait_nanos as f64 / 1e9;
    RunQueueMetrics {
        wait_secs: Some(secs),
        turns: Some(turns),
        wait_ms_per_turn: (turns > 0).then(|| secs * 1e3 / turns as f64),
    }
}

/// `cpu0 0 0 0 0 0 0 RUN WAIT TURNS`: the last three in all versions that there have been.
fn parse_line(line: &[u8]) -> Option<Cpu> {
    let mut numbers = numbers(line.strip_prefix(b"cpu")?);
    Some(Cpu { number: numbers.next()?, wait_nanos: numbers.nth(7)?, turns: numbers.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cpus_together() {
        let text = |wait: u64| {
            format!(
                "version 15\ntimestamp 4295000000\ncpu0 0 0 0 0 0 0 900 {wait} 4\ndomain0 03 1 2 3\ncpu1 0 0 0 0 0 0 800 20 6\n"
            )
        };
        let mut cpus = vec![Cpu { number: 0, wait_nanos: 10, turns: 1 }, Cpu { number: 1, wait_nanos: 20, turns: 1 }];
        let expected = RunQueueMetrics { wait_secs: Some(0.004), turns: Some(8), wait_ms_per_turn: Some(0.5) };
        let mut deltas = CounterDeltas::new("run-queue");
        let mut since = |text: &[u8], cpus: &mut Vec<Cpu>| since(text, cpus, &mut deltas);
        assert_eq!(since(text(4_000_010).as_bytes(), &mut cpus), expected);
        assert_eq!((cpus[0].wait_nanos, cpus[1].turns), (4_000_010, 6));
        let none = RunQueueMetrics { wait_secs: Some(0.0), turns: Some(0), wait_ms_per_turn: None };
        assert_eq!(since(text(4_000_010).as_bytes(), &mut cpus), none);
        assert_eq!(since(text(30).as_bytes(), &mut cpus), RunQueueMetrics::default(), "it began anew");
        assert_eq!(since(text(30).as_bytes(), &mut cpus), none);
        assert_eq!(since(b"version 15\n", &mut cpus), RunQueueMetrics::default());
    }

    #[test]
    fn a_cpu_that_comes_back_brings_nothing_of_before() {
        let directory = tempfile::tempdir().unwrap();
        let write = |cpus: &[(u64, u64)]| {
            let line = |(cpu, nanos): &(u64, u64)| format!("cpu{cpu} 0 0 0 0 0 0 900 {nanos} {}\n", nanos / 1_000_000);
            let text: String = cpus.iter().map(line).collect();
            std::fs::write(directory.path().join("schedstat"), format!("version 15\n{text}")).unwrap();
        };
        write(&[(0, 1_000_000), (1, 500_000_000)]);
        let host = Host::new(directory.path(), directory.path());
        let mut source = RunQueueConfig {}.build(&host).unwrap().unwrap();
        let second = std::time::Duration::from_secs(1);
        let mut out = Sections::default();
        let mut waited = |cpus: &[(u64, u64)]| {
            write(cpus);
            source.collect(&Tick::new(1, std::time::Instant::now(), second, second), &mut out).unwrap();
            let metrics = out.get::<RunQueueMetrics>().cloned().unwrap_or_default();
            (metrics.wait_secs, metrics.turns)
        };
        assert_eq!(waited(&[(0, 1_000_000), (1, 500_000_000)]), (None, None));
        assert_eq!(waited(&[(0, 3_000_000)]), (Some(0.002), Some(2)), "CPU 1 is offline");
        assert_eq!(waited(&[(0, 4_000_000), (1, 502_000_000)]), (Some(0.003), Some(3)), "it is back");
        assert_eq!(waited(&[(0, 4_000_000), (1, 502_000_000), (2, 9_000_000)]), (Some(0.0), Some(0)), "a new one");
        assert_eq!(waited(&[(0, 4_000_000), (1, 503_000_000), (2, 10_000_000)]), (Some(0.002), Some(2)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(cpu[0-9 ]{0,60}\n|[a-z0-9 ]{0,20}\n){0,6}") {
            since(text.as_bytes(), &mut Vec::new(), &mut CounterDeltas::new("run-queue"));
        }
    }
}
