//! What procfs says of a process, read without asking for memory: also a copy of one thread of many may do that.

use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use resource_tracker_sources::job::Stat;
use rustix::fs::{Mode, OFlags, RawDir};

/// Whether a process is stopped, by a signal or a tracer; `None` when it is gone, or there is no telling.
pub(super) fn is_stopped(pid: i32) -> Option<bool> {
    stat(pid).map(|stat| stat.is_stopped())
}

/// Whether a signal has stopped a process. A process with a tracer is, in between, stopped by that.
pub(super) fn is_stopped_by_signal(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| stat.is_stopped_by_signal())
}

/// The `stat` of the process, or of its first living thread.
fn stat(pid: i32) -> Option<Stat> {
    let first = parse(format_args!("{pid}/stat"))?;
    if !first.has_lost_leader() {
        return Some(first);
    }
    let tasks = open(format_args!("{pid}/task"), OFlags::DIRECTORY)?;
    let mut room = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(tasks, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let Some(tid) = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')) else { continue };
        let thread = parse(format_args!("{pid}/task/{tid}/stat"));
        if let Some(thread) = thread.filter(|thread| !thread.is_dead() && !thread.has_lost_leader()) {
            return Some(thread);
        }
    }
    Some(first)
}

fn parse(path: std::fmt::Arguments) -> Option<Stat> {
    Stat::parse(read(path, &mut [0; 1024])?)
}

/// The signals that are pending for a process, the lowest bit for the first.
pub(super) fn pending_of(pid: i32) -> Option<u64> {
    let mut text = [0; 4096];
    let status = read(format_args!("{pid}/status"), &mut text)?;
    let set = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 16).ok()
    };
    Some(set(b"SigPnd:")? | set(b"ShdPnd:")?)
}

/// The beginning of a file of `/proc`.
fn read<'a>(path: std::fmt::Arguments, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = open(path, OFlags::empty())?;
    let length = rustix::io::read(&file, &mut *text).ok()?;
    Some(&text[..length])
}

fn open(path: std::fmt::Arguments, how: OFlags) -> Option<OwnedFd> {
    let mut name = [0; 64];
    write!(&mut name[..], "/proc/{path}").ok()?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    rustix::fs::open(name, how | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    #[test]
    fn what_procfs_says_of_a_process() {
        assert_eq!(is_stopped(std::process::id() as i32), Some(false));
        assert_eq!((is_stopped(i32::MAX), pending_of(i32::MAX)), (None, None));
        let mut child = std::process::Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
        let pid = child.id() as i32;
        while is_stopped(pid) != Some(true) {
            std::thread::yield_now();
        }
        assert!(is_stopped_by_signal(pid));
        // SAFETY: a system call on numbers; the child was not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(pending_of(pid), Some(1 << (libc::SIGTERM - 1)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
