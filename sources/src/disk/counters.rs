//! What the kernel counts of each block device: `/proc/diskstats`, or `stat` of the few that matter.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use resource_tracker_core::Host;

use super::constants::{SECTOR, SURVEY};
use crate::counter_deltas::CounterDeltas;
use crate::procfile::ProcFile;
use resource_tracker_scan::{find_near, lines, number, numbers, words};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) reads: Transfers,
    pub(super) writes: Transfers,
    pub(super) busy_millis: u64,
    pub(super) weighted_millis: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Transfers {
    pub(super) completed: u64,
    pub(super) sectors: u64,
    pub(super) millis: u64,
}

impl Counters {
    /// Whether nothing was read or written since the device came up.
    fn is_unused(&self) -> bool {
        self.reads == Transfers::default() && self.writes == Transfers::default()
    }

    fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads.plus(other.reads),
            writes: self.writes.plus(other.writes),
            busy_millis: self.busy_millis.saturating_add(other.busy_millis),
            weighted_millis: self.weighted_millis.saturating_add(other.weighted_millis),
        }
    }
}

/// Transfers between two readings.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferDeltas {
    pub(super) completed: u64,
    pub(super) bytes: u64,
    millis: Option<u64>,
}

impl TransferDeltas {
    pub(super) fn latency_ms(&self) -> Option<f64> {
        (self.completed > 0).then_some(self.millis? as f64 / self.completed as f64)
    }
}

impl Transfers {
    /// The transfers since `before`; `None` when the counters of the device started again.
    pub(super) fn since(&self, before: &Self, device: &str, deltas: &mut CounterDeltas) -> Option<TransferDeltas> {
        Some(TransferDeltas {
            completed: deltas.of(device, self.completed, before.completed)?,
            bytes: deltas.of(device, self.sectors, before.sectors)?.saturating_mul(SECTOR),
            // The kernel keeps it in 32 bits, which go round.
            millis: self.millis.checked_sub(before.millis),
        })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            completed: self.completed.saturating_add(other.completed),
            sectors: self.sectors.saturating_add(other.sectors),
            millis: self.millis.saturating_add(other.millis),
        }
    }
}

/// All block devices. The list has partitions and unused loop devices as well, often many, and takes the kernel long to
/// print; so between two looks at it the disks have a file each.
pub(super) struct Devices {
    list: ProcFile,
    listed: Option<Instant>,
    sysfs: PathBuf,
    round: u64,
    known: Vec<Device>,
    /// Whether a warning has said that a line could not be read.
    has_said: bool,
}

pub(super) struct Device {
    name: String,
    before: Counters,
    now: Counters,
    /// The round in which it was last read, or could not be.
    round: u64,
    /// For how long it could not be read, until now and before the last reading.
    unread: Duration,
    unread_before: Duration,
    /// Its own file. `next` is what was read there, until all files of this round could be read.
    own: Option<ProcFile>,
    next: Option<Counters>,
    is_disk: bool,
}

impl Device {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The time since the reading before, when this one took so long; `None` where it could not be read now.
    pub(super) fn time_of(&self, elapsed: Duration) -> Option<Duration> {
        self.unread.is_zero().then_some(self.unread_before + elapsed)
    }

    /// Takes in a reading. If the one before is more than a round ago, the growth is no rate of this round: it is left
    /// out, unless the device could not be read meanwhile.
    fn update(&mut self, now: Counters, round: u64) {
        self.before = if self.round + 1 == round { self.now } else { now };
        self.now = now;
        self.round = round;
        self.unread_before = std::mem::take(&mut self.unread);
    }

    /// Notes that it could not be read: nothing was transferred so far.
    fn miss(&mut self, elapsed: Duration, round: u64) {
        self.before = self.now;
        self.round = round;
        self.unread += elapsed;
    }
}

impl Devices {
    pub(super) fn open(host: &Host) -> anyhow::Result<Self> {
        let list = ProcFile::open(host.procfs.join("diskstats"))?;
        Ok(Self { list, listed: None, sysfs: host.sysfs.clone(), round: 0, known: Vec::new(), has_said: false })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.known.iter()
    }

    /// The counters of a device before and now. Older kernels count on the hidden paths to a device only, so that its own
    /// never move; then they are those of its paths together.
    pub(super) fn counters(&self, device: &Device, paths: &[String]) -> (Counters, Counters) {
        let own = (device.before, device.now);
        if paths.is_empty() || !device.now.is_unused() {
            return own;
        }
        let paths = self.known.iter().filter(|other| paths.contains(&other.name));
        let pairs = paths.map(|path| (path.before, path.now));
        pairs.reduce(|sum, path| (sum.0.plus(path.0), sum.1.plus(path.1))).unwrap_or(own)
    }

