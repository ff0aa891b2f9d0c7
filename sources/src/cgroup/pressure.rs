//! How long tasks of a cgroup waited: its `cpu.pressure`, `memory.pressure` and `io.pressure`.

use std::path::Path;

use crate::counter_deltas::CounterDeltas;
use crate::pressure::parse;
use crate::procfile::ProcFile;

/// The three files of a cgroup of v2, which needs no controller for them.
pub(super) struct Pressure {
    cpu: Resource,
    memory: Resource,
    io: Resource,
}

impl Pressure {
    /// Counts waits from now on; in a cgroup that was `made` for the job, all waits in it.
    pub(super) fn open(directory: &Path, made: bool) -> Self {
        let open = |name| Resource::open(directory, name, made);
        Self { cpu: open("cpu.pressure"), memory: open("memory.pressure"), io: open("io.pressure") }
    }

    /// The waits since the last call: for `cpu`, `memory` and `io`.
    pub(super) fn read(&mut self, deltas: &mut CounterDeltas) -> [Stalled; 3] {
        [&mut self.cpu, &mut self.memory, &mut self.io].map(|resource| resource.read(deltas))
    }
}

/// Seconds in which some tasks waited, and all that had something to do; `None` where the kernel does not say, or began
/// anew.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Stalled {
    pub(super) some: Option<f64>,
    pub(super) full: Option<f64>,
}

struct Resource {
    /// `None` where there is no such pressure.
    file: Option<ProcFile>,
    before: Option<Totals>,
}

/// Microseconds since the cgroup was made.
#[derive(Clone, Copy)]
struct Totals {
    some: u64,
    full: Option<u64>,
}

impl Resource {
    fn open(directory: &Path, name: &str, made: bool) -> Self {
        let mut resource = Self { file: ProcFile::open_if_present(directory.join(name)), before: None };
        resource.before = if made { Some(Totals { some: 0, full: Some(0) }) } else { resource.look() };
        resource
    }

    fn look(&mut self) -> Option<Totals> {
        let lines = self.file.as_mut()?.parse(parse)?;
        Some(Totals { some: lines.some.total, full: lines.full.map(|full| full.total) })
    }

    fn read(&mut self, deltas: &mut CounterDeltas) -> Stalled {
        let Some(now) = self.look() else { return Stalled::default() };
        let Some(before) = self.before.replace(now) else { return Stalled::default() };
        let mut secs = |now, before| Some(deltas.of("the pressure", now, before)? as f64 / 1e6);
        Stalled {
            some: secs(now.some, before.some),
            full: now.full.zip(before.full).and_then(|(now, before)| secs(now, before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_came_since_it_was_read_last() {
        let directory = tempfile::tempdir().unwrap();
        let holds = |some: u64, full: &str| {
            let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\n{full}");
            fs::write(directory.path().join("cpu.pressure"), text).unwrap();
        };
        let mut deltas = CounterDeltas::new("cgroup");
        let mut read = |pressure: &mut Pressure| {
            let [cpu, memory, io] = pressure.read(&mut deltas);
            assert_eq!([memory, io], [Stalled::default(); 2], "no such files");
            (cpu.some, cpu.full)
        };
        holds(5_000_000, "full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
        let [mut own, mut others] = [true, false].map(|made| Pressure::open(directory.path(), made));
        assert_eq!(read(&mut own), (Some(5.0), Some(1.0)));
        assert_eq!(read(&mut others), (Some(0.0), Some(0.0)));
        holds(7_500_000, "full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
        assert_eq!((read(&mut own), read(&mut others)), ((Some(2.5), Some(0.0)), (Some(2.5), Some(0.0))));
        // Before Linux 5.13 there is no second line for CPUs.
        holds(8_500_000, "");
        assert_eq!(read(&mut own), (Some(1.0), None));
        fs::write(directory.path().join("cpu.pressure"), "garbage\n").unwrap();
        assert_eq!(read(&mut own), (None, None));
        let mut late = Pressure::open(directory.path(), false);
        holds(9_000_000, "");
        assert_eq!((read(&mut late), read(&mut own)), ((None, None), (Some(0.5), None)));
        holds(7, "");
        assert_eq!(read(&mut own), (None, None), "it began anew");
    }
}
