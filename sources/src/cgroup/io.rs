//! Bytes that a cgroup had read from storage and sent there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::hierarchy::ReportedCgroup;
use crate::disk::holds_bytes;
use crate::procfile::ProcFile;
use crate::scan::{lines, number, words};

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

/// The devices of which bytes are counted. What is written to one that is made of others, such as a volume of LVM, is charged
/// for it and once more for those below.
struct Devices {
    folder: PathBuf,
    known: HashMap<Vec<u8>, bool>,
}

impl Devices {
    fn new(sysfs: &Path) -> Self {
        Self { folder: sysfs.join("dev/block"), known: HashMap::new() }
    }

    /// By its number, such as `8:0`.
    fn is_counted(&mut self, number: &[u8]) -> bool {
        if let Some(known) = self.known.get(number) {
            return *known;
        }
        let is_counted = holds_bytes(&self.folder.join(OsStr::from_bytes(number)));
        self.known.insert(number.to_owned(), is_counted);
        is_counted
    }
}

/// `8:0 rbytes=1 wbytes=2 rios=…`, a line for each device. `None` when one cannot be read.
fn io_v2(text: &[u8], devices: &mut Devices) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let mut words = words(line);
        let Some(device) = words.next() else { continue };
        let mut bytes = Bytes::default();
        for word in words {
            if let Some(value) = word.strip_prefix(b"rbytes=") {
                bytes.read = number(value)?;
            } else if let Some(value) = word.strip_prefix(b"wbytes=") {
                bytes.written = number(value)?;
            }
        }
        if bytes != Bytes::default() && devices.is_counted(device) {
            sum.read = sum.read.saturating_add(bytes.read);
            sum.written = sum.written.saturating_add(bytes.written);
        }
    }
    Some(sum)
}

/// `8:0 Read 1`, `8:0 Write 2` and others for each device, and `Total 3`. `None` when one cannot be read.
fn io_v1(text: &[u8], devices: &mut Devices) -> Option<Bytes> {
    let mut sum = Bytes::default();
    for line in lines(text) {
        let mut words = words(line);
        let (device, operation) = (words.next(), words.next());
        let sum = match operation {
            Some(b"Read") => &mut sum.read,
            Some(b"Write") => &mut sum.written,
            _ => continue,
        };
        let bytes = number(words.next()?)?;
        if bytes > 0 && device.is_some_and(|device| devices.is_counted(device)) {
            *sum = sum.saturating_add(bytes);
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

    /// What both versions say of a disk, a volume on it, a loop device, and a disk of which nothing is known.
    #[test]
    fn what_passes_through_several_devices_counts_once() {
        let sysfs = tempfile::tempdir().unwrap();
        let blocks = sysfs.path().join("devices/virtual/block");
        fs::create_dir_all(sysfs.path().join("dev/block")).unwrap();
        for (name, number, slave) in [("sda", "8:0", None), ("dm-0", "253:0", Some("sda")), ("loop0", "7:0", None)] {
            fs::create_dir_all(blocks.join(name).join("slaves")).unwrap();
            slave.map(|slave| fs::create_dir(blocks.join(name).join("slaves").join(slave)));
            symlink(blocks.join(name), sysfs.path().join("dev/block").join(number)).unwrap();
        }
        let mut devices = Devices::new(sysfs.path());
        let v2 = b"8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=10 wbytes=20\n7:0 rbytes=3 wbytes=3\n\
            259:0 rbytes=1 wbytes=2\n";
        assert_eq!(io_v2(v2, &mut devices), Some(Bytes { read: 11, written: 22 }));
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