    /// Reads the counters; those of devices that are no disks are read only at times. True if an unknown device came up
    /// or began to work.
    pub(super) fn read(
        &mut self,
        at: Instant,
        elapsed: Duration,
        is_disk: impl Fn(&str) -> bool,
    ) -> anyhow::Result<bool> {
        let is_due = self.listed.is_none_or(|listed| at.saturating_duration_since(listed) >= SURVEY);
        let round = self.round + 1;
        let mut has_news = false;
        if is_due || !self.read_own(round, is_disk) {
            has_news = self.read_list(elapsed, round)?;
            self.listed = Some(at);
        }
        // After a reading that failed, the next one counts from the last that did not.
        self.round = round;
        Ok(has_news)
    }

    /// Reads the file of each disk. False when that is not possible, or costs no less than the list.
    fn read_own(&mut self, round: u64, is_disk: impl Fn(&str) -> bool) -> bool {
        self.known.iter_mut().for_each(|device| device.is_disk = is_disk(&device.name));
        if self.known.iter().filter(|device| device.is_disk).count() * 2 > self.known.len() {
            return false;
        }
        let all_read = self.known.iter_mut().filter(|device| device.is_disk).all(|device| {
            if device.own.is_none() {
                device.own = ProcFile::open_if_present(self.sysfs.join("block").join(&device.name).join("stat"));
            }
            let text = device.own.as_mut().and_then(|file| file.read().ok());
            device.next = text.and_then(parse_counters);
            device.next.is_some()
        });
        if all_read {
            let disks = self.known.iter_mut().filter(|device| device.is_disk);
            disks.for_each(|device| device.update(device.next.unwrap_or(device.now), round));
        }
        all_read
    }

    /// If a line cannot be read, no device is taken for gone.
    fn read_list(&mut self, elapsed: Duration, round: u64) -> anyhow::Result<bool> {
        let (mut has_news, mut has_garbage) = (false, false);
        let parse = |line| {
            let device = parse_line(line);
            has_garbage |= device.is_none();
            device
        };
        for (place, (name, now)) in lines(self.list.read()?).filter_map(parse).enumerate() {
            match find_near(&self.known, place, |device| device.name == name) {
                Some(index) => {
                    let device = &mut self.known[index];
                    // An unused loop device that gets a file was no disk before.
                    has_news |= device.now.is_unused() && !now.is_unused();
                    device.update(now, round);
                }
                None => {
                    has_news = true;
                    self.known.push(Device {
                        name: name.to_owned(),
                        before: now,
                        now,
                        round,
                        unread: Duration::ZERO,
                        unread_before: Duration::ZERO,
                        own: None,
                        next: None,
                        is_disk: false,
                    });
                }
            }
        }
        match has_garbage {
            true => self.known.iter_mut().filter(|it| it.round != round).for_each(|it| it.miss(elapsed, round)),
            false => self.known.retain(|device| device.round == round),
        }
        if has_garbage && !std::mem::replace(&mut self.has_said, true) {
            log::warn!("source disk: a device in /proc/diskstats cannot be read; its figures are null until it can");
        }
        Ok(has_news)
    }
}

/// `254 0 vda 5094 2846 847394 7693 394 5113 83464 369 0 4200 8212 …`
fn parse_line(line: &[u8]) -> Option<(&str, Counters)> {
    let mut columns = words(line);
    number(columns.next()?)?;
    number(columns.next()?)?;
    let name = std::str::from_utf8(columns.next()?).ok()?;
    let rest = &line[name.as_ptr() as usize - line.as_ptr() as usize + name.len()..];
    Some((name, parse_counters(rest)?))
}

