//! The files of a cgroup of either version, and how they are read.

use std::path::PathBuf;

use super::hierarchy::ReportedCgroup;
use super::limits::single;
use crate::job::{GroupReading, Throttling};
use crate::procfile::ProcFile;
use crate::scan::{lines, number, value_of, words};

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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
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
    io: Value<Bytes>,
    pids: Value<u64>,
}

impl Files {
    /// The files of this cgroup and of no other.
    pub(super) fn open(cgroup: &ReportedCgroup) -> Self {
        let v1 = |controller: &str, name: &str| cgroup.legacy(controller).map(|directory| directory.join(name));
        let v2 = |name: &str| cgroup.unified.as_ref().map(|directory| directory.join(name));
        // A controller that is mounted in v1 is not in v2.
        let pick = |controller: &str, old: &str, new: &str| v1(controller, old).or_else(|| v2(new));
        Self {
            throttling: Value::open(v1("cpu", "cpu.stat"), Throttling::parse_v1),
            memory: Value::open(pick("memory", "memory.usage_in_bytes", "memory.current"), single),
            oom_kills: Value::open(pick("memory", "memory.oom_control", "memory.events"), |text| Some(oom_kills(text))),
            io: match v1("blkio", "blkio.throttle.io_service_bytes_recursive") {
                Some(path) => Value::open(Some(path), io_v1),
                None => Value::open(v2("io.stat"), io_v2),
            },
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

/// `8:0 rbytes=1 wbytes=2 rios=…`, a line for each device. `None` when one cannot be read.
fn io_v2(text: &[u8]) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for word in lines(text).flat_map(|line| words(line).skip(1)) {
        if let Some(value) = word.strip_prefix(b"rbytes=") {
            sum.read = sum.read.saturating_add(number(value)?);
        } else if let Some(value) = word.strip_prefix(b"wbytes=") {
            sum.written = sum.written.saturating_add(number(value)?);
        }
    }
    Some(sum)
}

/// `8:0 Read 1`, `8:0 Write 2` and others for each device, and `Total 3`. `None` when one cannot be read.
fn io_v1(text: &[u8]) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let mut words = words(line).skip(1);
        match words.next() {
            Some(b"Read") => sum.read = sum.read.saturating_add(number(words.next()?)?),
            Some(b"Write") => sum.written = sum.written.saturating_add(number(words.next()?)?),
            _ => (),
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn v2() {
        assert_eq!(oom_kills(b"low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        let io = b"8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n259:0 rbytes=1 wbytes=2\n";
        assert_eq!(io_v2(io), Some(Bytes { read: 11, written: 22 }));
        assert_eq!((io_v2(b"8:0 rbytes=x wbytes=20\n"), io_v2(b"")), (None, Some(Bytes::default())));
    }

    #[test]
    fn v1() {
        let io = b"8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Total 30\n8:16 Read 1\nTotal 31\n";
        assert_eq!(io_v1(io), Some(Bytes { read: 11, written: 20 }));
        assert_eq!((io_v1(b"8:0 Read 1\n8:0 Write\n"), io_v1(b"Total 0\n")), (None, Some(Bytes::default())));
        assert_eq!(oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            oom_kills(&text);
            io_v1(&text);
            io_v2(&text);
        }
    }
}
