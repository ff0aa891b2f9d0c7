//! The processes of the machine, listed once a tick for all sources that want to know.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, fstat};

use crate::scan::number;

/// The numeric directories of procfs, by way of one directory handle and one buffer.
pub(crate) struct Pids {
    directory: File,
    buffer: Vec<u8>,
    listed: Vec<i32>,
    at: Option<Instant>,
    /// Whether `listed` is whole.
    is_listed: bool,
    /// How many there were, what was known when they were counted, and when that was.
    counted: Option<(u32, Tasks, Instant)>,
    /// Whether the link count of procfs tells how many there are.
    links_tell: bool,
}

/// Tasks that were ever created, and tasks that exist: while both stay as they are, nothing was created or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// `processes` of `/proc/stat`.
    pub(crate) created: u64,
    /// The number after the slash in `/proc/loadavg`.
    pub(crate) existing: u64,
}

/// A count is not believed for longer, should the numbers above be made up by somebody.
const BELIEVED: Duration = Duration::from_millis(500);

/// The directory is read in pieces of this size to count. Its own entries take two of them.
const GLANCE: usize = 1024;

const BUFFER: usize = 32 * 1024;

/// `PROC_PID_INIT_INO` of the kernel: the namespace that processes begin in.
const INITIAL: &str = "pid:[4026531836]";

/// Whether the pid namespace that this program is in is the first one of the machine.
pub(crate) fn is_initial_namespace(procfs: &Path) -> io::Result<bool> {
    Ok(std::fs::read_link(procfs.join("self/ns/pid"))?.as_os_str() == INITIAL)
}

impl Pids {
    /// The one of this run.
    pub(crate) fn shared(host: &Host) -> anyhow::Result<Arc<Mutex<Self>>> {
        host.shared(|| Self::open(&host.procfs).map(Mutex::new))
    }

    fn open(procfs: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(procfs, flags, Mode::empty())?;
        // The kernel counts the processes of all namespaces, also where the processes of others are hidden (`hidepid`).
        let links_tell = is_initial_namespace(procfs).unwrap_or(false) && procfs.join("1").exists();
        Ok(Self {
            directory: directory.into(),
            buffer: Vec::with_capacity(BUFFER),
            listed: Vec::new(),
            at: None,
            is_listed: false,
            counted: None,
            links_tell,
        })
    }

    /// The process ids, in ascending order, as they were at this tick.
    pub(crate) fn list(&mut self, at: Instant) -> anyhow::Result<&[i32]> {
        if self.at != Some(at) {
            self.read(None)?;
            self.at = Some(at);
        }
        Ok(&self.listed)
    }

    /// How many there are at this tick; as many as before when `tasks` says so. They are listed only where there is no
    /// other way.
    pub(crate) fn count(&mut self, at: Instant, tasks: Option<Tasks>) -> anyhow::Result<u32> {
        if self.at == Some(at) {
            return Ok(self.listed.len() as u32);
        }
        if let Some((count, then, when)) = self.counted
            && Some(then) == tasks
            && at.saturating_duration_since(when) < BELIEVED
        {
            // So is the list from then.
            self.at = self.is_listed.then_some(at);
            return Ok(count);
        }
        let by_links = if self.links_tell { self.count_by_links(at)? } else { None };
        let count = match by_links {
            Some(count) => count,
            None => self.list(at)?.len() as u32,
        };
        self.counted = tasks.map(|tasks| (count, tasks, at));
        Ok(count)
    }

    /// The link count of procfs is 2, one for each of its own directories, and one for each process: exactly as many as
    /// a list has, for the price of a glance.
    fn count_by_links(&mut self, at: Instant) -> anyhow::Result<Option<u32>> {
        let Some(own) = self.read(Some(GLANCE))? else {
            self.at = Some(at);
            return Ok(None);
        };
        let links = fstat(&self.directory)?.st_nlink as u64;
        Ok(links.checked_sub(2 + own).and_then(|count| u32::try_from(count).ok()))
    }

    /// Reads the list. With the size of a `glance` only the first pieces, when there are more: then it says how many
    /// directories come before the processes.
    fn read(&mut self, glance: Option<usize>) -> anyhow::Result<Option<u64>> {
        self.listed.clear();
        (self.at, self.is_listed) = (None, false);
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

/// A lock that a panic elsewhere leaves usable: the list is read anew at each tick.
pub(crate) fn lock(pids: &Mutex<Pids>) -> MutexGuard<'_, Pids> {
    pids.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reading between two looks at the link count that agree, which a busy machine gives now and then.
    #[test]
    fn links_count_what_a_list_has() {
        let mut pids = Pids::open(Path::new("/proc")).unwrap();
        if !pids.links_tell {
            return eprintln!("skipped: not in the first pid namespace");
        }
        let links = |pids: &Pids| fstat(&pids.directory).unwrap().st_nlink as u64;
        let is_told = |pids: &mut Pids| {
            let before = links(pids);
            let own = pids.read(Some(1024)).unwrap().expect("more processes than that");
            pids.read(None).unwrap();
            (before == links(pids)).then_some((before - 2 - own, pids.listed.len() as u64))
        };
        let (told, listed) =
            (0..10_000).find_map(|_| is_told(&mut pids)).expect("a machine that is quiet for a moment");
        assert_eq!(told, listed);
    }

    #[test]
    fn a_directory_that_is_read_whole_is_a_list() {
        let procfs = tempfile::tempdir().unwrap();
        for name in ["7", "1", "30", "sys", "x1"] {
            std::fs::create_dir(procfs.path().join(name)).unwrap();
        }
        let mut pids = Pids::open(procfs.path()).unwrap();
        pids.links_tell = true;
        let now = Instant::now();
        assert_eq!(pids.count(now, None).unwrap(), 3);
        assert_eq!((pids.at, pids.list(now).unwrap()), (Some(now), &[1, 7, 30][..]));
        let tasks = Some(Tasks { created: 9, existing: 9 });
        let later = now + BELIEVED;
        assert_eq!(pids.count(later, tasks).unwrap(), 3);
        std::fs::create_dir(procfs.path().join("31")).unwrap();
        assert_eq!(pids.count(later + BELIEVED / 2, tasks).unwrap(), 3, "nothing was created");
        assert_eq!(pids.count(later + BELIEVED, tasks).unwrap(), 4);
    }
}