/// `5094 2846 847394 7693 394 5113 83464 369 0 4200 8212 …`
fn parse_counters(text: &[u8]) -> Option<Counters> {
    let mut values = numbers(text);
    let mut transfers = || {
        let [completed, _merged, sectors, millis] = std::array::from_fn(|_| values.next());
        Some(Transfers { completed: completed?, sectors: sectors?, millis: millis? })
    };
    let (reads, writes) = (transfers()?, transfers()?);
    let [_in_flight, busy_millis, weighted_millis] = std::array::from_fn(|_| values.next());
    Some(Counters { reads, writes, busy_millis: busy_millis?, weighted_millis: weighted_millis? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Also when a device goes, and when its file does.
    #[test]
    fn a_disk_is_read_from_its_own_file_between_two_looks_at_the_list() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        std::fs::create_dir_all(root.join("block/sda"))?;
        let line = |name: &str, reads: u64| format!("8 0 {name} {reads} 0 8 1 5 0 50 10 0 500 900\n");
        let list = |lines: &[String]| std::fs::write(root.join("diskstats"), lines.concat());
        let own = |text: &str| std::fs::write(root.join("block/sda/stat"), text);
        let unused = "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n".to_owned();
        list(&[line("sda", 10), line("sda1", 10), unused])?;
        own("10 0 8 1 5 0 50 10 0 500 900 0 0\n")?;
        let mut devices = Devices::open(&Host::new(root, root))?;
        let start = Instant::now();
        let mut read = |millis: u64| {
            let news = devices.read(start + Duration::from_millis(millis), Duration::ZERO, |name| name == "sda")?;
            let mut seen = devices.iter().map(|device| (device.before.reads.completed, device.now.reads.completed));
            anyhow::Ok((seen.next(), seen.count() + 1, news))
        };
        assert_eq!(read(0)?, (Some((10, 10)), 3, true));
        own("12 0 8 1 5 0 50 10 0 500 900 0 0\n")?;
        assert_eq!(read(10)?, (Some((10, 12)), 3, false));
        list(&[line("sda", 15), line("sda1", 15), line("loop0", 1)])?;
        assert_eq!(read(20)?, (Some((12, 12)), 3, false), "the list is not looked at");
        assert_eq!(read(1000)?, (Some((12, 15)), 3, true), "a loop device began to work");
        own("")?;
        list(&[line("sda", 16), line("sda1", 16), line("sdb", 0)])?;
        assert_eq!(read(1010)?, (Some((15, 16)), 3, true), "its file tells nothing any more");
        list(&[line("sda", 17)])?;
        assert_eq!(read(1020)?, (Some((16, 17)), 1, false));
        Ok(())
    }

    /// A device that is known to be a disk only later was last read with the list.
    #[test]
    fn a_second_is_not_told_as_the_rate_of_ten_milliseconds() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        std::fs::create_dir_all(root.join("block/sda"))?;
        std::fs::write(
            root.join("diskstats"),
            "8 0 sda 10 0 8 1 5 0 50 10 0 500 900\n8 1 sda1 1 0 8 1 5 0 50 10 0 5 9\n",
        )?;
        let mut devices = Devices::open(&Host::new(root, root))?;
        let start = Instant::now();
        let mut read = |millis: u64, reads: u64, is_disk: bool| {
            std::fs::write(root.join("block/sda/stat"), format!("{reads} 0 8 1 5 0 50 10 0 500 900\n"))?;
            devices.read(start + Duration::from_millis(millis), Duration::ZERO, |name| is_disk && name == "sda")?;
            let sda = devices.iter().next().map(|device| (device.before.reads.completed, device.now.reads.completed));
            anyhow::Ok(sda)
        };
        assert_eq!(read(0, 10, false)?, Some((10, 10)));
        assert_eq!(read(10, 500, false)?, Some((10, 10)), "it is no disk");
        assert_eq!(read(20, 900, true)?, Some((900, 900)));
        assert_eq!(read(30, 903, true)?, Some((900, 903)));
        Ok(())
    }

    #[test]
    fn after_a_reading_that_failed_both_intervals_count() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let list = directory.path().join("diskstats");
        let write = |reads: u64| std::fs::write(&list, format!("8 0 sda {reads} 0 8 1 5 0 50 10 0 500 900\n"));
        write(10)?;
        let mut devices = Devices::open(&Host::new(directory.path(), directory.path()))?;
        let start = Instant::now();
        let seen = |devices: &Devices| devices.known[0].now.reads.completed - devices.known[0].before.reads.completed;
        devices.read(start, SURVEY, |_| true)?;
        // A folder can be opened and not be read.
        let good = std::mem::replace(&mut devices.list, ProcFile::open(directory.path().to_owned())?);
        assert!(devices.read(start + SURVEY, SURVEY, |_| true).is_err());
        devices.list = good;
        write(17)?;
        devices.read(start + SURVEY * 2, SURVEY, |_| true)?;
        assert_eq!(seen(&devices), 7);
        Ok(())
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        let text = std::fs::read_to_string("/proc/diskstats")?;
        for line in text.lines() {
            let theirs = procfs::DiskStat::from_line(line)?;
            let (name, ours) = parse_line(line.as_bytes()).ok_or(anyhow::anyhow!("{line}"))?;
            assert_eq!(name, theirs.name);
            assert_eq!((ours.reads.sectors, ours.writes.sectors), (theirs.sectors_read, theirs.sectors_written));
            assert_eq!(
                (ours.busy_millis, ours.weighted_millis),
                (theirs.time_in_progress, theirs.weighted_time_in_progress)
            );
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
            parse_counters(&line);
        }
    }
}
