//! The processes of the machine.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, fstat};

use resource_tracker_scan::number;

const BUFFER: usize = 32 * 1024;

/// The bytes of a process in a list: `sizeof(struct linux_dirent64)` with a number as its name.
const ENTRY: usize = 24;

/// The numeric directories of procfs, by way of one directory handle and one buffer.
pub(crate) struct Pids {
    directory: File,
    buffer: Vec<u8>,
    listed: Vec<i32>,
    /// Whether `listed` is whole, and of this tick.
    is_listed: bool,
}

impl Pids {
    pub(crate) fn open(procfs: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(procfs, flags, Mode::empty())?;
        Ok(Self {
            directory: directory.into(),
            buffer: Vec::with_capacity(BUFFER),
            // Large enough not to grow at a later tick, as long as one reading is enough.
            listed: Vec::with_capacity(BUFFER / ENTRY),
            is_listed: false,
        })
    }

    /// A tick begins: the list of the tick before is out of date.
    pub(crate) fn begin_tick(&mut self) {
        self.is_listed = false;
    }

    /// The process ids in ascending order, read once in a tick.
    pub(crate) fn list(&mut self) -> io::Result<&[i32]> {
        if !self.is_listed {
            self.read(None)?;
        }
        Ok(&self.listed)
    }

    /// The process ids, if they were listed in this tick.
    pub(super) fn listed(&self) -> Option<&[i32]> {
        self.is_listed.then_some(&self.listed)
    }

    /// How many there were in the last list.
    pub(super) fn last_count(&self) -> usize {
        self.listed.len()
    }

    /// How many directories of procfs come before those of processes. `None` when as little as `size` bytes have all: then
    /// they are listed.
    pub(crate) fn glance(&mut self, size: usize) -> io::Result<Option<u64>> {
        self.read(Some(size))
    }

    /// The link count of procfs.
    pub(crate) fn links(&self) -> io::Result<u64> {
        Ok(fstat(&self.directory)?.st_nlink as u64)
    }

    /// Reads the list. With the size of a `glance` only the first pieces, when there are more: then it says how many
    /// directories come before the processes.
    fn read(&mut self, glance: Option<usize>) -> io::Result<Option<u64>> {
        self.listed.clear();
        self.is_listed = false;
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let buffer = self.buffer.spare_capacity_mut();
        let length = glance.unwrap_or(BUFFER).min(buffer.len());
        let mut entries = RawDir::new(&self.directory, &mut buffer[..length]);
        let mut own = 0;
        loop {
            let is_next_piece = entries.is_buffer_empty();
            let Some(entry) = entries.next() else { break };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            match number(name).and_then(|pid| i32::try_from(pid).ok()) {
                Some(_) if glance.is_some() && is_next_piece && !self.listed.is_empty() => return Ok(Some(own)),
                Some(pid) => self.listed.push(pid),
                None => own += u64::from(entry.file_type() == FileType::Directory && !name.starts_with(b".")),
            }
        }
        // The kernel lists them so; not every file system that stands in for procfs does.
        if !self.listed.is_sorted() {
            self.listed.sort_unstable();
        }
        self.is_listed = true;
        Ok(None)
    }
}
