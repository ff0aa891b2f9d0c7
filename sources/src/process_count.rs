//! How many processes there are, without a list of them where there is another way.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::job::Pids;
use crate::pid_namespace::is_initial_namespace;

/// A count is not believed for longer, should the numbers of [`Tasks`] be made up by somebody.
const BELIEVED: Duration = Duration::from_millis(500);

/// The directory is read in pieces of this size to count. Its own entries take two of them.
const GLANCE: usize = 1024;

pub(crate) struct ProcessCount {
    pids: Pids,
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

impl ProcessCount {
    pub(crate) fn open(procfs: &Path) -> io::Result<Self> {
        // The kernel counts the processes of all namespaces, also where the processes of others are hidden (`hidepid`).
        let links_tell = is_initial_namespace(procfs).unwrap_or(false) && procfs.join("1").exists();
        Ok(Self { pids: Pids::open(procfs)?, counted: None, links_tell })
    }

    /// How many there are now; as many as before when `tasks` says so. They are listed only where there is no other way.
    pub(crate) fn read(&mut self, at: Instant, tasks: Option<Tasks>) -> io::Result<u32> {
        if let Some((count, then, when)) = self.counted
            && Some(then) == tasks
            && at.saturating_duration_since(when) < BELIEVED
        {
            return Ok(count);
        }
        self.pids.begin_tick();
        let by_links = if self.links_tell { self.by_links()? } else { None };
        let count = match by_links {
            Some(count) => count,
            None => self.pids.list()?.len() as u32,
        };
        self.counted = tasks.map(|tasks| (count, tasks, at));
        Ok(count)
    }

    /// The link count of procfs is 2, one for each of its own directories, and one for each process: exactly as many as
    /// a list has, for the price of a glance.
    fn by_links(&mut self) -> io::Result<Option<u32>> {
        let Some(own) = self.pids.glance(GLANCE)? else { return Ok(None) };
        let links = self.pids.links()?;
        Ok(links.checked_sub(2 + own).and_then(|count| u32::try_from(count).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reading between two looks at the link count that agree, which a busy machine gives now and then.
    #[test]
    fn links_count_what_a_list_has() {
        let ProcessCount { mut pids, links_tell, .. } = ProcessCount::open(Path::new("/proc")).unwrap();
        if !links_tell {
            return eprintln!("skipped: not in the first pid namespace");
        }
        let is_told = |pids: &mut Pids| {
            let before = pids.links().unwrap();
            let own = pids.glance(1024).unwrap().expect("more processes than that");
            let listed = pids.list().unwrap().len() as u64;
            (before == pids.links().unwrap()).then_some((before - 2 - own, listed))
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
        let mut count = ProcessCount::open(procfs.path()).unwrap();
        count.links_tell = true;
        let now = Instant::now();
        assert_eq!(count.read(now, None).unwrap(), 3);
        assert_eq!(count.pids.list().unwrap(), [1, 7, 30]);
        let tasks = Some(Tasks { created: 9, existing: 9 });
        let later = now + BELIEVED;
        assert_eq!(count.read(later, tasks).unwrap(), 3);
        std::fs::create_dir(procfs.path().join("31")).unwrap();
        assert_eq!(count.read(later + BELIEVED / 2, tasks).unwrap(), 3, "nothing was created");
        assert_eq!(count.read(later + BELIEVED, tasks).unwrap(), 4);
    }
}
