//! Which children are the command and its orphans: only those are reaped.
//!
//! A plugin or a GPU library waits itself for the processes that it forks. Orphans come to the first thread of the
//! process, which also started the command. So do children of a thread that has ended: these have the mark of all
//! processes that this program forks.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use nix::libc;
use resource_tracker_sources::job::Io;
use resource_tracker_sources::{fork_mark, shows_own_pid_namespace};

use super::wait::{self, Ended};

/// The children of the first thread.
pub(super) struct Children {
    /// Those that were there before the command.
    others: HashSet<i32>,
    mark: Option<u64>,
    /// A procfs whose process ids are those of this program.
    procfs: Option<PathBuf>,
    /// The `io` of the command.
    io: Option<File>,
}

impl Children {
    /// Takes note of those that there are, before the command is started.
    pub(super) fn before_the_command(mark: Option<u64>, procfs: &Path) -> Self {
        // Without that file, they cannot be told from the orphans.
        let others = of_first_thread().unwrap_or_default();
        let procfs = shows_own_pid_namespace(procfs).then(|| procfs.to_owned());
        Self { others: others.into_iter().filter(|pid| !is_marked(*pid, mark)).collect(), mark, procfs, io: None }
    }

    /// Opens the file that is read when the command has ended: by then a user may not open it any more.
    pub(super) fn command_began(&mut self, command: i32) {
        self.io = self.procfs.as_ref().and_then(|procfs| Io::open(procfs, command));
    }

    /// Reaps the command and its processes that have ended.
    pub(super) fn ended(&mut self, command: i32) -> Vec<Ended> {
        let mut ended = Vec::new();
        loop {
            let first = match wait::first_ended() {
                Ok(Some(pid)) => Some(pid).filter(|pid| self.is_of(command, *pid)),
                Err(nix::Error::EINVAL) => None,
                Ok(None) | Err(_) => return ended,
            };
            // Behind a child that is left alone there may be more.
            let Some(one) = first.and_then(|pid| self.reap(command, pid)) else { break };
            ended.push(one);
        }
        // The kernel may leave out some children of the list while others end, so this repeats until it finds none.
        loop {
            let all = of_first_thread().unwrap_or_else(|| HashSet::from([command]));
            // The id of a child that was waited for may be reused by a process of the command.
            self.others.retain(|pid| all.contains(pid) || wait::is_child(*pid));
            let count = ended.len();
            let of_command = all.into_iter().filter(|pid| wait::has_ended(*pid) && self.is_of(command, *pid));
            ended.extend(of_command.filter_map(|pid| self.reap(command, pid)));
            if ended.len() == count {
                return ended;
            }
        }
    }

    /// Reaps a child. Before that, its file is read for the I/O that `wait4` does not report.
    fn reap(&self, command: i32, pid: i32) -> Option<Ended> {
        let of_orphan = || self.procfs.as_ref().and_then(|procfs| Io::of(procfs, pid));
        let io = if pid == command { self.io.as_ref().and_then(Io::read) } else { of_orphan() };
        let ended = wait::one_if_ended(pid)?;
        Some(Ended { usage: io.map_or(ended.usage, |io| ended.usage.with_io(io)), ..ended })
    }

    fn is_of(&self, command: i32, pid: i32) -> bool {
        pid == command || !self.others.contains(&pid) && !is_marked(pid, self.mark)
    }
}

fn is_marked(pid: i32, mark: Option<u64>) -> bool {
    mark.is_some_and(|mark| fork_mark::is_on(pid, mark))
}

/// The children of the first thread, those included that have ended and were not waited for.
fn of_first_thread() -> Option<HashSet<i32>> {
    // SAFETY: it returns a number.
    let pid = unsafe { libc::getpid() };
    let text = std::fs::read_to_string(format!("/proc/self/task/{pid}/children")).ok()?;
    text.split_whitespace().map(|number| number.parse().ok()).collect()
}
