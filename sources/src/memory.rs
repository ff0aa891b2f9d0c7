//! Memory of the machine: `/proc/meminfo`, and major faults from `/proc/vmstat`.

use std::time::Instant;

use resource_tracker_core::{Host, Sections, Source, SourceConfig, SourceEntry, Tick, register_source};
use resource_tracker_metrics::MemoryMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::procfile::{FASTEST, ProcFile, percent, rate};
use crate::scan::{lines, number, value_of, words};

/// Memory and swap.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
pub struct MemoryConfig {}

#[typetag::deserialize(name = "memory")]
impl SourceConfig for MemoryConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let meminfo = ProcFile::open(host.procfs.join("meminfo"))?;
        Ok(Some(Box::new(Memory {
            meminfo,
            faults: ProcFile::open_if_present(host.procfs.join("vmstat")).map(|vmstat| Faults {
                vmstat,
                before: None,
                rate: None,
            }),
        })))
    }
}

register_source!(
    SourceEntry::new::<MemoryConfig>("memory", "Memory and swap of the machine").on_by_default().order(30)
);

struct Memory {
    meminfo: ProcFile,
    faults: Option<Faults>,
}

/// `pgmajfault` of `/proc/vmstat`, a file that takes long to print: it is read at most every 100 ms.
struct Faults {
    vmstat: ProcFile,
    before: Option<(u64, Instant)>,
    rate: Option<f64>,
}

impl Faults {
    fn rate(&mut self, now: Instant) -> Option<f64> {
        let passed = self.before.map(|(_, at)| now.saturating_duration_since(at));
        if passed.is_none_or(|passed| passed >= FASTEST) {
            let count = value_of(self.vmstat.read().ok()?, "pgmajfault")?;
            let secs = passed.unwrap_or_default().as_secs_f64();
            self.rate = Some(rate(count, self.before.map_or(count, |(before, _)| before), secs));
            self.before = Some((count, now));
        }
        self.rate
    }
}

impl Source for Memory {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let info = Meminfo::parse(self.meminfo.read()?);
        let memory = out.section::<MemoryMetrics>();
        *memory = info.metrics();
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
}

impl Meminfo {
    const LINES: u32 = 10;

    fn parse(text: &[u8]) -> Self {
        let mut info = Self::default();
        let mut found = 0;
        for line in lines(text) {
            let mut words = words(line);
            let (Some(key), Some(value)) = (words.next(), words.next().and_then(number)) else { continue };
            found += 1;
            match key {
                b"MemTotal:" => info.total = value,
                b"MemFree:" => info.free = value,
                b"MemAvailable:" => info.available = Some(value),
                b"Buffers:" => info.buffers = value,
                b"Cached:" => info.cached = value,
                b"SReclaimable:" => info.reclaimable = value,
                b"SwapTotal:" => info.swap_total = value,
                b"SwapFree:" => info.swap_free = value,
                b"Active:" => info.active = value,
                b"Inactive:" => info.inactive = value,
                _ => found -= 1,
            }
            if found == Self::LINES {
                break;
            }
        }
        info
    }

    fn metrics(&self) -> MemoryMetrics {
        let cached = self.cached.saturating_add(self.reclaimable);
        let idle = self.free.saturating_add(self.buffers).saturating_add(cached);
        let used = self.total.saturating_sub(idle);
        let swap_used = self.swap_total.saturating_sub(self.swap_free);
        MemoryMetrics {
            total_mib: self.total / 1024,
            free_mib: self.free / 1024,
            available_mib: self.available.unwrap_or(idle).min(self.total) / 1024,
            used_mib: used / 1024,
            used_pct: percent(used as f64, self.total as f64),
            buffers_mib: self.buffers / 1024,
            cached_mib: cached / 1024,
            swap_total_mib: self.swap_total / 1024,
            swap_used_mib: swap_used / 1024,
            swap_used_pct: percent(swap_used as f64, self.swap_total as f64),
            active_mib: self.active / 1024,
            inactive_mib: self.inactive / 1024,
            major_faults_per_sec: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_machine_with_swap() {
        let text = b"MemTotal:       16384000 kB\nMemFree:         1024000 kB\nMemAvailable:    9216000 kB\n\
                     Buffers:          512000 kB\nCached:          4096000 kB\nSwapCached:         9999 kB\n\
                     Active:          2048000 kB\nInactive:        3072000 kB\nActive(anon):        111 kB\n\
                     SwapTotal:       2048000 kB\nSwapFree:        1536000 kB\nSReclaimable:     204800 kB\nHugePages_Total: 0\n";
        let memory = Meminfo::parse(text).metrics();
        assert_eq!((memory.total_mib, memory.free_mib, memory.available_mib), (16000, 1000, 9000));
        assert_eq!((memory.buffers_mib, memory.cached_mib, memory.used_mib), (500, 4200, 10300));
        assert_eq!((memory.active_mib, memory.inactive_mib), (2000, 3000));
        assert_eq!((memory.swap_total_mib, memory.swap_used_mib, memory.swap_used_pct), (2000, 500, 25.0));
    }

    #[test]
    fn a_kernel_before_3_14_has_no_available() {
        let memory =
            Meminfo::parse(b"MemTotal: 4096 kB\nMemFree: 1024 kB\nBuffers: 1024 kB\nCached: 1024 kB\n").metrics();
        assert_eq!((memory.available_mib, memory.used_mib), (3, 1));
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::FromBufRead;
        let text = std::fs::read("/proc/meminfo")?;
        let ours = Meminfo::parse(&text);
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
            let memory = Meminfo::parse(text.as_bytes()).metrics();
            prop_assert!((0.0..=100.0).contains(&memory.used_pct));
            prop_assert!((0.0..=100.0).contains(&memory.swap_used_pct));
            prop_assert!(memory.available_mib <= memory.total_mib);
        }
    }
}
