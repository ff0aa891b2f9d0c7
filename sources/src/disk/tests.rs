use resource_tracker_metrics::DiskKind;
use tempfile::TempDir;

use super::*;

fn tick(number: u64, elapsed: u64) -> Tick<'static> {
    Tick::new(number, Instant::now(), Duration::from_secs(elapsed), Duration::from_secs(1))
}

#[test]
fn a_sector_is_512_bytes_on_a_4k_drive_too() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let root = directory.path();
    let queue = root.join("block/sda/queue");
    std::fs::create_dir_all(&queue)?;
    for (name, text) in [("hw_sector_size", "4096"), ("logical_block_size", "4096"), ("rotational", "1")] {
        std::fs::write(queue.join(name), text)?;
    }
    std::fs::write(root.join("block/sda/size"), "1000\n")?;
    let write = |reads: &str, writes: &str| {
        let line =
            format!("   8       0 sda {reads} {writes} 0 500 900 0 0 0 0\n   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n");
        std::fs::write(root.join("diskstats"), line)
    };
    write("10 0 100 20", "5 0 50 10")?;
    let host = Host::new(root, root);
    let mut source = DiskConfig::default().build(&host)?.ok_or(anyhow::anyhow!("absent"))?;
    let mut out = Sections::default();
    source.collect(&tick(0, 0), &mut out)?;
    write("14 0 300 40", "5 0 50 10")?;
    source.collect(&tick(1, 2), &mut out)?;
    let disks = out.get::<Disks>().map(|list| list.0.clone()).unwrap_or_default();
    assert_eq!(disks.len(), 1, "a partition is no disk");
    assert_eq!(disks[0].capacity_bytes, Some(512_000));
    assert_eq!(disks[0].read_bytes_per_sec, Some(200.0 * 512.0 / 2.0));
    assert_eq!((disks[0].read_bytes_total, disks[0].write_bytes_total), (Some(300 * 512), Some(50 * 512)));
    assert_eq!((disks[0].read_latency_ms, disks[0].write_latency_ms), (Some(5.0), None));
    assert_eq!((disks[0].reads_per_sec, disks[0].writes_per_sec), (Some(2.0), Some(0.0)));
    Ok(())
}

#[test]
fn queue_and_utilisation_are_shares_of_the_time() {
    let counters = |busy_millis, weighted_millis| Counters { busy_millis, weighted_millis, ..Counters::default() };
    let mut disk = DiskMetrics::default();
    let (second, mut deltas) = (Duration::from_secs(1), CounterDeltas::new("disk"));
    set_counters(&mut disk, &counters(100, 1000), &counters(600, 4000), second, &mut deltas);
    assert_eq!((disk.utilization_pct, disk.queue_length), (Some(50.0), Some(3.0)));
    set_counters(&mut disk, &counters(600, 4000), &counters(700, 4), second, &mut deltas);
    assert_eq!((disk.utilization_pct, disk.queue_length), (Some(10.0), None), "one went round");
    assert!(!deltas.has_said());
}

#[test]
fn a_disk_that_begins_anew_has_no_rates() {
    let counters = |count| {
        let transfers = counters::Transfers { completed: count, sectors: count, millis: count };
        Counters { reads: transfers, writes: transfers, busy_millis: count, weighted_millis: count }
    };
    let (mut disk, mut deltas) = (DiskMetrics::default(), CounterDeltas::new("disk"));
    let second = Duration::from_secs(1);
    set_counters(&mut disk, &counters(100), &counters(110), second, &mut deltas);
    assert_eq!((disk.read_bytes_per_sec, disk.write_latency_ms, disk.read_bytes), (Some(5120.0), Some(1.0), 5120));
    set_counters(&mut disk, &counters(110), &counters(8), second, &mut deltas);
    assert_eq!((disk.read_bytes_per_sec, disk.writes_per_sec, disk.write_latency_ms), (None, None, None));
    assert_eq!((disk.read_bytes, disk.read_bytes_total, disk.utilization_pct), (0, Some(8 * 512), None));
    assert!(deltas.has_said());
}

