//! Processes that were not there before: found by one listing of procfs, without opening those that are known.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use resource_tracker_core::{Host, Tick};

use super::files::Files;
use super::stat::Stat;
use crate::pids::{Pids, lock};
use crate::procfile::ProcFile;
use crate::scan::{number, words};

/// After a pause as long as this, process ids may have been given out a whole round since.
const LONG: Duration = Duration::from_secs(5);

pub(super) struct Newcomers {
    pids: Arc<Mutex<Pids>>,
    loadavg: Option<ProcFile>,
    last_pid: Option<u64>,
    /// Processes that were looked at and do not belong to the tree, in order.
    foreign: Vec<i32>,
    next_foreign: Vec<i32>,
    unknown: Vec<Stat>,
}

impl Newcomers {
    pub(super) fn new(host: &Host) -> anyhow::Result<Self> {
        Ok(Self {
            pids: Pids::shared(host)?,
            loadavg: ProcFile::open_if_present(host.procfs.join("loadavg")),
            last_pid: None,
            foreign: Vec::new(),
            next_foreign: Vec::new(),
            unknown: Vec::new(),
        })
    }

    /// Fails when the processes cannot be listed at this tick, which `read` then does not.
    pub(super) fn list(&mut self, tick: &Tick) -> anyhow::Result<()> {
        lock(&self.pids).list(tick.at).map(drop)
    }

    /// Reads `stat` of each process that is neither `is_member` nor known to be foreign. The caller takes out those
    /// that it accepts and calls [`settle`](Self::settle).
    pub(super) fn read(
        &mut self,
        files: &mut Files,
        tick: &Tick,
        is_member: impl Fn(i32) -> bool,
    ) -> anyhow::Result<&mut Vec<Stat>> {
        if self.pids_went_round() || tick.elapsed >= LONG {
            self.foreign.clear();
        }
        let Self { pids, foreign, next_foreign, unknown, .. } = self;
        unknown.clear();
        next_foreign.clear();
        let mut known = foreign.iter().copied().peekable();
        for pid in lock(pids).list(tick.at)?.iter().copied() {
            while known.next_if(|foreign| *foreign < pid).is_some() {}
            if known.peek() == Some(&pid) {
                next_foreign.push(pid);
            } else if !is_member(pid) {
                // One that has ended by now, or that hides, is nobody.
                let text = files.read(pid, "stat", &mut None, false).ok();
                unknown.extend(text.and_then(Stat::parse).filter(|stat| !stat.is_taken_over()));
            }
        }
        Ok(unknown)
    }

    /// Those that were left are foreign, except where the parent is not known: it can have ended before it was read,
    /// and have belonged to the tree. Its child is looked at again.
    pub(super) fn settle(&mut self) {
        let Self { foreign, next_foreign, unknown, .. } = self;
        let known = next_foreign.len();
        for stat in unknown.iter() {
            let is_read = |parent| unknown.binary_search_by_key(&parent, |stat| stat.pid).is_ok();
            if stat.parent == 0 || next_foreign[..known].binary_search(&stat.parent).is_ok() || is_read(stat.parent) {
                next_foreign.push(stat.pid);
            }
        }
        next_foreign.sort_unstable();
        std::mem::swap(foreign, next_foreign);
    }

    /// Whether process ids began anew since the last time, so that a foreign one can have become a member's.
    fn pids_went_round(&mut self) -> bool {
        let last_pid = self.loadavg.as_mut().and_then(|file| last_pid(file.read().ok()?));
        let before = std::mem::replace(&mut self.last_pid, last_pid);
        before.zip(last_pid).is_some_and(|(before, now)| now < before)
    }
}

/// The process id given out last: the fifth word of `/proc/loadavg`.
fn last_pid(text: &[u8]) -> Option<u64> {
    number(words(text).nth(4)?)
}
