//! Bytes that a cgroup had read from storage and sent there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::hierarchy::ReportedCgroup;
use crate::disk::{Charged, charged};
use crate::procfile::ProcFile;
use resource_tracker_scan::{lines, number, words};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// The file of either version.
pub(super) struct Io {
    file: Option<ProcFile>,
    parse: fn(&[u8], &mut Devices) -> Option<Bytes>,
    devices: Devices,
}

impl Io {
    pub(super) fn open(cgroup: &ReportedCgroup, sysfs: &Path) -> Self {
        let v1 = cgroup.legacy("blkio").map(|directory| directory.join("blkio.throttle.io_service_bytes_recursive"));
        let v2 = || cgroup.unified.as_ref().map(|directory| directory.join("io.stat"));
        let parse = if v1.is_some() { io_v1 } else { io_v2 };
        let file = v1.or_else(v2).and_then(ProcFile::open_if_present);
        Self { file, parse, devices: Devices::new(sysfs) }
    }

    /// `None` as well when the cgroup has been removed.
    pub(super) fn read(&mut self) -> Option<Bytes> {
        let Self { file, parse, devices } = self;
        file.as_mut()?.parse(|text| parse(text, devices))
    }
}

/// What of each device counts.
struct Devices {
    folder: PathBuf,
    known: HashMap<Vec<u8>, Charged>,
}

impl Devices {
    fn new(sysfs: &Path) -> Self {
        Self { folder: sysfs.join("dev/block"), known: HashMap::new() }
    }

    /// Of the device with this number, such as `8:0`.
    fn charged(&mut self, number: &[u8]) -> Charged {
        if let Some(known) = self.known.get(number) {
            return *known;
        }
        let charged = charged(&self.folder.join(OsStr::from_bytes(number)));
        self.known.insert(number.to_owned(), charged);
        charged
    }
}

impl Bytes {
    fn add(&mut self, of: Self, charged: Charged) {
        if charged.reads {
            self.read = self.read.saturating_add(of.read);
        }
        if charged.writes {
            self.written = self.written.saturating_add(of.written);
        }
    }
}

/// `8:0 rbytes=1 wbytes=2 rios=…`, a line for each device; Linux 5.15 has numbers of other devices in front. `None` when one
/// cannot be read.
fn io_v2(text: &[u8], devices: &mut Devices) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let (mut device, mut bytes) = (None, Bytes::default());
        for word in words(line) {
            if let Some(value) = word.strip_prefix(b"rbytes=") {
                bytes.read = number(value)?;
            } else if let Some(value) = word.strip_prefix(b"wbytes=") {
                bytes.written = number(value)?;
            } else if !word.contains(&b'=') {
                device = Some(word);
            }
        }
        if let Some(device) = device.filter(|_| bytes != Bytes::default()) {
            sum.add(bytes, devices.charged(device));
        }
    }
    Some(sum)
}

/// `8:0 Read 1`, `8:0 Write 2` and others for each device, and `Total 3`. `None` when one cannot be read.
fn io_v1(text: &[u8], devices: &mut Devices) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let mut words = words(line);
        let Some(device) = words.next() else { continue };
        let bytes = match words.next() {
            Some(b"Read") => Bytes { read: number(words.next()?)?, written: 0 },
            Some(b"Write") => Bytes { read: 0, written: number(words.next()?)? },
            _ => continue,
        };
        if bytes != Bytes::default() {
            sum.add(bytes, devices.charged(device));
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// What both versions say of a disk, a volume on it, one that is encrypted, a loop device, and a disk of which nothing is known.
    #[test]
    fn what_passes_through_several_devices_counts_once() {
        let sysfs = tempfile::tempdir().unwrap();
        let blocks = sysfs.path().join("devices/virtual/block");
        fs::create_dir_all(sysfs.path().join("dev/block")).unwrap();
        for (name, number, uuid) in [
            ("sda", "8:0", ""),
            ("dm-0", "253:0", "LVM-x\n"),
            ("dm-1", "253:1", "CRYPT-LUKS2-x\n"),
            ("loop0", "7:0", ""),
        ] {
            fs::create_dir_all(blocks.join(name).join("slaves")).unwrap();
            if !uuid.is_empty() {
                fs::create_dir(blocks.join(name).join("slaves/sda")).unwrap();
                fs::create_dir(blocks.join(name).join("dm")).unwrap();
                fs::write(blocks.join(name).join("dm/uuid"), uuid).unwrap();
            }
            symlink(blocks.join(name), sysfs.path().join("dev/block").join(number)).unwrap();
        }
        let mut devices = Devices::new(sysfs.path());
        let v2 = b"8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=10 wbytes=20\n7:0 rbytes=3 wbytes=3\n\
            7:1 7:2 259:0 rbytes=1 wbytes=2\n";
        assert_eq!(io_v2(v2, &mut devices), Some(Bytes { read: 11, written: 22 }));
        // What is written to it is sent to the disk by the kernel in its own name.
        let encrypted = b"8:0 rbytes=10 wbytes=0\n253:1 rbytes=10 wbytes=20\n";
        assert_eq!(io_v2(encrypted, &mut devices), Some(Bytes { read: 10, written: 20 }));
        let v1 = b"8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:0 Total 30\n253:0 Read 10\n253:0 Write 20\n8:16 Read 1\nTotal 31\n";
        assert_eq!(io_v1(v1, &mut devices), Some(Bytes { read: 11, written: 20 }));
        assert_eq!(io_v2(b"8:0 rbytes=x wbytes=20\n", &mut devices), None);
        assert_eq!(io_v2(b"", &mut devices), Some(Bytes::default()));
        assert_eq!(io_v1(b"8:0 Read 1\n8:0 Write\n", &mut devices), None);
        assert_eq!(io_v1(b"Total 0\n", &mut devices), Some(Bytes::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut devices = Devices::new(Path::new("/nowhere"));
            io_v1(&text, &mut devices);
            io_v2(&text, &mut devices);
        }
    }
}