#[test]
fn a_disk_that_cannot_be_read_stays_in_the_list_and_gives_no_spike() -> anyhow::Result<()> {
    for garbage in ["8 0 sda junk 0 9 0 0 0 0 0 0 0 0\n", "8 0\n"] {
        let machine = Machine::new()?;
        machine.add("sda", 1000, &[])?;
        machine.add("sdb", 1000, &[])?;
        let line = |name: &str, sectors: u64| format!("8 0 {name} 0 0 0 0 9 0 {sectors} 0 0 0 0\n");
        machine.write("diskstats", &(line("sda", 10) + &line("sdb", 10)))?;
        let host = Host::new(machine.0.path(), machine.0.path());
        let mut source = DiskConfig::default().build(&host)?.context("absent")?;
        let mut told = |number, text: String| -> anyhow::Result<Vec<(String, Option<f64>, u64)>> {
            machine.write("diskstats", &text)?;
            let mut out = Sections::default();
            source.collect(&tick(number, 1), &mut out)?;
            let disks = out.get::<Disks>().map(|list| list.0.clone()).unwrap_or_default();
            Ok(disks.into_iter().map(|disk| (disk.device, disk.write_bytes_per_sec, disk.write_bytes)).collect())
        };
        let (sda, sdb) = ("sda".to_owned(), "sdb".to_owned());
        let deadline = Instant::now() + Duration::from_secs(5);
        while told(0, line("sda", 10) + &line("sdb", 10))?.is_empty() {
            assert!(Instant::now() < deadline);
        }
        let expected = [(sda.clone(), None, 0), (sdb.clone(), Some(512.0), 512)];
        assert_eq!(told(1, garbage.to_owned() + &line("sdb", 11))?, expected, "{garbage}");
        let expected = [(sda, Some(2048.0), 4096), (sdb, Some(0.0), 0)];
        assert_eq!(told(2, line("sda", 18) + &line("sdb", 11))?, expected, "over two seconds");
    }
    Ok(())
}

/// A machine whose block devices are files in a folder.
struct Machine(TempDir);

impl Machine {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        Ok(std::fs::write(path, text)?)
    }

    /// A device of so many sectors, on top of others.
    fn add(&self, name: &str, sectors: u64, slaves: &[&str]) -> anyhow::Result<()> {
        self.write(&format!("block/{name}/size"), &sectors.to_string())?;
        for slave in slaves {
            self.write(&format!("block/{name}/slaves/{slave}/dev"), "")?;
            let holders = self.0.path().join("block").join(slave).join("holders");
            std::fs::create_dir_all(&holders)?;
            std::os::unix::fs::symlink(format!("../../{name}"), holders.join(name))?;
        }
        Ok(())
    }

    /// The disks in a sample, when these sectors were written since the sample before. A device with 0 has never
    /// written any.
    fn disks(&self, written: &[(&str, u64)]) -> anyhow::Result<Vec<DiskMetrics>> {
        let list = |share: u64| -> String {
            let sectors = |total: u64| if total > 0 { 1000 + share * total } else { 0 };
            let line = |(name, total): &(&str, u64)| format!("8 0 {name} 0 0 0 0 0 0 {} 0 0 0 0\n", sectors(*total));
            written.iter().map(line).collect()
        };
        self.write("diskstats", &list(0))?;
        let host = Host::new(self.0.path(), self.0.path());
        let mut source = DiskConfig::default().build(&host)?.context("absent")?;
        let mut out = Sections::default();
        let deadline = Instant::now() + Duration::from_secs(20);
        while out.get::<Disks>().is_none_or(|list| list.0.is_empty()) {
            anyhow::ensure!(Instant::now() < deadline, "no disk is known");
            source.collect(&tick(0, 0), &mut out)?;
        }
        self.write("diskstats", &list(1))?;
        source.collect(&tick(1, 1), &mut out)?;
        Ok(out.get::<Disks>().map(|list| list.0.clone()).unwrap_or_default())
    }
}

/// Name, kind, whether it is counted, and how many sectors were written, of each disk in a sample.
fn told(disks: &[DiskMetrics]) -> Vec<(&str, Option<DiskKind>, bool, u64)> {
    disks.iter().map(|disk| (disk.device.as_str(), disk.kind, disk.is_counted, disk.write_bytes / SECTOR)).collect()
}

fn storage_sectors(machine: &Machine) -> Option<u64> {
    storage_bytes(machine.0.path()).map(|bytes| bytes / SECTOR)
}

const DISK: Option<DiskKind> = Some(DiskKind::Disk);
const VOLUME: Option<DiskKind> = Some(DiskKind::Volume);
const LOOP: Option<DiskKind> = Some(DiskKind::Loop);
const MEMORY: Option<DiskKind> = Some(DiskKind::Memory);
const PATH: Option<DiskKind> = Some(DiskKind::Path);

/// Newer kernels count on the device and on its paths, older ones on the paths only.
#[test]
fn an_nvme_namespace_with_two_paths_counts_once() -> anyhow::Result<()> {
    let machine = Machine::new()?;
    for (name, is_hidden) in [("nvme0c0n1", "1"), ("nvme0c1n1", "1"), ("nvme0n1", "0"), ("nvme0n2", "0")] {
        machine.add(name, 1000, &[])?;
        machine.write(&format!("block/{name}/hidden"), is_hidden)?;
        machine.write(&format!("block/{name}/wwid"), &format!("eui.002538{}", &name[name.len() - 1..]))?;
    }
    for (own, paths) in [(90, [60, 30]), (0, [60, 30])] {
        let written = [("nvme0c0n1", paths[0]), ("nvme0c1n1", paths[1]), ("nvme0n1", own), ("nvme0n2", 7)];
        let expected = [
            ("nvme0c0n1", PATH, false, 60),
            ("nvme0c1n1", PATH, false, 30),
            ("nvme0n1", DISK, true, 90),
            ("nvme0n2", DISK, true, 7),
        ];
        assert_eq!(told(&machine.disks(&written)?), expected);
    }
    assert_eq!(storage_sectors(&machine), Some(2000));
    Ok(())
}

