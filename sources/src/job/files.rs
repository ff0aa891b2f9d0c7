//! Opens and reads the files of processes, and keeps open as many as the descriptor limit leaves room for.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, getrlimit};

use crate::procfile::read_at;
use resource_tracker_scan::number;

/// Of the descriptors that the tracker may have, at most this share is used for processes: sinks need some as well.
const SHARE: u64 = 2;
/// More than this many would cost the kernel more memory than opening them costs time.
const MOST: u64 = 4096;

pub(super) struct Files {
    procfs: File,
    /// How many more may be kept open.
    room: usize,
    path: Vec<u8>,
    text: Vec<u8>,
}

impl Files {
    /// # Errors
    /// When procfs is not there.
    pub(super) fn new(procfs: &Path) -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let room = (limit / SHARE).min(MOST) as usize;
        Ok(Self { procfs: File::open(procfs)?, room, path: Vec::new(), text: Vec::new() })
    }

    /// What `/proc/PID/NAME` says now, through `kept` where it is open, and `keep`ing it open if there is room.
    ///
    /// A file that was kept open belongs to its process for good: when that has ended, it cannot be read any more,
    /// even if another process has the pid.
    pub(super) fn read(&mut self, pid: i32, name: &str, kept: &mut Option<File>, keep: bool) -> io::Result<&[u8]> {
        match kept {
            Some(file) => read_at(file, &mut self.text)?,
            None => {
                let file = self.open(pid, name)?;
                read_at(&file, &mut self.text)?;
                if keep && self.room > 0 {
                    self.room -= 1;
                    *kept = Some(file);
                }
            }
        }
        Ok(&self.text)
    }

    /// The ids of a process's threads; none when it is gone.
    pub(super) fn threads(&self, pid: i32) -> impl Iterator<Item = u64> + use<> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.procfs, format!("{pid}/task"), flags, Mode::empty());
        let entries = folder.and_then(rustix::fs::Dir::new).into_iter().flatten().flatten();
        entries.filter_map(|entry| number(entry.file_name().to_bytes()))
    }

    /// Closes what was kept.
    pub(super) fn close(&mut self, kept: &mut Option<File>) {
        self.room += usize::from(kept.take().is_some());
    }

    fn open(&mut self, pid: i32, name: &str) -> io::Result<File> {
        self.path.clear();
        write!(&mut self.path, "{pid}/{name}")?;
        Ok(openat(&self.procfs, self.path.as_slice(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_room_files_are_opened_each_time() {
        let pid = std::process::id() as i32;
        let mut files = Files { room: 1, ..Files::new(Path::new("/proc")).unwrap() };
        let (mut stat, mut io) = (None, None);
        for _ in 0..2 {
            assert!(files.read(pid, "stat", &mut stat, true).unwrap().starts_with(format!("{pid} (").as_bytes()));
            assert!(files.read(pid, "io", &mut io, true).unwrap().starts_with(b"rchar: "));
            assert!(stat.is_some() && io.is_none());
        }
        files.close(&mut stat);
        files.close(&mut io);
        assert_eq!(files.room, 1);
    }

    #[test]
    fn a_file_that_is_kept_outlives_nobody() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (mut files, mut kept) = (Files::new(Path::new("/proc")).unwrap(), None);
        let pid = child.id() as i32;
        assert!(files.read(pid, "stat", &mut kept, true).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(files.read(pid, "stat", &mut kept, true).is_err());
    }
}
