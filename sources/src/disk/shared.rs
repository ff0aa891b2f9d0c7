//! The space of file systems that can hang: on the network or in user space.
//!
//! Asking a dead one can put the caller to sleep where not even a fatal signal reaches it, and the process could then
//! never end. So a forked child asks, and is left behind when it hangs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::space::Space;

/// How often they are asked.
const REFRESH: Duration = Duration::from_secs(10);

/// One that takes longer to answer counts as dead until it does.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct SharedMounts {
    asked: Option<Instant>,
    space: HashMap<PathBuf, Space>,
    /// Children that hang, with the mount that each one hangs in.
    hanging: Vec<(PathBuf, Asker)>,
}

impl SharedMounts {
    /// The space of each mount that answers.
    pub(super) fn space(&mut self, points: Vec<&Path>, now: Instant) -> &HashMap<PathBuf, Space> {
        let due = self.asked.is_none_or(|asked| now.saturating_duration_since(asked) >= REFRESH);
        if due && !points.is_empty() {
            self.asked = Some(now);
            self.space.clear();
            self.hanging.retain_mut(|(_, asker)| !asker.has_ended());
            for point in points {
                if !self.hanging.iter().any(|(other, _)| other == point) {
                    self.ask(point);
                }
            }
        }
        &self.space
    }

    fn ask(&mut self, point: &Path) {
        let Ok(mut asker) = Asker::start(point) else { return };
        match asker.answer(LIMIT) {
            Answer::Space(space) => {
                self.space.insert(point.to_owned(), space);
            }
            Answer::Refused => (),
            Answer::Hangs => {
                log::warn!("{} does not answer; its space is left out until it does", point.display());
                self.hanging.push((point.to_owned(), asker));
            }
        }
    }
}

enum Answer {
    Space(Space),
    Refused,
    Hangs,
}

/// A child that asks one file system.
struct Asker {
    child: libc::pid_t,
    pipe: File,
}

impl Asker {
    fn start(point: &Path) -> std::io::Result<Self> {
        let path = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(point.as_os_str()))?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let child = fork::call(&path, &write)?;
        Ok(Self { child, pipe: File::from(read) })
    }

    fn answer(&mut self, limit: Duration) -> Answer {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&limit));
        if ready == Ok(0) {
            return Answer::Hangs;
        }
        let mut bytes = [0; 24];
        let read = self.pipe.read_exact(&mut bytes);
        self.has_ended();
        let field = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
        match read {
            Ok(()) => Answer::Space(Space { total: field(0), free: field(1), available: field(2) }),
            Err(_) => Answer::Refused,
        }
    }

    /// Reaps the child if it has ended.
    fn has_ended(&mut self) -> bool {
        fork::reap(self.child)
    }
}

/// The one place that forks.
mod fork {
    use std::ffi::CStr;
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// Calls `statvfs` in a child, which writes total, free and available bytes into the pipe and ends.
    pub(super) fn call(path: &CStr, pipe: &OwnedFd) -> io::Result<libc::pid_t> {
        let pipe = pipe.as_raw_fd();
        // SAFETY: the child of a program with threads may only do what is async-signal-safe. It makes plain system
        // calls on memory that was there before the fork, allocates nothing, and ends by `_exit`. It is a fork
        // without an exit signal: nobody gets a SIGCHLD, nobody who waits for children of the usual kind sees it.
        unsafe {
            match libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    close_all_but(pipe);
                    let mut stat: libc::statvfs = std::mem::zeroed();
                    if libc::statvfs(path.as_ptr(), &mut stat) == 0 {
                        let blocks = [stat.f_blocks, stat.f_bfree, stat.f_bavail];
                        let bytes = blocks.map(|blocks| blocks.saturating_mul(stat.f_frsize));
                        libc::write(pipe, bytes.as_ptr().cast(), size_of_val(&bytes));
                    }
                    libc::_exit(0)
                }
                child => Ok(child as libc::pid_t),
            }
        }
    }

    /// A child that hangs must not keep the job's pipes open.
    ///
    /// # Safety
    /// Only for a forked child: every other owner of a descriptor would lose it.
    unsafe fn close_all_but(keep: libc::c_int) {
        let keep = keep as libc::c_uint;
        // SAFETY: system calls on numbers; that the descriptors go is the caller's wish.
        unsafe {
            if keep > 0 {
                libc::syscall(libc::SYS_close_range, 0, keep - 1, 0);
            }
            // Before kernel 5.9 there is no such call.
            if libc::syscall(libc::SYS_close_range, keep + 1, libc::c_uint::MAX, 0) != 0 {
                (0..4096).filter(|fd| *fd != keep as libc::c_int).for_each(|fd| _ = libc::close(fd));
            }
        }
    }

    /// Whether the child has ended; it is reaped then.
    pub(super) fn reap(child: libc::pid_t) -> bool {
        // SAFETY: a system call with no pointer but null, which is allowed.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_answers_for_a_mount_and_not_for_what_is_none() {
        let mut shared = SharedMounts::default();
        let now = Instant::now();
        let space = shared.space(vec![Path::new("/"), Path::new("/no/such/directory")], now).clone();
        let here = Space::of(Path::new("/"));
        assert_eq!(space.get(Path::new("/")).map(|space| space.total), here.map(|here| here.total));
        assert_eq!(space.len(), 1);
        assert!(shared.hanging.is_empty());
    }
}
