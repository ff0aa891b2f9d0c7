//! How long threads of the tree waited for a CPU. That is a file of each thread, and those that came and went are in none: so it
//! is read on request only.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::job::{Identity, JobDetails, Member, is_of_a_process_that_is_gone};
use crate::procfile::read_into;
use resource_tracker_scan::{number, words};

pub(super) struct RunQueue {
    procfs: PathBuf,
    /// Nanoseconds that each thread of each process had waited when it was last read.
    waited: HashMap<Identity, HashMap<u64, u64>>,
    has_begun: bool,
    buffer: Vec<u8>,
}

impl RunQueue {
    pub(super) fn new(procfs: &Path) -> Self {
        Self { procfs: procfs.to_owned(), waited: HashMap::new(), has_begun: false, buffer: Vec::new() }
    }

    /// What came since the last call; the first one counts from birth when the tree was `spawned` by the tracker, else from
    /// now. `None` when nobody lives, or this kernel does not tell.
    pub(super) fn read(&mut self, job: &JobDetails, spawned: bool) -> Option<Duration> {
        self.read_of(job.alive(), spawned)
    }

    fn read_of<'a>(&mut self, members: impl Iterator<Item = &'a Member>, spawned: bool) -> Option<Duration> {
        let mut before = std::mem::take(&mut self.waited);
        let is_new = std::mem::replace(&mut self.has_begun, true) || spawned;
        let mut sum = 0u64;
        for member in members {
            let folder = self.procfs.join(format!("{}/task", member.stat.pid));
            let mut threads = before.remove(&member.identity()).unwrap_or_default();
            // A list that is read while threads end can leave others out.
            let listed = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let listed = listed.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
            let all: HashSet<u64> = listed.chain(threads.keys().copied()).collect();
            for tid in all {
                let text = match read_into(&folder.join(format!("{tid}/schedstat")), &mut self.buffer) {
                    Err(error) if is_of_a_process_that_is_gone(&error) => {
                        threads.remove(&tid);
                        continue;
                    }
                    text => text.unwrap_or_default(),
                };
                // The time on CPUs is before it.
                let Some(now) = words(text).nth(1).and_then(number) else { continue };
                let then = threads.insert(tid, now).unwrap_or(if is_new { 0 } else { now });
                // Another thread can have the number by now.
                sum = sum.saturating_add(now.checked_sub(then).unwrap_or(now));
            }
            self.waited.insert(member.identity(), threads);
        }
        let is_known = self.waited.values().any(|threads| !threads.is_empty());
        is_known.then(|| Duration::from_nanos(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_thread_waited_since_the_last_reading() {
        let procfs = tempfile::tempdir().unwrap();
        let holds = |tid: u64, text: &str| {
            let thread = procfs.path().join(format!("9/task/{tid}"));
            std::fs::create_dir_all(&thread).unwrap();
            std::fs::write(thread.join("schedstat"), text).unwrap();
        };
        let mut member = Member::default();
        member.stat.pid = 9;
        let [mut spawned, mut attached] = [(); 2].map(|()| RunQueue::new(procfs.path()));
        let mut read = || {
            let each = [(&mut spawned, true), (&mut attached, false)];
            each.map(|(queue, spawned)| queue.read_of([&member].into_iter(), spawned).map(|time| time.as_nanos()))
        };
        assert_eq!(read(), [None, None], "there is none");
        holds(9, "500 70 3\n");
        holds(10, "500 garbage 3\n");
        assert_eq!(read(), [Some(70); 2], "a new one");
        holds(9, "500 75 3\n");
        holds(10, "500 1000 3\n");
        assert_eq!(read(), [Some(1005); 2]);
        holds(10, "0 4 1\n");
        assert_eq!(read(), [Some(4); 2], "it is another one");
        // A thread that cannot be read for a moment has not begun anew.
        std::fs::remove_file(procfs.path().join("9/task/9/schedstat")).unwrap();
        std::fs::create_dir(procfs.path().join("9/task/9/schedstat")).unwrap();
        assert_eq!(read(), [Some(0); 2]);
        std::fs::remove_dir(procfs.path().join("9/task/9/schedstat")).unwrap();
        holds(9, "500 78 3\n");
        assert_eq!(read(), [Some(3); 2], "its lifetime is counted once");
        // One that has ended is forgotten.
        std::fs::remove_file(procfs.path().join("9/task/9/schedstat")).unwrap();
        std::fs::remove_dir(procfs.path().join("9/task/9")).unwrap();
        assert_eq!(read(), [Some(0); 2]);
        holds(9, "500 20 3\n");
        assert_eq!(read(), [Some(20); 2], "it is another one");
        let mut late = RunQueue::new(procfs.path());
        assert_eq!(late.read_of([&member].into_iter(), false), Some(Duration::ZERO));
    }
}
