//! `wait4(2)`: who has ended, how, and what it used.

use std::mem::MaybeUninit;
use std::time::Duration;

use nix::libc;
use resource_tracker_sources::job::Usage;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::ending::Ending;

/// A child that has ended and was reaped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub(super) pid: i32,
    pub(super) ending: Ending,
    /// With that of the children it had waited for.
    pub(super) usage: Usage,
}

/// Which child of this thread is the first one that has ended, adopted orphans among them, and was not reaped.
///
/// # Errors
/// When there is no child, or before kernel 4.7, no telling.
pub(super) fn first_ended() -> nix::Result<Option<i32>> {
    let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WNOTHREAD;
    // SAFETY: zeros are a value of the type, into which the call writes, and which outlives it.
    let (asked, found) = unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let asked = libc::waitid(libc::P_ALL, 0, &mut found, options);
        // The call has filled in what a SIGCHLD tells, or left zeros.
        (asked, found.si_pid())
    };
    nix::errno::Errno::result(asked)?;
    Ok((found != 0).then_some(found))
}

/// Reaps this child of this thread, if it has ended.
pub(super) fn one_if_ended(pid: i32) -> Option<Ended> {
    wait(pid, libc::WNOHANG | libc::__WNOTHREAD)
}

/// Whether it is a child of this process that nobody has waited for.
pub(super) fn is_child(pid: i32) -> bool {
    look(pid).is_ok()
}

/// Whether it is such a child, and has ended.
pub(super) fn has_ended(pid: i32) -> bool {
    matches!(look(pid), Ok(Some(_)))
}

fn look(pid: i32) -> rustix::io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(Pid::from_raw(pid).ok_or(rustix::io::Errno::CHILD)?), options)
}

/// Waits until this child has ended, and leaves it to be reaped. `false` when it cannot be waited for.
pub(super) fn until_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options)).is_ok()
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
        if found > 0 {
            let ending = match libc::WIFEXITED(status) {
                true => Ending::Exited(libc::WEXITSTATUS(status)),
                false => Ending::Killed(libc::WTERMSIG(status)),
            };
            // SAFETY: it was all zeros, and the call has filled it.
            let usage = unsafe { usage.assume_init() };
            return Some(Ended { pid: found, ending, usage: convert(&usage) });
        }
        if found == 0 || nix::errno::Errno::last() != nix::errno::Errno::EINTR {
            return None;
        }
    }
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
        major_faults: times(usage.ru_majflt, 1),
        read_bytes: times(usage.ru_inblock, 512),
        write_bytes: times(usage.ru_oublock, 512),
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
