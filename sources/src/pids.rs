//! The processes of the machine, listed once a tick for all sources that want to know.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::scan::number;

/// The numeric directories of procfs, by way of one directory handle and one buffer.
pub(crate) struct Pids {
    directory: File,
    buffer: Vec<u8>,
    listed: Vec<i32>,
    at: Option<Instant>,
    /// What was known when the list was read, and when that was.
    read: Option<(Tasks, Instant)>,
}

/// Tasks that were ever created, and tasks that exist: while both stay as they are, nothing was created or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// `processes` of `/proc/stat`.
    pub(crate) created: u64,
    /// The number after the slash in `/proc/loadavg`.
    pub(crate) existing: u64,
}

/// A list is not believed for longer, should the numbers above be made up by somebody.
const BELIEVED: Duration = Duration::from_millis(500);

impl Pids {
    /// The one of this run.
    pub(crate) fn shared(host: &Host) -> anyhow::Result<Arc<Mutex<Self>>> {
        host.shared(|| Self::open(&host.procfs).map(Mutex::new))
    }

    fn open(procfs: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(procfs, flags, Mode::empty())?;
        Ok(Self {
            directory: directory.into(),
            buffer: Vec::with_capacity(32 * 1024),
            listed: Vec::new(),
            at: None,
            read: None,
        })
    }

    /// The process ids, in ascending order, as they were at this tick.
    pub(crate) fn list(&mut self, at: Instant) -> anyhow::Result<&[i32]> {
        if self.at != Some(at) {
            self.read()?;
            self.at = Some(at);
        }
        Ok(&self.listed)
    }

    /// As `list`, but the one from before when `tasks` says that it is still right.
    pub(crate) fn list_if_changed(&mut self, at: Instant, tasks: Option<Tasks>) -> anyhow::Result<&[i32]> {
        let is_same =
            |(read, when): (Tasks, Instant)| Some(read) == tasks && at.saturating_duration_since(when) < BELIEVED;
        if self.read.is_some_and(is_same) {
            self.at = Some(at);
        } else {
            self.read = tasks.map(|tasks| (tasks, at));
        }
        self.list(at)
    }

    fn read(&mut self) -> anyhow::Result<()> {
        self.listed.clear();
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.directory, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let pid = number(entry?.file_name().to_bytes());
            self.listed.extend(pid.and_then(|pid| i32::try_from(pid).ok()));
        }
        // The kernel lists them so; not every file system that stands in for procfs does.
        if !self.listed.is_sorted() {
            self.listed.sort_unstable();
        }
        Ok(())
    }
}

/// A lock that a panic elsewhere leaves usable: the list is read anew at each tick.
pub(crate) fn lock(pids: &Mutex<Pids>) -> MutexGuard<'_, Pids> {
    pids.lock().unwrap_or_else(PoisonError::into_inner)
}
