//! Whether all of the job that runs is counted.
//!
//! The kernel ends the counters of a program that takes on the rights of its file's owner, as `sudo` does
//! (`perf_event_exit_task` in `begin_new_exec`). They can be read as before, and stand still. What tells is CPU time: all of it is
//! time for which a counter was enabled.

use std::collections::HashMap;
use std::time::Duration;

use crate::job::Identity;

/// How things stood when the counters were read last.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// CPU time that processes had used just after that.
    used: HashMap<Identity, Duration>,
    /// Time for which counters had been enabled, in nanoseconds.
    enabled: u64,
}

impl Watch {
    /// Whether a part of what ran meanwhile was not counted. `used` was read before `enabled` was.
    pub(super) fn misses(&mut self, used: impl Iterator<Item = (Identity, Duration)>, enabled: u64) -> bool {
        let ran: Duration = used.filter_map(|(who, used)| used.checked_sub(*self.used.get(&who)?)).sum();
        let counted = enabled.saturating_sub(std::mem::replace(&mut self.enabled, enabled));
        // The two clocks are not quite the same.
        u128::from(counted) < ran.as_nanos() * 7 / 8
    }

    /// From here on it is to be counted.
    pub(super) fn go_on(&mut self, used: impl Iterator<Item = (Identity, Duration)>) {
        self.used.clear();
        self.used.extend(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_uncounted_is_missed_and_who_sleeps_is_not() {
        let mut watch = Watch::default();
        let mut look = |used: [u64; 2], enabled, used_after: [u64; 2]| {
            let each = |used: [u64; 2]| {
                used.into_iter().zip([(1, 0), (2, 0)]).map(|(nanos, who)| (who, Duration::from_nanos(nanos)))
            };
            let misses = watch.misses(each(used), enabled);
            watch.go_on(each(used_after));
            misses
        };
        assert!(!look([500, 0], 0, [500, 0]), "what was before is not to be counted");
        assert!(!look([500, 0], 0, [500, 0]), "both slept");
        assert!(!look([600, 30], 140, [700, 30]), "both ran, one of them after the look at its clock as well");
        assert!(!look([700, 30], 245, [700, 30]), "that comes now");
        assert!(look([800, 30], 245, [800, 30]));
        assert!(!look([800, 30], 245, [800, 30]), "it sleeps");
        assert!(look([900, 130], 345, [900, 130]), "the other one is counted");
    }
}
