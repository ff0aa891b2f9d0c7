//! Memory of the machine: `/proc/meminfo`, and major faults from `/proc/vmstat`.

use std::time::Instant;

use anyhow::Context;
use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source};
use resource_tracker_metrics::MemoryMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{FASTEST, ProcFile, percent, rate, unreadable};
use resource_tracker_scan::{lines, number, value_of, words};

/// Memory and swap.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct MemoryConfig {}

from_json!(MemoryConfig);

#[typetag::deserialize(name = "memory")]
impl SourceConfig for MemoryConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let meminfo = ProcFile::open(host.procfs.join("meminfo"))?;
        Ok(Some(Box::new(Memory {
            meminfo,
            arcstats: ProcFile::open_if_present(host.procfs.join("spl/kstat/zfs/arcstats")),
            faults: ProcFile::open_if_present(host.procfs.join("vmstat")).map(Faults::new),
        })))
    }
}

register_source!(
    SourceEntry::new::<MemoryConfig>("memory", "Memory and swap of the machine").on_by_default().order(30)
);

struct Memory {
    meminfo: ProcFile,
    /// Of ZFS.
    arcstats: Option<ProcFile>,
    faults: Option<Faults>,
}

/// `pgmajfault` of `/proc/vmstat`, a file that takes long to print: it is read at most every 100 ms.
struct Faults {
    vmstat: ProcFile,
    before: Option<(u64, Instant)>,
    rate: Option<f64>,
    deltas: CounterDeltas,
}

impl Faults {
    fn new(vmstat: ProcFile) -> Self {
        Self { vmstat, before: None, rate: None, deltas: CounterDeltas::new("memory") }
    }

    fn rate(&mut self, now: Instant) -> Option<f64> {
        let passed = self.before.map(|(_, at)| now.saturating_duration_since(at));
        if passed.is_none_or(|passed| passed >= FASTEST) {
            let count = self.vmstat.parse(|text| value_of(text, "pgmajfault"))?;
            let (before, _) = self.before.replace((count, now)).unwrap_or((count, now));
            let secs = passed.unwrap_or_default().as_secs_f64();
            self.rate = self.deltas.of("/proc/vmstat", count, before).map(|gained| rate(gained, 0, secs));
        }
        self.rate
    }
}

impl Source for Memory {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let info = Meminfo::parse(self.meminfo.read()?)?;
        let memory = out.section::<MemoryMetrics>();
        *memory = info.metrics();
        memory.zfs_arc_mib = self.arcstats.as_mut().and_then(|file| file.parse(arc_size));
        memory.major_faults_per_sec = self.faults.as_mut().and_then(|faults| faults.rate(tick.at));
        Ok(())
    }
}

/// The lines of `/proc/meminfo` that are used, in KiB.
#[derive(Debug, Default, PartialEq)]
struct Meminfo {
    total: u64,
    free: u64,
    available: Option<u64>,
    buffers: u64,
    cached: u64,
    reclaimable: u64,
    swap_total: u64,
    swap_free: u64,
    active: u64,
    inactive: u64,
    shared: u64,
    zswap: Option<u64>,
    /// Pages.
    huge_total: u64,
    huge_free: u64,
    huge_reserved: u64,
    huge_size: u64,
}

