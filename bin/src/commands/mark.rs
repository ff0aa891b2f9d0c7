//! `mark`: from inside a command, names what it does now.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::libc;
use resource_tracker_metrics::MarkKind;
use resource_tracker_sources::{MARK_DESCRIPTORS, MarkLine};
use rustix::fs::{Mode, OFlags};

use crate::family;
use crate::fdinfo::flags;

/// No chain of parents is longer.
const ANCESTORS: usize = 1000;
/// A line that is not longer than this is written whole or not at all. `PIPE_BUF`
const LONGEST_LINE: usize = 4096;

const WITHOUT_NAME: &str = "mark has no NAME: mark NAME says what the command does from now on, and ends what it did before; \
     mark --begin NAME begins it beside that, until mark --end NAME";

pub(crate) fn mark(name: Option<&str>, begin: bool, end: bool) -> anyhow::Result<i32> {
    let name = name.context(WITHOUT_NAME)?;
    let kind = match (begin, end) {
        (true, _) => MarkKind::Begin,
        (_, true) => MarkKind::End,
        _ => MarkKind::Next,
    };
    let Some(mut pipe) = pipe_of_tracker() else { return Ok(0) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = name.chars().take(LONGEST_LINE / 16).collect();
    let line = MarkLine { name, kind, at_ms: Some(now.as_millis() as u64) };
    let line = serde_json::to_string(&line)? + "\n";
    match pipe.write_all(line.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            log::warn!("the tracker has not read earlier marks yet; this one is lost")
        }
        // The tracker has ended.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => (),
        written => written.context("cannot tell the tracker")?,
    }
    Ok(0)
}

/// The pipe of the nearest tracker above this process that takes marks.
fn pipe_of_tracker() -> Option<File> {
    let parent = |pid: &i32| family::stat(Path::new("/proc"), *pid).map(|stat| stat.parent).filter(|pid| *pid > 0);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut ancestors = std::iter::successors(parent(&own), parent).take(ANCESTORS);
    ancestors.find_map(|pid| is_tracker(pid).then(|| pipe_of(pid))?)
}

/// Whether the process runs a program of this name, or this very program.
fn is_tracker(pid: i32) -> bool {
    let path = format!("/proc/{pid}/exe");
    let is_named = fs::read_link(&path).is_ok_and(|exe| {
        let name = exe.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_end_matches(" (deleted)") == crate::PROGRAM
    });
    let file = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    is_named || file(&path).is_ok_and(|theirs| file("/proc/self/exe").is_ok_and(|own| own == theirs))
}

/// The pipe for marks among the tracker's descriptors. It is close-on-exec; a descriptor that the tracker inherited is
/// not.
fn pipe_of(tracker: i32) -> Option<File> {
    let wanted = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    MARK_DESCRIPTORS.into_iter().find_map(|number| {
        let flags = flags(Path::new(&format!("/proc/{tracker}")), number.to_string())?;
        let is_it = flags & !libc::O_LARGEFILE == wanted;
        is_it.then(|| pipe_at(&format!("/proc/{tracker}/fd/{number}")))?
    })
}

/// Opens the pipe at this path for writing. The owner of the descriptor can put another file there at any time, so the
/// file is held first, then looked at, and only the file that is held is opened.
fn pipe_at(path: &str) -> Option<File> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let place = format!("/proc/self/fd/{}", held.as_raw_fd());
    // Only a pipe without a name: a FIFO in a folder is not a tracker's.
    let is_pipe = fs::read_link(&place).is_ok_and(|target| target.to_string_lossy().starts_with("pipe:["));
    is_pipe.then(|| File::options().append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(place).ok())?
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    /// Where a process shows this descriptor to others.
    fn shown(file: &impl AsFd) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), file.as_fd().as_raw_fd())
    }

    #[test]
    fn only_a_pipe_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let fifo = File::options().read(true).write(true).open(fifo).unwrap();
        for other in [shown(&file), shown(&fifo), "/proc/self/fd/1000".to_owned()] {
            assert!(pipe_at(&other).is_none(), "{other}");
        }
        let (mut read, write) = io::pipe().unwrap();
        writeln!(pipe_at(&shown(&read)).unwrap(), "a line").unwrap();
        drop(write);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a line\n");
    }
}
