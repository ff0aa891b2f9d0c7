//! `wait4(2)` and `waitid(2)`: which child has ended, how, and what it used.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use resource_tracker_sources::job::{Io, Switches, Usage};
use rustix::process::Pid;

use crate::ending::Ending;

/// A child that has ended and was reaped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub(super) pid: i32,
    pub(super) ending: Ending,
    /// With that of the children it had waited for.
    pub(super) usage: Usage,
}

/// Whether this process may wait for its children, which a sandbox can refuse.
pub(super) fn is_allowed() -> nix::Result<()> {
    // SAFETY: it returns a number.
    let own = unsafe { libc::getpid() };
    let looked = look(libc::P_PID, own, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG).map(drop);
    // SAFETY: a system call on numbers; nothing is written.
    let found = unsafe { libc::wait4(own, std::ptr::null_mut(), libc::WNOHANG, std::ptr::null_mut()) };
    let waited = Errno::result(found).map(drop);
    // No process is a child of its own, and both calls are to say just that.
    [looked, waited].into_iter().filter(|answer| *answer != Err(Errno::ECHILD)).collect()
}

/// The first child of this thread that has ended and was not reaped, adopted orphans included. A child that asked to be
/// traced is found when it is stopped as well.
///
/// # Errors
/// When there is no child, or the kernel is older than 4.7 and cannot tell.
pub(super) fn first_ended() -> nix::Result<Option<i32>> {
    let found = look(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WNOTHREAD)?;
    // SAFETY: the call has filled in what a SIGCHLD tells.
    Ok(found.map(|info| unsafe { info.si_pid() }))
}

/// The signal that stopped this child, if it is stopped. Each stop is returned once.
pub(super) fn stopped(pid: Pid) -> Option<c_int> {
    let pid = pid.as_raw_nonzero().get();
    let info = look(libc::P_PID, pid, libc::WSTOPPED | libc::WNOHANG).ok()??;
    // SAFETY: as above.
    let signal = unsafe { info.si_status() };
    if info.si_code == libc::CLD_TRAPPED {
        let_go(pid, signal);
        return None;
    }
    Some(signal)
}

/// What `waitid(2)` says; `None` when there is nothing yet to say.
fn look(which: libc::idtype_t, pid: i32, options: c_int) -> nix::Result<Option<libc::siginfo_t>> {
    // SAFETY: zeros are a value of the type, into which the call writes, and which outlives it.
    let (asked, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let asked = libc::waitid(which, pid as libc::id_t, &mut info, options);
        (asked, info)
    };
    Errno::result(asked)?;
    // The number is left 0 where there is none.
    Ok((info.si_signo != 0).then_some(info))
}

/// Reaps this child of this thread, if it has ended. A child that asked to be traced goes on.
pub(super) fn one_if_ended(pid: i32) -> Option<Ended> {
    wait(pid, libc::WNOHANG | libc::__WNOTHREAD)
}

/// Whether it is a child of this process that was not waited for.
pub(super) fn is_child(pid: i32) -> bool {
    look(libc::P_PID, pid, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG).is_ok()
}

/// Whether it is such a child, and is to be reaped or let go.
pub(super) fn has_ended(pid: i32) -> bool {
    matches!(look(libc::P_PID, pid, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG), Ok(Some(_)))
}

/// Waits until this child is to be reaped or let go. `false` when it cannot be waited for.
pub(super) fn until_ended(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().get();
    loop {
        match look(libc::P_PID, pid, libc::WEXITED | libc::WNOWAIT) {
            Err(Errno::EINTR) => (),
            looked => return looked.is_ok(),
        }
    }
}

/// Waits for this child, and reaps it.
pub(super) fn one(pid: Pid) -> Option<Ended> {
    wait(pid.as_raw_nonzero().get(), 0)
}

fn wait(pid: i32, options: i32) -> Option<Ended> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both are valid to write one of their type to, and a `rusage` of zeros is one.
        let found = unsafe { libc::wait4(pid, &mut status, options, usage.as_mut_ptr()) };
        if found > 0 && libc::WIFSTOPPED(status) {
            let_go(found, libc::WSTOPSIG(status));
            continue;
        }
        if found > 0 {
            let ending = match libc::WIFEXITED(status) {
                true => Ending::Exited(libc::WEXITSTATUS(status)),
                false => Ending::Killed(libc::WTERMSIG(status)),
            };
            // SAFETY: it was all zeros, and the call has filled it.
            let usage = unsafe { usage.assume_init() };
            return Some(Ended { pid: found, ending, usage: convert(&usage) });
        }
        if found == 0 || Errno::last() != Errno::EINTR {
            return None;
        }
    }
}

/// Ends the tracing of a child, and lets it have the signal for which it was stopped. With `PTRACE_TRACEME` it made its
/// parent its tracer, which gets notice of each signal instead of it.
pub(super) fn let_go(pid: i32, signal: i32) {
    // SAFETY: a system call on numbers.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, signal) };
}

/// The kernel counts storage in units of 512 bytes and memory in KiB.
fn convert(usage: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
            + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0))
    };
    let times = |count: libc::c_long, unit: u64| u64::try_from(count).unwrap_or(0).saturating_mul(unit);
    Usage {
        utime: time(usage.ru_utime),
        stime: time(usage.ru_stime),
        max_rss: times(usage.ru_maxrss, 1024),
        minor_faults: times(usage.ru_minflt, 1),
        major_faults: times(usage.ru_majflt, 1),
        switches: Switches { voluntary: times(usage.ru_nvcsw, 1), involuntary: times(usage.ru_nivcsw, 1) },
        io: Io { read_bytes: times(usage.ru_inblock, 512), write_bytes: times(usage.ru_oublock, 512), ..Io::default() },
        lacks_io: true,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_ending_and_what_was_used() {
        let run = |script: &str| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            assert!(until_ended(Pid::from_child(&child)));
            assert!(is_child(child.id() as i32) && has_ended(child.id() as i32));
            let ended = one(Pid::from_child(&child)).unwrap();
            assert!(!is_child(child.id() as i32), "it was reaped");
            assert!(child.wait().is_err() && !until_ended(Pid::from_child(&child)), "it was reaped");
            ended
        };
        assert_eq!(run("exit 7").ending, Ending::Exited(7));
        assert_eq!(run("kill -KILL $$").ending, Ending::Killed(9));
        let busy = run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").usage;
        assert!(busy.utime > Duration::from_millis(5) && busy.max_rss > 100 << 10, "{busy:?}");
        assert_eq!(wait(i32::MAX, 0), None);
    }
}
