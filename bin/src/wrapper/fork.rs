//! `fork(2)`, also into another cgroup.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;
use rustix::process::Pid;

/// Of the kernel's `sched.h`. (The constant of `libc` has a type that it does not fit.)
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Why there is no command.
pub(super) enum Failure {
    /// No process could be made.
    Fork(io::Error),
    /// The process did not become the program.
    Exec(io::Error),
}

/// Starts a process that becomes what `exec` turns it into, and waits until it has, or until `exec` returned its error.
/// It has a copy of the memory: one that shared it, as `vfork` makes them, would begin with the peak memory of the tracker,
/// which the kernel then tells of the command (4.9 instead of 1.6 MiB for `true`).
/// With a `cgroup` (of v2) it is born in there: entering it later would hold every process of the machine up for a moment.
///
/// # Errors
/// Those of making a process, or that of `exec`.
///
/// # Safety
/// `exec` must make nothing but system calls: the new process has a copy of this thread alone, and a lock that another
/// one held, such as the allocator's, stays locked in it.
pub(super) unsafe fn fork_exec(
    cgroup: Option<BorrowedFd<'_>>,
    exec: impl FnOnce() -> io::Error,
) -> Result<Pid, Failure> {
    // Closed by a successful exec.
    let (mut failure, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map(|(read, write)| (File::from(read), File::from(write)))
        .map_err(|error| Failure::Fork(error.into()))?;
    // SAFETY: the caller's promise.
    let pid = unsafe { fork_into(cgroup) }.map_err(Failure::Fork)?;
    if pid == 0 {
        let error = exec().raw_os_error().unwrap_or(libc::EINVAL);
        // Nobody is left to tell if that fails.
        let _ = (&report).write_all(&error.to_ne_bytes());
        // SAFETY: ends the process without running what the parent has registered for its own end.
        unsafe { libc::_exit(127) };
    }
    drop(report);
    let mut error = [0; size_of::<i32>()];
    let child = Pid::from_raw(pid).ok_or_else(|| Failure::Fork(io::ErrorKind::Other.into()))?;
    match failure.read_exact(&mut error) {
        Err(_) => Ok(child),
        Ok(()) => {
            super::wait::one(child);
            Err(Failure::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(error))))
        }
    }
}

/// # Safety
/// As [`fork_exec`].
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