impl Meminfo {
    /// # Errors
    /// When a line that is used cannot be read, or one that all kernels have is missing: what is left would not be the sum.
    fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let mut info = Self::default();
        let (mut total, mut free, mut buffers, mut cached) = (None, None, None, None);
        for line in lines(text) {
            let mut words = words(line);
            let Some(key) = words.next() else { continue };
            let target = match key {
                b"MemTotal:" => total.insert(0),
                b"MemFree:" => free.insert(0),
                b"MemAvailable:" => info.available.insert(0),
                b"Buffers:" => buffers.insert(0),
                b"Cached:" => cached.insert(0),
                b"SReclaimable:" => &mut info.reclaimable,
                b"SwapTotal:" => &mut info.swap_total,
                b"SwapFree:" => &mut info.swap_free,
                b"Active:" => &mut info.active,
                b"Inactive:" => &mut info.inactive,
                b"Shmem:" => &mut info.shared,
                b"Zswap:" => info.zswap.insert(0),
                b"HugePages_Total:" => &mut info.huge_total,
                b"HugePages_Free:" => &mut info.huge_free,
                b"HugePages_Rsvd:" => &mut info.huge_reserved,
                b"Hugepagesize:" => &mut info.huge_size,
                _ => continue,
            };
            *target = words.next().and_then(number).ok_or_else(|| unreadable("/proc/meminfo", line))?;
        }
        let of_all = |value: Option<u64>, name| value.with_context(|| format!("/proc/meminfo does not say {name}"));
        info.total = of_all(total, "MemTotal")?;
        info.free = of_all(free, "MemFree")?;
        info.buffers = of_all(buffers, "Buffers")?;
        info.cached = of_all(cached, "Cached")?;
        Ok(info)
    }

    fn metrics(&self) -> MemoryMetrics {
        let cached = self.cached.saturating_add(self.reclaimable);
        let idle = self.free.saturating_add(self.buffers).saturating_add(cached);
        let used = self.total.saturating_sub(idle);
        let available = self.available.unwrap_or(idle).min(self.total);
        let huge = |pages: u64| pages.saturating_mul(self.huge_size) / 1024;
        let swap_used = self.swap_total.saturating_sub(self.swap_free);
        MemoryMetrics {
            total_mib: self.total / 1024,
            free_mib: self.free / 1024,
            available_mib: available / 1024,
            unavailable_mib: (self.total - available) / 1024,
            shared_mib: self.shared / 1024,
            used_mib: used / 1024,
            used_pct: percent(used as f64, self.total as f64),
            buffers_mib: self.buffers / 1024,
            cached_mib: cached / 1024,
            swap_total_mib: self.swap_total / 1024,
            swap_used_mib: swap_used / 1024,
            swap_used_pct: percent(swap_used as f64, self.swap_total as f64),
            active_mib: self.active / 1024,
            inactive_mib: self.inactive / 1024,
            hugepages_total_mib: huge(self.huge_total),
            hugepages_free_mib: huge(self.huge_free),
            hugepages_reserved_mib: huge(self.huge_reserved),
            zswap_mib: self.zswap.map(|kib| kib / 1024),
            zfs_arc_mib: None,
            major_faults_per_sec: None,
        }
    }
}

