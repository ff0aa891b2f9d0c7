//! When to look again at what a job changes often when it begins, and rarely later.

use std::time::{Duration, Instant};

use crate::procfile::FASTEST;

/// How often to look at what rarely changes while a job runs: its CPUs, its cgroup and limits, its network namespaces.
pub(crate) const RARE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The pause between two looks is short at first, and doubles each time up to the longest.
#[derive(Debug)]
pub(crate) struct BackoffSchedule {
    last: Option<Instant>,
    pause: Duration,
    longest: Duration,
}

impl BackoffSchedule {
    pub(crate) fn until(longest: Duration) -> Self {
        Self { last: None, pause: FASTEST, longest }
    }

    /// Whether it is time to look. If so, the next pause begins.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        match self.last {
            Some(last) if now.saturating_duration_since(last) < self.pause => return false,
            Some(_) => self.pause = (self.pause * 2).min(self.longest),
            None => (),
        }
        self.last = Some(now);
        true
    }
}

#[test]
fn it_is_looked_at_less_and_less_often() {
    let (start, mut schedule) = (Instant::now(), BackoffSchedule::until(Duration::from_secs(1)));
    let looks = (0..50).filter(|tick| schedule.is_due(start + Duration::from_millis(100) * *tick));
    assert_eq!(looks.collect::<Vec<u32>>(), [0, 1, 3, 7, 15, 25, 35, 45]);
}
