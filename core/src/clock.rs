//! Ticks at absolute times: the n-th one is due n intervals after the start, however long the ones before took.

use std::time::{Duration, Instant};

/// A grid of due times on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    interval: Duration,
    next: u64,
    missed: u64,
}

impl Clock {
    /// A clock whose first tick is due one `interval` after `start`. An interval of zero counts as one nanosecond.
    pub(crate) fn new(start: Instant, interval: Duration) -> Self {
        Self { start, interval: interval.max(Duration::from_nanos(1)), next: 1, missed: 0 }
    }

    /// How long it is until the next tick is due; zero when it is late.
    pub(crate) fn until_next(&self, now: Instant) -> Duration {
        let due = u128::from(self.next) * self.interval.as_nanos();
        let passed = now.saturating_duration_since(self.start).as_nanos();
        let nanos = due.saturating_sub(passed);
        Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
    }

    /// How many ticks were left out so far.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// Marks the tick that is taken at `now`, and says when that was due. Ticks that were missed meanwhile are left out,
    /// and so is one that is due in less than a quarter of the interval, so that no two are taken at once; the ones that
    /// follow are on the grid again.
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        let soon = now.saturating_duration_since(self.start).saturating_add(self.interval / 4);
        let passed = soon.as_nanos() / self.interval.as_nanos();
        let number = self.next.max(u64::try_from(passed).unwrap_or(u64::MAX - 1));
        self.missed += number - self.next;
        self.next = number + 1;
        let nanos = u64::try_from(u128::from(number) * self.interval.as_nanos()).unwrap_or(u64::MAX);
        self.start + Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_late_tick_does_not_move_the_grid() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 10 * MS);
        assert_eq!(clock.until_next(start + 4 * MS), 6 * MS);
        assert_eq!(clock.until_next(start + 13 * MS), Duration::ZERO);
        assert_eq!(clock.advance(start + 13 * MS), start + 10 * MS);
        assert_eq!(clock.until_next(start + 13 * MS), 7 * MS);
    }

    #[test]
    fn missed_ticks_are_left_out() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 10 * MS);
        assert_eq!(clock.advance(start + 47 * MS), start + 40 * MS);
        assert_eq!(clock.until_next(start + 47 * MS), 3 * MS);
        assert_eq!(clock.missed(), 3);
    }

    #[test]
    fn a_tick_that_is_nearly_an_interval_late_stands_for_the_next_one_too() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 10 * MS);
        assert_eq!(clock.advance(start + 17 * MS), start + 10 * MS);
        assert_eq!(clock.until_next(start + 17 * MS), 3 * MS);
        clock.advance(start + 29 * MS);
        assert_eq!(clock.until_next(start + 29 * MS), 11 * MS);
    }

    #[test]
    fn a_tick_taken_a_little_early_is_not_taken_twice() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 10 * MS);
        assert_eq!(clock.advance(start + 9 * MS), start + 10 * MS);
        assert_eq!(clock.until_next(start + 9 * MS), 11 * MS);
    }
}