/// `size 4 123456`: name, type and value, in bytes.
fn arc_size(arcstats: &[u8]) -> Option<u64> {
    let size = lines(arcstats).find(|line| words(line).next() == Some(b"size"))?;
    Some(number(words(size).nth(2)?)? >> 20)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Two GiB in `/dev/shm`, and a hundred huge pages, of which ten are used and five promised.
    #[test]
    fn what_cannot_be_given_back_is_not_available() -> anyhow::Result<()> {
        let text = b"MemTotal:       8388608 kB\nMemFree:         2097152 kB\nMemAvailable:    4194304 kB\n\
                     Buffers:               0 kB\nCached:          4194304 kB\nShmem:           2097152 kB\nZswap:             10240 kB\n\
                     HugePages_Total:     100\nHugePages_Free:       90\nHugePages_Rsvd:        5\nHugepagesize:       2048 kB\n";
        let memory = Meminfo::parse(text)?.metrics();
        assert_eq!((memory.used_mib, memory.unavailable_mib, memory.shared_mib), (2048, 4096, 2048));
        let huge = (memory.hugepages_total_mib, memory.hugepages_free_mib, memory.hugepages_reserved_mib);
        assert_eq!((huge, memory.zswap_mib), ((200, 180, 10), Some(10)));
        Ok(())
    }

    #[test]
    fn the_cache_of_zfs() {
        let text = b"13 1 0x01 123 33456 1 2\nname                            type data\nhits    4    77\nsize    4    3221225472\n";
        assert_eq!((arc_size(text), arc_size(b"name type data\n")), (Some(3072), None));
    }

    #[test]
    fn a_machine_with_swap() -> anyhow::Result<()> {
        let text = b"MemTotal:       16384000 kB\nMemFree:         1024000 kB\nMemAvailable:    9216000 kB\n\
                     Buffers:          512000 kB\nCached:          4096000 kB\nSwapCached:         9999 kB\n\
                     Active:          2048000 kB\nInactive:        3072000 kB\nActive(anon):        111 kB\n\
                     SwapTotal:       2048000 kB\nSwapFree:        1536000 kB\nSReclaimable:     204800 kB\nHugePages_Total: 0\n";
        let memory = Meminfo::parse(text)?.metrics();
        assert_eq!((memory.total_mib, memory.free_mib, memory.available_mib), (16000, 1000, 9000));
        assert_eq!((memory.buffers_mib, memory.cached_mib, memory.used_mib), (500, 4200, 10300));
        assert_eq!((memory.active_mib, memory.inactive_mib), (2000, 3000));
        assert_eq!((memory.swap_total_mib, memory.swap_used_mib, memory.swap_used_pct), (2000, 500, 25.0));
        Ok(())
    }

    #[test]
    fn a_kernel_before_3_14_has_no_available() -> anyhow::Result<()> {
        let memory =
            Meminfo::parse(b"MemTotal: 4096 kB\nMemFree: 1024 kB\nBuffers: 1024 kB\nCached: 1024 kB\n")?.metrics();
        assert_eq!((memory.available_mib, memory.used_mib), (3, 1));
        Ok(())
    }

    #[test]
    fn a_reading_with_garbage_is_left_out() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text);
        let good =
            "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\nBuffers: 0 kB\nCached: 1024 kB\nShmem: 0 kB\n";
        write("meminfo", good)?;
        write("vmstat", "pgmajfault 100\n")?;
        let host = Host::new(directory.path(), directory.path());
        let mut source = MemoryConfig::default().build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
        let (start, mut seconds) = (Instant::now(), 0);
        let mut told = |text: &str| -> anyhow::Result<MemoryMetrics> {
            write("meminfo", text)?;
            let second = Duration::from_secs(1);
            seconds += 1;
            let mut out = Sections::default();
            source.collect(&Tick::new(seconds, start + second * seconds as u32, second, second), &mut out)?;
            out.get::<MemoryMetrics>().cloned().ok_or(anyhow::anyhow!("no section"))
        };
        let first = told(good)?;
        assert_eq!((first.total_mib, first.used_mib, first.major_faults_per_sec), (4, 2, Some(0.0)));
        for (from, to) in
            [("MemTotal: 4096 kB\n", ""), ("Cached: 1024", "Cached: junk"), ("Shmem: 0 kB", "Shmem:"), (good, "")]
        {
            let error = told(&good.replace(from, to)).map_or_else(|error| error.to_string(), |it| format!("{it:?}"));
            assert!(error.starts_with("/proc/meminfo"), "{to}: {error}");
        }
        write("vmstat", "pgmajfault junk\n")?;
        assert_eq!(told(good)?, MemoryMetrics { major_faults_per_sec: None, ..first.clone() });
        write("vmstat", "pgmajfault 112\n")?;
        assert_eq!(told(good)?.major_faults_per_sec, Some(2.0), "in six seconds");
        write("vmstat", "pgmajfault 5\n")?;
        assert_eq!(told(good)?.major_faults_per_sec, None, "it began anew");
        write("vmstat", "pgmajfault 6\n")?;
        assert_eq!(told(good)?.major_faults_per_sec, Some(1.0));
        Ok(())
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::FromBufRead;
        let text = std::fs::read("/proc/meminfo")?;
        let ours = Meminfo::parse(&text)?;
        let theirs = procfs::Meminfo::from_buf_read(&text[..])?;
        let kib = |bytes: u64| bytes / 1024;
        assert_eq!((ours.total, ours.free), (kib(theirs.mem_total), kib(theirs.mem_free)));
        assert_eq!((ours.cached, ours.active), (kib(theirs.cached), kib(theirs.active)));
        assert_eq!(ours.available, theirs.mem_available.map(kib));
        assert_eq!(ours.reclaimable, theirs.s_reclaimable.map_or(0, kib));
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_gives_shares_in_bounds(text in "(MemTotal|MemFree|Cached|Buffers|MemAvailable|SwapTotal|SwapFree|x): [0-9]{0,20} kB\n{0,8}") {
            let text = format!("MemTotal: 9 kB\nMemFree: 9 kB\nBuffers: 9 kB\nCached: 9 kB\n{text}");
            let Ok(info) = Meminfo::parse(text.as_bytes()) else { return Ok(()) };
            let memory = info.metrics();
            prop_assert!((0.0..=100.0).contains(&memory.used_pct));
            prop_assert!((0.0..=100.0).contains(&memory.swap_used_pct));
            prop_assert!(memory.available_mib <= memory.total_mib);
        }
    }
}
