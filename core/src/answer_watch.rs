//! Whether a thread that was asked is overdue.

use std::time::{Duration, Instant};

use crate::source::Tick;

/// Measures, tick by tick, for how long a question is open.
///
/// Only time in which the tracker itself ran counts: after it was stopped, or frozen with its container, it must not
/// take others for stuck.
pub(crate) struct AnswerWatch {
    limit: Duration,
    last_tick: Option<Instant>,
    open_for: Duration,
}

impl AnswerWatch {
    /// A question that is open for longer than `limit` is overdue.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, last_tick: None, open_for: Duration::ZERO }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Notes a tick, at which a question `is_open`. True if the question has become overdue with this tick.
    pub(crate) fn tick(&mut self, tick: &Tick, is_open: bool) -> bool {
        let was_overdue = self.is_overdue();
        let last = self.last_tick.replace(tick.at);
        let passed = last.map_or(Duration::ZERO, |last| tick.at.saturating_duration_since(last));
        self.open_for = if is_open { self.open_for.saturating_add(passed.min(tick.interval)) } else { Duration::ZERO };
        self.is_overdue() && !was_overdue
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.open_for > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_tracker_did_not_run_does_not_count() {
        let interval = Duration::from_millis(100);
        let mut watch = AnswerWatch::new(Duration::from_secs(2));
        let mut at = Instant::now();
        let mut becomes_overdue_after = |pause: Duration, is_open: bool| {
            at += pause;
            watch.tick(&Tick::new(0, at, pause, interval), is_open)
        };
        assert!(!becomes_overdue_after(Duration::ZERO, true), "it is asked now");
        assert!(!becomes_overdue_after(Duration::from_secs(3600), true), "an hour in a frozen container");
        assert!((0..19).all(|_| !becomes_overdue_after(interval, true)), "two seconds");
        assert!(becomes_overdue_after(interval, true), "and more");
        assert!(!becomes_overdue_after(interval, true), "it is said once");
        assert!((0..30).all(|_| !becomes_overdue_after(interval, false)), "an answer has come");
    }
}
