//! The files of a cgroup of either version, and how they are read.

use std::path::{Path, PathBuf};

use super::hierarchy::ReportedCgroup;
use super::io::{Bytes, Io};
use super::limits::single;
use crate::job::{GroupReading, Throttling};
use crate::procfile::ProcFile;
use resource_tracker_scan::value_of;

/// Counters and gauges of the cgroup at one moment. Times are in nanoseconds, memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) cpu: Option<u64>,
    pub(super) throttling: Option<Throttling>,
    pub(super) memory: Option<u64>,
    pub(super) memory_peak: Option<u64>,
    pub(super) oom_kills: Option<u64>,
    pub(super) io: Option<Bytes>,
    pub(super) pids: Option<u64>,
}

impl Reading {
    /// The baseline of the next reading: a counter that cannot be read now keeps its last value. CPU time does not,
    /// because it becomes a rate over one interval.
    pub(super) fn or_before(self, before: &Self) -> Self {
        Self {
            throttling: self.throttling.or(before.throttling),
            oom_kills: self.oom_kills.or(before.oom_kills),
            io: self.io.or(before.io),
            ..self
        }
    }
}

/// A file that can be missing, and what its text is read as.
struct Value<T> {
    file: Option<ProcFile>,
    parse: fn(&[u8]) -> Option<T>,
}

impl<T> Value<T> {
    fn open(path: Option<PathBuf>, parse: fn(&[u8]) -> Option<T>) -> Self {
        Self { file: path.and_then(ProcFile::open_if_present), parse }
    }

    /// `None` as well when the cgroup has been removed.
    fn read(&mut self) -> Option<T> {
        self.file.as_mut()?.parse(self.parse)
    }
}

pub(super) struct Files {
    /// Of v1, which has it in a file of its own.
    throttling: Value<Throttling>,
    memory: Value<u64>,
    /// v1 has no such counter before Linux 4.13.
    oom_kills: Value<Option<u64>>,
    io: Io,
    pids: Value<u64>,
}

impl Files {
    /// The files of this cgroup and of no other.
    pub(super) fn open(cgroup: &ReportedCgroup, sysfs: &Path) -> Self {
        let v1 = |controller: &str, name: &str| cgroup.legacy(controller).map(|directory| directory.join(name));
        let v2 = |name: &str| cgroup.unified.as_ref().map(|directory| directory.join(name));
        // A controller that is mounted in v1 is not in v2.
        let pick = |controller: &str, old: &str, new: &str| v1(controller, old).or_else(|| v2(new));
        Self {
            throttling: Value::open(v1("cpu", "cpu.stat"), Throttling::parse_v1),
            memory: Value::open(pick("memory", "memory.usage_in_bytes", "memory.current"), single),
            oom_kills: Value::open(pick("memory", "memory.oom_control", "memory.events"), |text| Some(oom_kills(text))),
            io: Io::open(cgroup, sysfs),
            pids: Value::open(pick("pids", "pids.current", "pids.current"), single),
        }
    }

    /// Reads them, beside what was read of the same cgroup already.
    pub(super) fn read(&mut self, group: &GroupReading) -> Reading {
        Reading {
            cpu: group.cpu.map(|cpu| cpu.used),
            throttling: self.throttling.read().or(group.cpu.and_then(|cpu| cpu.throttling)),
            memory: self.memory.read(),
            memory_peak: group.memory_peak,
            oom_kills: self.oom_kills.read().flatten(),
            io: self.io.read(),
            pids: self.pids.read(),
        }
    }
}

pub(super) fn oom_kills(text: &[u8]) -> Option<u64> {
    value_of(text, "oom_kill")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn v2() {
        assert_eq!(oom_kills(b"low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
    }

    #[test]
    fn v1() {
        assert_eq!(oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            oom_kills(&text);
        }
    }
}
