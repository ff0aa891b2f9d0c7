//! `fork(2)`, also into another cgroup, and what the new process reports until it becomes another program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc;
use rustix::process::Pid;

/// Of the kernel's `sched.h`. (The constant of `libc` has a type that it does not fit.)
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// What the new process says when it is prepared. The number of an error can follow.
const PREPARED: [u8; 1] = [0];

/// A process that is to become a program.
pub(super) struct Launch {
    child: Pid,
    /// Hangs up when it is the program, or is gone.
    report: File,
    is_prepared: bool,
}

impl Launch {
    /// Starts a process that prepares itself, and then becomes what `exec` turns it into.
    /// It has a copy of the memory: one that shared it, as `vfork` makes them, would begin with the peak memory of the
    /// tracker, which the kernel would then report for the command (4.9 instead of 1.6 MiB for `true`).
    /// With a `cgroup` (of v2) it is born in there: to enter it later would hold up every process of the machine for a
    /// moment.
    ///
    /// # Errors
    /// Those of making a process.
    ///
    /// # Safety
    /// `prepare` and `exec` must make nothing but system calls: the new process has a copy of this thread alone, and a lock
    /// that another one held, such as the allocator's, stays locked in it.
    pub(super) unsafe fn begin(
        cgroup: Option<BorrowedFd<'_>>,
        prepare: impl FnOnce(),
        exec: impl FnOnce() -> io::Error,
    ) -> io::Result<Self> {
        // Closed by a successful exec.
        let (report, mut told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map(|(read, write)| (File::from(read), File::from(write)))?;
        // SAFETY: the caller's promise.
        let pid = unsafe { fork_into(cgroup) }?;
        if pid == 0 {
            prepare();
            // Nobody is left to tell if one of these fails.
            let _ = told.write_all(&PREPARED);
            let error = exec().raw_os_error().unwrap_or(libc::EINVAL);
            let _ = told.write_all(&error.to_ne_bytes());
            // SAFETY: ends the process without running what the parent has registered for its own end.
            unsafe { libc::_exit(127) };
        }
        let child = Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?;
        Ok(Self { child, report, is_prepared: false })
    }

    /// The process.
    pub(super) fn child(&self) -> Pid {
        self.child
    }

    /// Waits until it is prepared, which is soon: all signals are blocked there.
    pub(super) fn wait_until_prepared(&mut self) {
        if !self.is_prepared {
            // Without an answer it is gone.
            let _ = self.report.read(&mut [0; PREPARED.len()]);
            self.is_prepared = true;
        }
    }

    /// Waits until it is the program, or is gone.
    ///
    /// # Errors
    /// That of `exec`.
    pub(super) fn end(mut self) -> io::Result<Pid> {
        let mut told = Vec::new();
        let _ = self.report.read_to_end(&mut told);
        match told.last_chunk() {
            None => Ok(self.child),
            Some(error) => {
                super::wait::one(self.child);
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(*error)))
            }
        }
    }
}

impl AsFd for Launch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }
}

/// # Safety
/// As [`Launch::begin`].
unsafe fn fork_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<i32> {
    let pid = match cgroup {
        // SAFETY: the caller's promise.
        None => unsafe { libc::fork() },
        Some(cgroup) => {
            // SAFETY: all fields are numbers, for which zero means that nothing is asked for.
            let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
            arguments.flags = CLONE_INTO_CGROUP;
            arguments.exit_signal = libc::SIGCHLD as u64;
            arguments.cgroup = cgroup.as_raw_fd() as u64;
            // SAFETY: without CLONE_VM and a stack it is a fork, which copies the memory; the arguments outlive the call.
            unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>()) as i32 }
        }
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}