/// The bytes went over the one path or the other, and the drive is there once: `sdc` has no map, and its two paths the
/// same number.
#[test]
fn a_drive_with_two_paths_is_there_once() -> anyhow::Result<()> {
    let machine = Machine::new()?;
    for name in ["sda", "sdb", "sdc", "sdd", "sde", "sdf"] {
        machine.add(name, 1000, &[])?;
    }
    machine.add("dm-0", 1000, &["sda", "sdb"])?;
    machine.write("block/dm-0/dm/uuid", "mpath-3600508b4000971ca0000a00003640000\n")?;
    machine.add("dm-1", 500, &["dm-0"])?;
    machine.write("block/dm-1/dm/uuid", "LVM-abc\n")?;
    for (name, wwid) in [("sdc", "naa.6005"), ("sdd", "naa.6005"), ("sde", "t10.ATA"), ("sdf", "t10.ATA")] {
        machine.write(&format!("block/{name}/device/wwid"), wwid)?;
    }
    let disks = machine.disks(&[("sda", 60), ("sdb", 30), ("dm-0", 90), ("dm-1", 90)])?;
    assert_eq!(told(&disks), [("sda", DISK, true, 60), ("sdb", DISK, true, 30)]);
    assert_eq!(storage_sectors(&machine), Some(4000), "a, c, e and f");
    Ok(())
}

#[test]
fn what_stands_on_others_or_in_memory_is_not_counted() -> anyhow::Result<()> {
    let machine = Machine::new()?;
    machine.add("sda", 1000, &[])?;
    machine.add("loop0", 300, &[])?;
    machine.add("loop1", 300, &[])?;
    machine.add("loop2", 100, &[])?;
    machine.add("loop3", 100, &[])?;
    machine.add("md0", 300, &["loop0", "loop1"])?;
    machine.add("drbd0", 200, &["sda"])?;
    machine.add("drbd1", 200, &[])?;
    machine.add("nbd0", 400, &[])?;
    machine.add("zd0", 50, &[])?;
    machine.add("zram0", 50, &[])?;
    machine.write("block/loop0/loop/backing_file", "/srv/a b/file\n")?;
    machine.write("block/loop1/loop/backing_file", "/home/file (deleted)\n")?;
    machine.write("block/loop2/loop/backing_file", "/home/net/file\n")?;
    machine.write("block/loop3/loop/backing_file", "/srv/memory/file\n")?;
    machine.write(
        "self/mountinfo",
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 9:0 / /home rw - xfs /dev/md0 rw\n\
         22 21 0:60 / /home/net rw - nfs4 server:/export rw\n23 20 0:61 / /srv/memory rw - tmpfs tmpfs rw\n",
    )?;
    machine.write("dev/devices/block/sda/sda1/partition", "1")?;
    machine.write("dev/devices/block/md0/dev", "")?;
    std::fs::create_dir_all(machine.0.path().join("dev/block"))?;
    for (number, target) in [("8:1", "sda/sda1"), ("9:0", "md0")] {
        let link = machine.0.path().join("dev/block").join(number);
        std::os::unix::fs::symlink(format!("../devices/block/{target}"), link)?;
    }
    let names = ["sda", "loop0", "loop1", "loop2", "loop3", "md0", "drbd0", "drbd1", "nbd0", "zd0", "zram0"];
    let disks = machine.disks(&names.map(|name| (name, 10)))?;
    let is_device = |disk: &&DiskMetrics| disk.kind.is_some();
    let devices: Vec<DiskMetrics> = disks.iter().filter(is_device).cloned().collect();
    let expected = [
        ("sda", DISK, true, 10),
        ("loop0", LOOP, false, 10),
        ("loop1", LOOP, false, 10),
        ("loop2", LOOP, false, 10),
        ("loop3", LOOP, false, 10),
        ("md0", VOLUME, false, 10),
        ("drbd0", VOLUME, false, 10),
        ("drbd1", DISK, true, 10),
        ("nbd0", DISK, true, 10),
        ("zd0", VOLUME, false, 10),
        ("zram0", MEMORY, false, 10),
    ];
    assert_eq!(told(&devices), expected);
    let slaves = |index: usize| devices[index].slaves.join(" ");
    assert_eq!([1, 2, 3, 4, 5, 6].map(slaves), ["sda", "md0", "", "", "loop0 loop1", "sda"]);
    assert_eq!(storage_sectors(&machine), Some(1600), "sda, drbd1 and nbd0");
    Ok(())
}
