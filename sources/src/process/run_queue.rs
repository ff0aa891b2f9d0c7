//! How long threads of the tree waited for a CPU. That is a file of each thread, and those that came and went are in none: so it
//! is read on request only.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::job::{Identity, JobDetails, Member};
use crate::procfile::read_into;
use crate::scan::{number, words};

pub(super) struct RunQueue {
    procfs: PathBuf,
    /// Nanoseconds that each thread had waited at the last reading.
    waited: HashMap<(Identity, u64), u64>,
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
        let before = std::mem::take(&mut self.waited);
        let is_new = std::mem::replace(&mut self.has_begun, true) || spawned;
        let mut sum = 0u64;
        for member in members {
            let folder = self.procfs.join(format!("{}/task", member.stat.pid));
            let threads = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            for thread in threads {
                let Some(tid) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                let text = read_into(&thread.path().join("schedstat"), &mut self.buffer).unwrap_or_default();
                // The time on CPUs is before it.
                let Some(now) = words(text).nth(1).and_then(number) else { continue };
                let key = (member.identity(), tid);
                let then = before.get(&key).copied().unwrap_or(if is_new { 0 } else { now });
                // Another thread can have the number by now.
                sum = sum.saturating_add(now.checked_sub(then).unwrap_or(now));
                self.waited.insert(key, now);
            }
        }
        (!self.waited.is_empty()).then(|| Duration::from_nanos(sum))
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
        let mut late = RunQueue::new(procfs.path());
        assert_eq!(late.read_of([&member].into_iter(), false), Some(Duration::ZERO));
    }
}
