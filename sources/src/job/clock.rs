//! The CPU-time clock of another process: exact to the nanosecond, and cheaper to read than any file.

use std::time::Duration;

/// CPU time of the process, all its threads and those that have ended included, but not its children. Without a
/// process it is `None`.
///
/// It is the clock of `clock_getcpuclockid(3)`, which needs no permission.
pub(crate) fn cpu_time(pid: i32) -> Option<Duration> {
    /// `CPUCLOCK_SCHED` of the kernel's `posix-timers.h`; the bit for a single thread is not set.
    const SCHED: libc::clockid_t = 2;
    let clock = (!pid << 3) | SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it; any number is a valid clock to ask for.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn it_is_the_clock_that_the_process_has_itself() {
        let own = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let (before, asked, after) = (own(), cpu_time(std::process::id() as i32).unwrap(), own());
        assert!(before <= asked && asked <= after, "{before:?} {asked:?} {after:?}");
        assert_eq!(cpu_time(1 << 23), None, "more than the kernel gives out");
    }
}
