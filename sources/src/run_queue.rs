//! How long tasks that could run waited for a CPU of the machine: `/proc/schedstat`.

use resource_tracker_core::prelude::*;

use crate::procfile::ProcFile;
use crate::scan::{lines, numbers};

/// What the CPUs ran, and who waited for them: `run_queue`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct RunQueueMetrics {
    /// Time that tasks waited for a CPU, added up over the tasks. `/proc/schedstat`, field 8 of each `cpu` line
    #[schemars(transform = Delta("seconds"))]
    pub wait_secs: Option<f64>,
    /// Times that a task was given a CPU. Field 9
    #[schemars(transform = Delta("turns"))]
    pub turns: Option<u64>,
    /// How long a task waited for its turn, on average; null when none had one.
    #[schemars(transform = Gauge("milliseconds"))]
    pub wait_ms_per_turn: Option<f64>,
}

impl Section for RunQueueMetrics {
    const NAME: &'static str = "run_queue";
}

register_section!(RunQueueMetrics);
register_source!(SourceEntry::new::<RunQueueConfig>("run-queue", "How long tasks waited for a CPU of the machine"));

/// How long tasks waited for a CPU of the machine. Needs a kernel with `CONFIG_SCHED_INFO`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct RunQueueConfig {}

#[typetag::deserialize(name = "run-queue")]
impl SourceConfig for RunQueueConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(RunQueue { schedstat: ProcFile::open(host.procfs.join("schedstat"))?, before: None })))
    }

    fn is_plainly_absent(&self, host: &Host) -> bool {
        !host.procfs.join("schedstat").exists()
    }
}

struct RunQueue {
    schedstat: ProcFile,
    before: Option<Sums>,
}

/// Over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sums {
    wait_nanos: u64,
    turns: u64,
}

impl Source for RunQueue {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let now = sums(self.schedstat.read()?);
        let before = std::mem::replace(&mut self.before, now);
        *out.section() = now.zip(before).map(|(now, before)| since(now, before)).unwrap_or_default();
        Ok(())
    }
}

/// A CPU that goes offline takes its counters along; that counts as nothing.
fn since(now: Sums, before: Sums) -> RunQueueMetrics {
    let secs = now.wait_nanos.saturating_sub(before.wait_nanos) as f64 / 1e9;
    let turns = now.turns.saturating_sub(before.turns);
    RunQueueMetrics {
        wait_secs: Some(secs),
        turns: Some(turns),
        wait_ms_per_turn: (turns > 0).then(|| secs * 1e3 / turns as f64),
    }
}

/// `cpu0 0 0 0 0 0 0 RUN WAIT TURNS`: the last three in all versions that there have been.
fn sums(text: &[u8]) -> Option<Sums> {
    let cpus = lines(text).filter_map(|line| line.strip_prefix(b"cpu"));
    let each = cpus.filter_map(|line| {
        // The first is the number of the CPU.
        let mut last = numbers(line).skip(8);
        Some(Sums { wait_nanos: last.next()?, turns: last.next()? })
    });
    each.reduce(|sum, one| Sums {
        wait_nanos: sum.wait_nanos.saturating_add(one.wait_nanos),
        turns: sum.turns.saturating_add(one.turns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cpus_together() {
        let text = b"version 15\ntimestamp 4295000000\ncpu0 0 0 0 0 0 0 900 30 4\ndomain0 03 1 2 3\ncpu1 0 0 0 0 0 0 800 20 6\n";
        let (now, before) = (sums(text).unwrap(), Sums { wait_nanos: 10, turns: 2 });
        assert_eq!(now, Sums { wait_nanos: 50, turns: 10 });
        let metrics = since(Sums { wait_nanos: 4_000_010, turns: 10 }, before);
        let expected = RunQueueMetrics { wait_secs: Some(0.004), turns: Some(8), wait_ms_per_turn: Some(0.5) };
        assert_eq!(metrics, expected);
        assert_eq!(since(before, now).wait_ms_per_turn, None);
        assert_eq!(sums(b"version 15\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(cpu[0-9 ]{0,60}\n|[a-z0-9 ]{0,20}\n){0,6}") {
            sums(text.as_bytes());
        }
    }
}
