//! The processes of the machine, by way of one directory handle and one buffer.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::scan::number;

pub(crate) struct Pids {
    directory: File,
    buffer: Vec<u8>,
}

impl Pids {
    pub(crate) fn open(procfs: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(procfs, flags, Mode::empty())?;
        Ok(Self { directory: directory.into(), buffer: Vec::with_capacity(32 * 1024) })
    }

    /// Calls `each` with every numeric directory, in ascending order where the kernel lists them so.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(i32)) -> anyhow::Result<()> {
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.directory, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let pid = number(entry?.file_name().to_bytes());
            pid.and_then(|pid| i32::try_from(pid).ok()).into_iter().for_each(&mut each);
        }
        Ok(())
    }
}
