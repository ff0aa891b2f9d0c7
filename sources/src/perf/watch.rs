//! Whether all of the job that runs is counted.
//!
//! The kernel ends the counters of a program that takes on the rights of its file's owner, as `sudo` does
//! (`perf_event_exit_task` in `begin_new_exec`). They can be read as before, and stand still. CPU time shows that: a
//! counter is enabled for all of it.

use std::collections::HashMap;
use std::time::Duration;

use crate::job::Identity;

/// A thread that gets a CPU runs for a moment before its counters are on, and after they are off: some 5 us, and up to 42 were
/// seen in a virtual machine.
const SWITCH: Duration = Duration::from_micros(50);

/// How many switches may be under way at a look.
const FEW: u32 = 5;

/// The state when the counters were read last.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// CPU time that processes had used just after that.
    used: HashMap<Identity, Duration>,
    /// Time for which counters had been enabled, in nanoseconds.
    enabled: u64,
}

impl Watch {
    /// Whether a part of what ran meanwhile was not counted. `used` was read before `enabled` was; `switches` says how often
    /// threads left a CPU, if that is known.
    pub(super) fn misses(
        &mut self,
        used: impl Iterator<Item = (Identity, Duration)>,
        enabled: u64,
        switches: Option<u64>,
    ) -> bool {
        let ran: Duration = used.filter_map(|(who, used)| used.checked_sub(*self.used.get(&who)?)).sum();
        let counted = enabled.saturating_sub(std::mem::replace(&mut self.enabled, enabled));
        let lost = ran.saturating_sub(Duration::from_nanos(counted));
        let allowed = match switches {
            Some(switches) => ran / 8 + SWITCH.saturating_mul(u32::try_from(switches).unwrap_or(u32::MAX)),
            // A thread that does little but wake up is counted for only a part of its time.
            None => ran * 7 / 8,
        };
        lost > allowed + FEW * SWITCH
    }

    /// Begins anew from here.
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
        let mut look = |used: [u64; 2], enabled: u64, used_after: [u64; 2]| {
            let each = |used: [u64; 2]| {
                used.into_iter().zip([(1, 0), (2, 0)]).map(|(millis, who)| (who, Duration::from_millis(millis)))
            };
            let misses = watch.misses(each(used), enabled * 1_000_000, Some(3));
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

    #[test]
    fn who_only_wakes_up_is_not_missed() {
        let misses = |ran: u64, counted: u64, switches| {
            let mut watch = Watch::default();
            let used = |micros| [((1, 0), Duration::from_micros(micros))].into_iter();
            watch.go_on(used(0));
            watch.misses(used(ran), counted * 1000, switches)
        };
        assert!(!misses(8700, 5200, Some(800)), "in a virtual machine");
        assert!(!misses(1223, 500, Some(10)), "in one that is slower");
        assert!(!misses(22, 16, Some(1)));
        assert!(!misses(8700, 5200, None));
        assert!(misses(8700, 5200, Some(10)));
        assert!(misses(8700, 0, None));
    }
}
