//! Discards and flushes of disks: `/proc/diskstats`.

use std::collections::HashMap;
use std::path::PathBuf;

use resource_tracker_core::prelude::*;

use crate::procfile::{ProcFile, SECTOR, rate};
use crate::scan::{lines, number, words};

/// Discards and flushes of every whole disk that had some: `disk_discard`. Those of a partition are its disk's. What is counted
/// in an interval in which a disk began anew is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct DiskDiscards(pub Vec<DiskDiscardMetrics>);

/// One disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct DiskDiscardMetrics {
    /// Name of the device, such as `nvme0n1`.
    pub device: String,
    /// Discards that were completed: blocks that a file system no longer uses. Since Linux 4.18
    #[schemars(transform = Gauge("discards/second"))]
    pub discards_per_sec: f64,
    /// Bytes that were discarded.
    #[schemars(transform = Gauge("bytes/second"))]
    pub discard_bytes_per_sec: f64,
    /// Flushes that were completed, as `fsync` asks for: what is in the drive's own cache is written. Since Linux 5.5
    #[schemars(transform = Gauge("flushes/second"))]
    pub flushes_per_sec: f64,
    /// Time that a flush took; null when none ended.
    #[schemars(transform = Gauge("milliseconds"))]
    pub flush_latency_ms: Option<f64>,
}

impl Section for DiskDiscards {
    const NAME: &'static str = "disk_discard";
}

register_section!(DiskDiscards);
register_source!(SourceEntry::new::<DiskDiscardConfig>("disk-discard", "Discards and flushes of every disk"));

/// Discards and flushes of every disk. Needs Linux 4.18, and 5.5 for flushes.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct DiskDiscardConfig {}

#[typetag::deserialize(name = "disk-discard")]
impl SourceConfig for DiskDiscardConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let diskstats = ProcFile::open(host.procfs.join("diskstats"))?;
        Ok(Some(Box::new(DiskDiscard { diskstats, disks: host.sysfs.join("block"), before: HashMap::new() })))
    }
}

struct DiskDiscard {
    diskstats: ProcFile,
    /// Has a folder for each disk, and none for a partition, whose discards are the disk's as well.
    disks: PathBuf,
    before: HashMap<String, Counters>,
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
        let now: HashMap<String, Counters> = lines(self.diskstats.read()?).filter_map(parse_line).collect();
        let before = std::mem::replace(&mut self.before, now);
        let secs = tick.elapsed.as_secs_f64();
        let mut list: Vec<_> = self
            .before
            .iter()
            .filter(|(device, now)| (now.discards > 0 || now.flushes > 0) && self.is_disk(device))
            .map(|(device, now)| since(device, now, before.get(device).unwrap_or(now), secs))
            .collect();
        list.sort_unstable_by(|one, other| one.device.cmp(&other.device));
        *out.section() = DiskDiscards(list);
        Ok(())
    }
}

impl DiskDiscard {
    fn is_disk(&self, device: &str) -> bool {
        self.disks.join(device.replace('/', "!")).exists()
    }
}

fn since(device: &str, now: &Counters, before: &Counters, secs: f64) -> DiskDiscardMetrics {
    let flushes = now.flushes.saturating_sub(before.flushes);
    let millis = now.flush_millis.saturating_sub(before.flush_millis);
    DiskDiscardMetrics {
        device: device.to_owned(),
        discards_per_sec: rate(now.discards, before.discards, secs),
        discard_bytes_per_sec: rate(
            now.discarded.saturating_mul(SECTOR),
            before.discarded.saturating_mul(SECTOR),
            secs,
        ),
        flushes_per_sec: rate(now.flushes, before.flushes, secs),
        flush_latency_ms: (flushes > 0).then(|| millis as f64 / flushes as f64),
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
        let metrics = since("sda", &expected, &Counters { discarded: 4, flushes: 10, ..Counters::default() }, 2.0);
        assert_eq!((metrics.discards_per_sec, metrics.discard_bytes_per_sec), (6.0, 2560.0));
        assert_eq!((metrics.flushes_per_sec, metrics.flush_latency_ms), (3.0, Some(8.0)));
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
        let mut read = || -> anyhow::Result<Vec<(String, f64)>> {
            source.collect(&Tick::new(1, std::time::Instant::now(), second, second), &mut out)?;
            let list = out.get::<DiskDiscards>().map(|list| list.0.clone()).unwrap_or_default();
            Ok(list.into_iter().map(|disk| (disk.device, disk.discards_per_sec)).collect())
        };
        assert_eq!(read()?, []);
        write(&[line("sda", 5), line("sda1", 5), line("cciss/c0d0", 2), line("sdb", 900)])?;
        let (cciss, sda, sdb) = ("cciss/c0d0".to_owned(), "sda".to_owned(), "sdb".to_owned());
        assert_eq!(read()?, [(cciss, 2.0), (sda, 5.0), (sdb, 0.0)], "what came with a new disk is not of now");
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
        }
    }
}
