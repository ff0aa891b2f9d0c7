//! The time of a recording that is replayed.

use std::time::{Duration, Instant};

use crate::history::History;
use crate::moment::Moment;

/// A clock that runs `speed` times as fast as real time.
pub(crate) struct Clock {
    speed: f64,
    /// The time that it shows, in seconds since the Unix epoch, and when it was last moved on.
    at: f64,
    looked: Option<Instant>,
    /// When the last sample was taken whose time has come.
    last: f64,
}

impl Clock {
    pub(crate) fn new(speed: f64) -> Self {
        Self { speed, at: 0.0, looked: None, last: 0.0 }
    }

    /// Moves on to `now`, or stands still while time is held.
    pub(crate) fn go_on(&mut self, now: Instant, is_held: bool) {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        if !is_held {
            self.at += passed.as_secs_f64() * self.speed;
        }
    }

    /// Whether the time of this sample has come. The clock is set to the first sample of a run, and set anew where time
    /// goes back.
    pub(crate) fn has_come(&mut self, moment: &Moment, history: &History) -> bool {
        if history.is_empty() || history.is_followed_by_another(moment) || moment.at < self.last {
            self.at = moment.at;
        }
        let has_come = moment.at <= self.at;
        self.last = if has_come { moment.at } else { self.last };
        has_come
    }

    /// How long it is until the time of this sample.
    pub(crate) fn until(&self, moment: &Moment) -> Duration {
        Duration::try_from_secs_f64((moment.at - self.at) / self.speed).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::moment;

    #[test]
    fn samples_come_in_their_own_time() {
        let mut clock = Clock::new(10.0);
        let mut history = History::default();
        let start = Instant::now();
        let mut has_come = |millis: u64, is_held: bool, second: f64, history: &History| {
            clock.go_on(start + Duration::from_millis(millis), is_held);
            clock.has_come(&moment(second, 1.0, ""), history)
        };
        assert!(has_come(0, false, 100.0, &history), "the first one at once");
        history.add(moment(100.0, 1.0, ""));
        assert!(!has_come(900, false, 110.0, &history));
        assert!(!has_come(9900, true, 110.0, &history), "time is held");
        assert!(has_come(10_000, false, 110.0, &history));
        assert!(has_come(10_001, false, 105.0, &history), "back");
        assert!(!has_come(10_002, false, 106.0, &history), "and on from there");
        assert_eq!(clock.until(&moment(205.01, 1.0, "")).as_secs(), 10);
    }
}
