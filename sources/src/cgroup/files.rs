//! The files that are read of a cgroup, of either version, and what they mean.

use std::path::PathBuf;

use super::hierarchy::ReportedCgroup;
use super::limits::single;
use super::memory_stat::MemoryStat;
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
pub(super) struct Throttling {
    pub(super) periods: u64,
    pub(super) throttled: u64,
    pub(super) time: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
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
        (self.parse)(self.file.as_mut()?.read().ok()?)
    }
}

/// What one file says of CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cpu {
    used: Option<u64>,
    throttling: Option<Throttling>,
}

pub(super) struct Files {
    cpu: Value<Cpu>,
    /// Of v1, which has a file of its own.
    throttling: Value<Throttling>,
    memory: Value<u64>,
    memory_peak: Value<u64>,
    memory_stat: Value<MemoryStat>,
    oom_kills: Value<u64>,
    io: Value<Bytes>,
    pids: Value<u64>,
}

impl Files {
    /// The files of this cgroup and of no other.
    pub(super) fn open(cgroup: &ReportedCgroup) -> Self {
        let v1 = |controller: &str, name: &str| cgroup.legacy(controller).map(|directory| directory.join(name));
        let v2 = |name: &str| cgroup.unified.as_ref().map(|directory| directory.join(name));
        // What v1 has mounted, v2 does not have; CPU time is there in v2 always.
        let pick = |controller: &str, old: &str, new: &str| v1(controller, old).or_else(|| v2(new));
        Self {
            cpu: match v2("cpu.stat") {
                Some(path) => Value::open(Some(path), cpu_v2),
                None => Value::open(v1("cpuacct", "cpuacct.usage"), cpu_v1),
            },
            throttling: Value::open(v1("cpu", "cpu.stat"), throttling_v1),
            memory: Value::open(pick("memory", "memory.usage_in_bytes", "memory.current"), single),
            memory_peak: Value::open(pick("memory", "memory.max_usage_in_bytes", "memory.peak"), single),
            memory_stat: match v1("memory", "memory.stat") {
                Some(path) => Value::open(Some(path), MemoryStat::parse_v1),
                None => Value::open(v2("memory.stat"), MemoryStat::parse_v2),
            },
            oom_kills: Value::open(pick("memory", "memory.oom_control", "memory.events"), oom_kills),
            io: match v1("blkio", "blkio.throttle.io_service_bytes_recursive") {
                Some(path) => Value::open(Some(path), io_v1),
                None => Value::open(v2("io.stat"), io_v2),
            },
            pids: Value::open(pick("pids", "pids.current", "pids.current"), single),
        }
    }

    /// Costs more than the others.
    pub(super) fn read_memory_stat(&mut self) -> Option<MemoryStat> {
        self.memory_stat.read()
    }

    pub(super) fn read(&mut self) -> Reading {
        let cpu = self.cpu.read().unwrap_or_default();
        Reading {
            cpu: cpu.used,
            throttling: self.throttling.read().or(cpu.throttling),
            memory: self.memory.read(),
            memory_peak: self.memory_peak.read(),
            oom_kills: self.oom_kills.read(),
            io: self.io.read(),
            pids: self.pids.read(),
        }
    }
}

fn cpu_v1(text: &[u8]) -> Option<Cpu> {
    Some(Cpu { used: single(text), throttling: None })
}

fn cpu_v2(text: &[u8]) -> Option<Cpu> {
    let used = value_of(text, "usage_usec").and_then(|micros| micros.checked_mul(1000));
    Some(Cpu { used, throttling: throttling_v2(text) })
}

fn throttling_v2(text: &[u8]) -> Option<Throttling> {
    let time = value_of(text, "throttled_usec")?.checked_mul(1000)?;
    Some(Throttling { periods: value_of(text, "nr_periods")?, throttled: value_of(text, "nr_throttled")?, time })
}

fn throttling_v1(text: &[u8]) -> Option<Throttling> {
    let time = value_of(text, "throttled_time")?;
    Some(Throttling { periods: value_of(text, "nr_periods")?, throttled: value_of(text, "nr_throttled")?, time })
}

pub(super) fn oom_kills(text: &[u8]) -> Option<u64> {
    value_of(text, "oom_kill")
}

/// `8:0 rbytes=1 wbytes=2 rios=…`, a line for each device.
fn io_v2(text: &[u8]) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for word in lines(text).flat_map(|line| words(line).skip(1)) {
        let value = |key: &[u8]| word.strip_prefix(key).and_then(number);
        sum.read = sum.read.saturating_add(value(b"rbytes=").unwrap_or(0));
        sum.written = sum.written.saturating_add(value(b"wbytes=").unwrap_or(0));
    }
    Some(sum)
}

/// `8:0 Read 1`, `8:0 Write 2` and others for each device, and `Total 3`.
fn io_v1(text: &[u8]) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let mut words = words(line).skip(1);
        let (Some(kind), Some(value)) = (words.next(), words.next().and_then(number)) else { continue };
        match kind {
            b"Read" => sum.read = sum.read.saturating_add(value),
            b"Write" => sum.written = sum.written.saturating_add(value),
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
        let cpu = b"usage_usec 9000\nuser_usec 1\nsystem_usec 2\nnr_periods 10\nnr_throttled 4\nthrottled_usec 70\n";
        let throttling = Some(Throttling { periods: 10, throttled: 4, time: 70_000 });
        assert_eq!(cpu_v2(cpu), Some(Cpu { used: Some(9_000_000), throttling }));
        let without_quota = b"usage_usec 9000\nuser_usec 1\nsystem_usec 2\n";
        assert_eq!(cpu_v2(without_quota), Some(Cpu { used: Some(9_000_000), throttling: None }));
        assert_eq!(oom_kills(b"low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        let io = b"8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n259:0 rbytes=1 wbytes=2\n";
        assert_eq!(io_v2(io), Some(Bytes { read: 11, written: 22 }));
    }

    #[test]
    fn v1() {
        let cpu = b"nr_periods 10\nnr_throttled 4\nthrottled_time 70\n";
        assert_eq!(throttling_v1(cpu), Some(Throttling { periods: 10, throttled: 4, time: 70 }));
        let io = b"8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Total 30\n8:16 Read 1\nTotal 31\n";
        assert_eq!(io_v1(io), Some(Bytes { read: 11, written: 20 }));
        assert_eq!(oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            oom_kills(&text);
            throttling_v1(&text);
            cpu_v2(&text);
            io_v1(&text);
            io_v2(&text);
        }
    }
}
