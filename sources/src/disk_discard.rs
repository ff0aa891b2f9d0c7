//! Discards and flushes of disks: `/proc/diskstats`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::{DiskDiscardMetrics, DiskDiscards};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{ProcFile, SECTOR};
use resource_tracker_scan::{lines, number, words};

register_source!(SourceEntry::new::<DiskDiscardConfig>("disk-discard", "Discards and flushes of every disk"));

/// Discards and flushes of every disk. Needs Linux 4.18, and 5.5 for flushes.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct DiskDiscardConfig {}

from_json!(DiskDiscardConfig);

#[typetag::deserialize(name = "disk-discard")]
impl SourceConfig for DiskDiscardConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let diskstats = ProcFile::open(host.procfs.join("diskstats"))?;
        let (disks, deltas) = (host.sysfs.join("block"), CounterDeltas::new("disk-discard"));
        Ok(Some(Box::new(DiskDiscard { diskstats, disks, known: HashMap::new(), deltas })))
    }
}

struct DiskDiscard {
    diskstats: ProcFile,
    /// Has a folder for each disk, and none for a partition, whose discards are the disk's as well.
    disks: PathBuf,
    known: HashMap<String, Known>,
    deltas: CounterDeltas,
}

/// What was last read of a device.
struct Known {
    counters: Counters,
    is_disk: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counters {
    discards: u64,
    discarded: u64,
    flushes: u64,
    flush_millis: u64,
}

impl Source for DiskDiscard {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let text = self.diskstats.read()?;
        let before = std::mem::take(&mut self.known);
        let mut list = Vec::new();
        for (device, counters) in lines(text).filter_map(parse_line) {
            let known = before.get(&device);
            let is_disk = known.map_or_else(|| is_disk(&self.disks, &device), |known| known.is_disk);
            if is_disk && (counters.discards > 0 || counters.flushes > 0) {
                let before = known.map(|known| &known.counters);
                list.push(since(&device, &counters, before, tick.elapsed.as_secs_f64(), &mut self.deltas));
            }
            self.known.insert(device, Known { counters, is_disk });
        }
        list.sort_unstable_by(|one, other| one.device.cmp(&other.device));
        *out.section() = DiskDiscards(list);
        Ok(())
    }
}

fn is_disk(disks: &Path, device: &str) -> bool {
    disks.join(device.replace('/', "!")).exists()
}

fn since(
    device: &str,
    now: &Counters,
    before: Option<&Counters>,
    secs: f64,
    deltas: &mut CounterDeltas,
) -> DiskDiscardMetrics {
    let mut grown = |count: fn(&Counters) -> u64| deltas.of(device, count(now), count(before?));
    let [discards, discarded, flushes] = [grown(|it| it.discards), grown(|it| it.discarded), grown(|it| it.flushes)];
    // The kernel keeps it in 32 bits, which go round.
    let millis = before.and_then(|before| now.flush_millis.checked_sub(before.flush_millis));
    let per_sec = |count: Option<u64>| count.filter(|_| secs > 0.0).map(|count| count as f64 / secs);
    DiskDiscardMetrics {
        device: device.to_owned(),
        discards_per_sec: per_sec(discards),
        discard_bytes_per_sec: per_sec(discarded.map(|sectors| sectors.saturating_mul(SECTOR))),
        flushes_per_sec: per_sec(flushes),
        flush_latency_ms: flushes
            .filter(|flushes| *flushes > 0)
            .zip(millis)
            .map(|(count, ms)| ms as f64 / count as f64),
    }
}

/// Number, number, name, eleven counters of reads and writes, four of discards, two of flushes.
fn parse_line(line: &[u8]) -> Option<(String, Counters)> {
    let mut words = words(line);
    let name = words.nth(2)?;
    let mut counters = words.map_while(number).skip(11);
    let [discards, _, discarded, _] = [counters.next()?, counters.next()?, counters.next()?, counters.next()?];
    let (flushes, flush_millis) = (counters.next().unwrap_or(0), counters.next().unwrap_or(0));
    let found = Counters { discards, discarded, flushes, flush_millis };
    Some((String::from_utf8_lossy(name).into_owned(), found))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_three_generations() {
        let name = |line: &str| parse_line(line.as_bytes());
        assert_eq!(name("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11"), None);
        let expected = Counters { discards: 12, discarded: 14, flushes: 0, flush_millis: 0 };
        assert_eq!(name("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"), Some(("sda".to_owned(), expected)));
        let expected = Counters { flushes: 16, flush_millis: 48, ..expected };
        let line = " 259       0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 48";
        assert_eq!(name(line), Some(("nvme0n1".to_owned(), expected)));
        let before = Counters { discarded: 4, flushes: 10, ..Counters::default() };
        let since = |now, before| since("sda", now, before, 2.0, &mut CounterDeltas::new("test"));
        let metrics = since(&expected, Some(&before));
        assert_eq!((metrics.discards_per_sec, metrics.discard_bytes_per_sec), (Some(6.0), Some(2560.0)));
        assert_eq!((metrics.flushes_per_sec, metrics.flush_latency_ms), (Some(3.0), Some(8.0)));
        let nothing_known = DiskDiscardMetrics { device: "sda".into(), ..DiskDiscardMetrics::default() };
        assert_eq!(since(&expected, None), nothing_known, "it is new");
        let anew = since(&Counters::default(), Some(&expected));
        assert_eq!(anew, nothing_known, "it began anew");
    }

    #[test]
    fn the_first_discard_of_a_disk_counts_and_partitions_are_not_listed() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        for disk in ["sda", "sdb", "cciss!c0d0"] {
            std::fs::create_dir_all(root.join("block").join(disk))?;
        }
        let line =
            |name: &str, discards: u64| format!("8 0 {name} 1 2 3 4 5 6 7 8 9 10 11 {discards} 0 {discards} 0 0 0\n");
        let write = |lines: &[String]| std::fs::write(root.join("diskstats"), lines.concat());
        let (sda, part) = (line("sda", 0), line("sda1", 0));
        write(&[sda, part, line("cciss/c0d0", 0)])?;
        let mut source = DiskDiscardConfig {}.build(&Host::new(root, root))?.ok_or(anyhow::anyhow!("absent"))?;
        let second = std::time::Duration::from_secs(1);
        let mut out = Sections::default();
        let mut read = || -> anyhow::Result<Vec<(String, Option<f64>)>> {
            source.collect(&Tick::new(1, std::time::Instant::now(), second, second), &mut out)?;
            let list = out.get::<DiskDiscards>().map(|list| list.0.clone()).unwrap_or_default();
            Ok(list.into_iter().map(|disk| (disk.device, disk.discards_per_sec)).collect())
        };
        assert_eq!(read()?, []);
        write(&[line("sda", 5), line("sda1", 5), line("cciss/c0d0", 2), line("sdb", 900)])?;
        let (cciss, sda, sdb) = ("cciss/c0d0".to_owned(), "sda".to_owned(), "sdb".to_owned());
        assert_eq!(
            read()?,
            [(cciss, Some(2.0)), (sda, Some(5.0)), (sdb, None)],
            "what came with a new disk is not of now"
        );
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
        }
    }
}
