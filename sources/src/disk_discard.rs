//! What disks were told to forget, and to have written for good: `/proc/diskstats`.

use std::collections::HashMap;

use resource_tracker_core::prelude::*;

use crate::procfile::{ProcFile, rate};
use crate::scan::{lines, number, words};

/// Bytes of a sector, whatever those of the device have.
const SECTOR: u64 = 512;

/// Discards and flushes of every disk that had some: `disk_discard`.
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
        Ok(Some(Box::new(DiskDiscard { diskstats, before: HashMap::new() })))
    }
}

struct DiskDiscard {
    diskstats: ProcFile,
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
            .map(|(device, now)| since(device, now, before.get(device).unwrap_or(now), secs))
            .collect();
        list.sort_unstable_by(|one, other| one.device.cmp(&other.device));
        *out.section() = DiskDiscards(list);
        Ok(())
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

/// Number, number, name, eleven counters of reads and writes, four of discards, two of flushes. Disks that had neither, such as
/// unused loop devices, are left out.
fn parse_line(line: &[u8]) -> Option<(String, Counters)> {
    let mut words = words(line);
    let name = words.nth(2)?;
    let mut counters = words.map_while(number).skip(11);
    let [discards, _, discarded, _] = [counters.next()?, counters.next()?, counters.next()?, counters.next()?];
    let (flushes, flush_millis) = (counters.next().unwrap_or(0), counters.next().unwrap_or(0));
    let found = Counters { discards, discarded, flushes, flush_millis };
    (discards > 0 || flushes > 0).then(|| (String::from_utf8_lossy(name).into_owned(), found))
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
        assert_eq!(name("   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"), None);
        let metrics = since("sda", &expected, &Counters { discarded: 4, flushes: 10, ..Counters::default() }, 2.0);
        assert_eq!((metrics.discards_per_sec, metrics.discard_bytes_per_sec), (6.0, 2560.0));
        assert_eq!((metrics.flushes_per_sec, metrics.flush_latency_ms), (3.0, Some(8.0)));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
        }
    }
}
