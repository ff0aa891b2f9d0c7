//! How far the clock of the machine can be off.

use resource_tracker_metrics::RunClock;

/// Asks the kernel; `None` where it does not say, as in some sandboxes.
pub fn clock_error() -> Option<RunClock> {
    // SAFETY: `timex` is plain numbers, for which zeros are values; no modes are set, so that nothing is changed.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    if state < 0 {
        return None;
    }
    let secs = |micros: libc::c_long| micros as f64 / 1e6;
    Some(RunClock {
        synchronized: timex.status & libc::STA_UNSYNC == 0,
        max_error_secs: secs(timex.maxerror),
        estimated_error_secs: secs(timex.esterror),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_not_less_than_what_is_probable() {
        let Some(clock) = clock_error() else { return println!("skipped: the kernel does not say") };
        assert!(clock.max_error_secs >= 0.0 && clock.estimated_error_secs >= 0.0, "{clock:?}");
    }
}
