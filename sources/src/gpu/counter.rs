//! Counters of devices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a counter gained since it was last read, and keeps its new value; `None` the first time and after a reset.
pub(super) fn gained(before: &mut Option<u64>, now: Option<u64>) -> Option<u64> {
    let now = now?;
    since(before.replace(now)?, now)
}

/// By how much a counter grew; `None` when it fell, which is said of one of them.
fn since(before: u64, now: u64) -> Option<u64> {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    let gained = now.checked_sub(before);
    if gained.is_none() && !HAS_SAID.swap(true, Ordering::Relaxed) {
        log::warn!(
            "a counter of a GPU fell from {before} to {now}, so it began anew; what it counted meanwhile is left out"
        );
    }
    gained
}

/// The rate of a counter, over the time between its last two readings.
#[derive(Debug, Default)]
pub(super) struct Rate {
    before: Option<(u64, Instant)>,
    per_sec: Option<f64>,
}

impl Rate {
    /// The rate per second. A reading that is repeated changes nothing.
    pub(super) fn of(&mut self, now: Option<u64>, at: Instant) -> Option<f64> {
        self.by(now, at, |before, now, _| since(before, now))
    }

    /// The same for a counter whose gain comes from `gained`: by its value before, its value now, and the time between.
    pub(super) fn by(
        &mut self,
        now: Option<u64>,
        at: Instant,
        gained: impl FnOnce(u64, u64, Duration) -> Option<u64>,
    ) -> Option<f64> {
        let value = now?;
        let (before, then) = *self.before.get_or_insert((value, at));
        let elapsed = at.saturating_duration_since(then);
        if elapsed >= Duration::from_millis(1) {
            self.per_sec = gained(before, value, elapsed).map(|gained| gained as f64 / elapsed.as_secs_f64());
            self.before = Some((value, at));
        }
        self.per_sec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_gains() {
        let mut before = None;
        let mut read = |now| gained(&mut before, now);
        assert_eq!((read(Some(5)), read(Some(7)), read(None), read(Some(8))), (None, Some(2), None, Some(1)));
        assert_eq!((read(Some(3)), read(Some(4))), (None, Some(1)), "a reset");
    }

    #[test]
    fn a_reading_that_is_repeated_changes_no_rate() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut rate = Rate::default();
        assert_eq!(rate.of(Some(1000), at(0)), None);
        assert_eq!(rate.of(Some(1500), at(500)), Some(1000.0));
        assert_eq!(rate.of(Some(1500), at(500)), Some(1000.0), "it was not asked since");
        assert_eq!(rate.of(Some(1500), at(1000)), Some(0.0));
        assert_eq!(rate.of(Some(3), at(1500)), None, "a reset");
        assert_eq!(rate.of(None, at(2000)), None);
        assert_eq!(rate.of(Some(5), at(2500)), Some(2.0));
    }
}
