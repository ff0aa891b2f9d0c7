//! Pressure stall information: `/proc/pressure/cpu`, `memory` and `io`.

use std::path::PathBuf;
use std::time::Instant;

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::{PressureMetrics, ResourcePressure, Stall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{FASTEST, ProcFile, percent};
use resource_tracker_scan::{decimal, lines, number, words};

/// How long tasks waited for CPU, memory and storage.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct PressureConfig {}

from_json!(PressureConfig);

#[typetag::deserialize(name = "pressure")]
impl SourceConfig for PressureConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        // With `psi=0` the files are there and opening them fails.
        let open = |name| Resource::open(host.procfs.join("pressure").join(name));
        let [cpu, memory, io, irq] = ["cpu", "memory", "io", "irq"].map(open);
        let pressure = Pressure { cpu, memory, io, irq, deltas: CounterDeltas::new("pressure") };
        let here = [&pressure.cpu, &pressure.memory, &pressure.io, &pressure.irq]
            .iter()
            .any(|resource| resource.file.is_some());
        Ok(if here { Some(Box::new(pressure)) } else { None })
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(Cadence::Every(FASTEST))
    }
}

register_source!(
    SourceEntry::new::<PressureConfig>("pressure", "Time that tasks waited for CPU, memory and storage (PSI)")
        .on_by_default()
        .order(60)
);

struct Pressure {
    cpu: Resource,
    memory: Resource,
    io: Resource,
    irq: Resource,
    deltas: CounterDeltas,
}

impl Source for Pressure {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Self { cpu, memory, io, irq, deltas } = self;
        let mut read = |resource: &mut Resource| resource.read(tick.at, deltas);
        let cpu = read(cpu).map(|cpu| ResourcePressure { full: None, ..cpu });
        let irq = read(irq).and_then(|irq| irq.full);
        *out.section() = PressureMetrics { cpu, memory: read(memory), io: read(io), irq };
        Ok(())
    }
}

struct Resource {
    file: Option<ProcFile>,
    /// What it said last, and when.
    before: Option<(Lines, Instant)>,
}

impl Resource {
    fn open(path: PathBuf) -> Self {
        Self { file: ProcFile::open_if_present(path), before: None }
    }

    /// `None` where the kernel does not say, or began anew; a file that fails once is tried again at the next tick.
    fn read(&mut self, at: Instant, deltas: &mut CounterDeltas) -> Option<ResourcePressure> {
        let now = self.file.as_mut()?.parse(parse)?;
        let (before, then) = self.before.replace((now, at)).unwrap_or((now, at));
        let micros = at.saturating_duration_since(then).as_secs_f64() * 1e6;
        let mut stall = |now: Line, before: Line| {
            let waited = deltas.of("/proc/pressure", now.total, before.total)?;
            Some(Stall { avg10_pct: now.avg10, interval_pct: percent(waited as f64, micros).min(100.0) })
        };
        Some(ResourcePressure {
            some: stall(now.some, before.some)?,
            full: now.full.and_then(|full| stall(full, before.full.unwrap_or(full))),
        })
    }
}

/// What a file of pressure says, of the machine or of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lines {
    pub(crate) some: Line,
    pub(crate) full: Option<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    avg10: f64,
    /// Microseconds.
    pub(crate) total: u64,
}

pub(crate) fn parse(text: &[u8]) -> Option<Lines> {
    let line = |kind: &[u8]| {
        let line = lines(text).find(|line| words(line).next() == Some(kind))?;
        let field = |key: &[u8]| words(line).find_map(|word| word.strip_prefix(key));
        Some(Line { avg10: decimal(field(b"avg10=")?)?, total: number(field(b"total=")?)? })
    };
    // Of interrupts there is no `some`.
    let full = line(b"full");
    Some(Lines { some: line(b"some").or(full)?, full })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_share_of_the_interval_is_the_growth_of_the_total() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("io");
        std::fs::write(
            &path,
            "some avg10=1.50 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=500000\n",
        )?;
        let (mut resource, mut deltas) = (Resource::open(path.clone()), CounterDeltas::new("pressure"));
        let start = Instant::now();
        let mut read = |seconds| resource.read(start + Duration::from_secs(seconds), &mut deltas);
        assert_eq!(read(0).map(|pressure| pressure.some.interval_pct), Some(0.0));
        std::fs::write(
            &path,
            "some avg10=2.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=600000\n",
        )?;
        let pressure = read(1);
        assert_eq!(pressure.map(|pressure| pressure.some), Some(Stall { avg10_pct: 2.0, interval_pct: 50.0 }));
        assert_eq!(pressure.and_then(|pressure| pressure.full).map(|full| full.interval_pct), Some(10.0));
        // What is read after it could not be read covers all the time since.
        std::fs::write(&path, "")?;
        assert!(read(2).is_none());
        std::fs::write(&path, "some avg10=2.00 avg60=0.00 avg300=0.00 total=2100000\n")?;
        let pressure = read(3);
        assert_eq!(pressure.map(|pressure| pressure.some.interval_pct), Some(30.0));
        std::fs::write(&path, "some avg10=2.00 avg60=0.00 avg300=0.00 total=7\n")?;
        assert!(read(4).is_none(), "it began anew");
        assert_eq!(read(5).map(|pressure| pressure.some.interval_pct), Some(0.0));
        Ok(())
    }

    /// The kernel prints zeros: that nobody of a whole machine has a CPU is not defined. Of interrupts there is only `full`.
    #[test]
    fn the_cpus_of_a_machine_have_no_full() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        std::fs::create_dir(root.path().join("pressure"))?;
        let write = |name: &str, kinds: &[&str], total: u64| {
            let line = |kind: &&str| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
            std::fs::write(root.path().join("pressure").join(name), kinds.iter().map(line).collect::<String>())
        };
        write("cpu", &["some", "full"], 0)?;
        write("memory", &["some", "full"], 0)?;
        write("irq", &["full"], 1_000_000)?;
        let mut source = PressureConfig::default().build(&Host::new(root.path(), root.path()))?.unwrap();
        let (mut out, start, second) = (Sections::default(), Instant::now(), Duration::from_secs(1));
        source.collect(&Tick::new(0, start, Duration::ZERO, second), &mut out)?;
        let metrics = out.get::<PressureMetrics>().unwrap();
        assert_eq!(metrics.cpu.and_then(|cpu| cpu.full), None);
        assert!(metrics.memory.and_then(|memory| memory.full).is_some());
        write("irq", &["full"], 1_250_000)?;
        source.collect(&Tick::new(1, start + second, second, second), &mut out)?;
        let irq = out.get::<PressureMetrics>().and_then(|metrics| metrics.irq);
        assert_eq!(irq, Some(Stall { avg10_pct: 0.0, interval_pct: 25.0 }));
        Ok(())
    }

    #[test]
    fn cpu_before_5_13_has_no_full() {
        let lines = parse(b"some avg10=0.10 avg60=2.00 avg300=3.85 total=15\n");
        assert_eq!(lines, Some(Lines { some: Line { avg10: 0.1, total: 15 }, full: None }));
    }

    #[test]
    fn interrupts_have_only_full() {
        let line = Line { avg10: 0.1, total: 15 };
        assert_eq!(parse(b"full avg10=0.10 avg60=0 avg300=0 total=15\n"), Some(Lines { some: line, full: Some(line) }));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((some|full|x) (avg10=|total=|y)?[0-9.a]{0,5} (total=)?[0-9]{0,4}\n){0,4}") {
            parse(text.as_bytes());
        }
    }
}
