//! Which samples are sent.

use std::time::{Duration, UNIX_EPOCH};

use resource_tracker_core::Run;

/// One sample in so much time is sent, and the last one.
pub(crate) struct Turns {
    interval: Duration,
    /// Samples are a little early or late.
    slack: Duration,
    /// When the one was taken that was sent last, or the run began.
    last: Duration,
}

impl Turns {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, slack: Duration::ZERO, last: Duration::ZERO }
    }

    pub(crate) fn begin(&mut self, run: &Run) {
        self.slack = run.interval / 2;
        self.last = run.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    }

    /// Whether the sample that was taken then, since 1970, is to be sent. One that is wanted `at_once` is, unless it was.
    pub(crate) fn take(&mut self, time: Duration, at_once: bool) -> bool {
        let is_due = time + self.slack >= self.last + self.interval || (at_once && time > self.last);
        if is_due {
            self.last = time;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_is_a_little_early_is_sent() {
        let mut turns =
            Turns { interval: Duration::from_secs(1), slack: Duration::from_millis(50), last: Duration::ZERO };
        let mut taken = |millis, at_once| turns.take(Duration::from_millis(millis), at_once);
        assert!(!taken(900, false) && taken(999, false) && !taken(1900, false) && taken(2001, false));
        assert!(taken(2100, true) && !taken(2100, true));
    }
}
