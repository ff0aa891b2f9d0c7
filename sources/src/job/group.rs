//! What the kernel counts of a cgroup: CPU time and memory. The cgroup of the job is read once a tick, for all sources
//! that use it.

use std::path::Path;
use std::time::Instant;

use super::cpu_stat::CpuStat;
use super::memory_stat::MemoryStat;
use super::tracked::JobCgroup;
use crate::procfile::{FASTEST, ProcFile};
use resource_tracker_scan::{number, words};

/// As of a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupReading {
    /// Of all that ever ran in it.
    pub(crate) cpu: Option<CpuStat>,
    /// The most bytes that were charged to it at one time, page cache included.
    pub(crate) memory_peak: Option<u64>,
    pub(crate) memory_stat: Option<MemoryStat>,
    /// When `memory.stat` was read, which is not at every tick.
    pub(crate) memory_stat_at: Option<Instant>,
}

/// The files of it that are open.
#[derive(Default)]
pub(crate) struct Group {
    cpu: Option<CpuFile>,
    memory: Option<MemoryFiles>,
    reading: GroupReading,
    /// The peak when `memory.stat` was read.
    peak_before: Option<u64>,
}

enum CpuFile {
    /// `cpu.stat` is there without any controller.
    Unified(ProcFile),
    Cpuacct {
        usage: ProcFile,
        stat: ProcFile,
    },
}

struct MemoryFiles {
    /// Kernels before 5.19 have none in v2.
    peak: Option<ProcFile>,
    stat: Option<ProcFile>,
    parse_stat: fn(&[u8]) -> Option<MemoryStat>,
}

impl Group {
    pub(crate) fn open(cgroup: &JobCgroup) -> Self {
        Self { cpu: CpuFile::open(cgroup), memory: MemoryFiles::open(cgroup), ..Self::default() }
    }

    pub(crate) fn reading(&self) -> &GroupReading {
        &self.reading
    }

    /// Reads again. `anon` is the most anonymous memory, in bytes, that one process was seen with: where that is more than
    /// the peak, what is known of it is too old.
    ///
    /// # Errors
    /// Once, when the cgroup has been removed.
    pub(crate) fn read(&mut self, anon: u64, now: Instant, last: bool) -> anyhow::Result<()> {
        self.read_memory(anon, now, last);
        self.reading.cpu = None;
        self.reading.cpu = self.read_cpu()?;
        Ok(())
    }

    fn read_memory(&mut self, anon: u64, now: Instant, last: bool) {
        let Some(files) = &mut self.memory else { return };
        self.reading.memory_peak = files.peak.as_mut().and_then(|file| file.parse(|text| number(words(text).next()?)));
        let is_due = |at| now.saturating_duration_since(at) >= FASTEST;
        let is_outgrown = self.peak_before.is_some_and(|peak| anon > peak);
        if last || is_outgrown || self.reading.memory_stat_at.is_none_or(is_due) {
            self.peak_before = self.reading.memory_peak;
            // After the peak, so that no page cache which came meanwhile counts.
            self.reading.memory_stat = files.stat.as_mut().and_then(|file| file.parse(files.parse_stat));
            self.reading.memory_stat_at = Some(now);
        }
    }

    fn read_cpu(&mut self) -> anyhow::Result<Option<CpuStat>> {
        let read = match &mut self.cpu {
            None => Ok(None),
            Some(CpuFile::Unified(file)) => file.try_parse(CpuStat::parse_v2),
            Some(CpuFile::Cpuacct { usage, stat }) => {
                usage.read().and_then(|usage| stat.try_parse(|stat| CpuStat::parse_v1(usage, stat)))
            }
        };
        read.inspect_err(|_| self.cpu = None)
    }
}

impl CpuFile {
    fn open(cgroup: &JobCgroup) -> Option<Self> {
        let open = |directory: &Path, name: &str| ProcFile::open_if_present(directory.join(name));
        let unified = cgroup.unified.as_deref().and_then(|directory| open(directory, "cpu.stat"));
        let cpuacct = || {
            let directory = cgroup.cpuacct.as_deref()?;
            Some(Self::Cpuacct { usage: open(directory, "cpuacct.usage")?, stat: open(directory, "cpuacct.stat")? })
        };
        unified.map(Self::Unified).or_else(cpuacct)
    }
}

impl MemoryFiles {
    fn open(cgroup: &JobCgroup) -> Option<Self> {
        let open = |directory: &Path, peak, parse_stat| Self {
            peak: ProcFile::open_if_present(directory.join(peak)),
            stat: ProcFile::open_if_present(directory.join("memory.stat")),
            parse_stat,
        };
        // What v1 has mounted, v2 does not have.
        let v1 = cgroup.memory.as_deref().map(|v1| open(v1, "memory.max_usage_in_bytes", MemoryStat::parse_v1));
        v1.or_else(|| cgroup.unified.as_deref().map(|v2| open(v2, "memory.peak", MemoryStat::parse_v2)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_that_disappears_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = JobCgroup { unified: Some(directory.path().into()), ..JobCgroup::default() };
        let cpu = || {
            let mut group = Group::open(&cgroup);
            group.read(0, Instant::now(), false).unwrap();
            group.reading().cpu
        };
        assert_eq!(cpu(), None, "no controller");
        fs::write(
            directory.path().join("cpu.stat"),
            "usage_usec 1
user_usec 1
",
        )
        .unwrap();
        assert!(cpu().is_some());
    }

    #[test]
    fn what_is_in_it_is_read_seldom_and_whenever_it_must() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = JobCgroup { unified: Some(directory.path().into()), ..JobCgroup::default() };
        let holds = |peak: u64, anon: u64| {
            fs::write(
                directory.path().join("memory.peak"),
                format!(
                    "{peak}
"
                ),
            )
            .unwrap();
            let stat = format!(
                "anon {anon}
file 0
shmem 0
"
            );
            fs::write(directory.path().join("memory.stat"), stat).unwrap();
        };
        holds(20, 10);
        let mut group = Group::open(&cgroup);
        let start = Instant::now();
        let mut read = |largest, millis, last| {
            group.read(largest, start + Duration::from_millis(millis), last).unwrap();
            let GroupReading { memory_peak, memory_stat, .. } = group.reading();
            (memory_peak.unwrap(), memory_stat.unwrap().anon)
        };
        assert_eq!(read(10, 0, false), (20, 10));
        holds(30, 15);
        assert_eq!(read(15, 10, false), (30, 10));
        assert_eq!(read(15, 100, false), (30, 15));
        holds(5000, 4000);
        assert_eq!(read(4000, 110, false), (5000, 4000), "one process has outgrown it");
        holds(5000, 200);
        assert_eq!(read(4000, 120, false), (5000, 4000));
        assert_eq!(read(4000, 130, true), (5000, 200));
    }
}
