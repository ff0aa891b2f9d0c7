//! When to try again, and when to say so.

use std::time::{Duration, Instant};

use super::Failure;

const LONGEST: Duration = Duration::from_secs(60);
/// A server that wants to be left alone for longer is asked again after this.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// Pauses that double, with jitter, so that a thousand jobs do not come back at once.
pub(crate) struct Backoff {
    first: Duration,
    failures: u32,
    said: bool,
    not_before: Option<Instant>,
    /// Until when the server asks to be left alone.
    asked: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, failures: 0, said: false, not_before: None, asked: None }
    }

    /// From now on the first pause is this one, and none is pending but what the server asks for.
    pub(crate) fn restart(&mut self, first: Duration) {
        (self.first, self.failures, self.not_before) = (first, 0, self.asked);
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait before the next attempt.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(now)).filter(|pause| !pause.is_zero())
    }

    /// Notes a success. True if the user had been told of failures.
    pub(crate) fn succeeded(&mut self) -> bool {
        (self.failures, self.not_before, self.asked) = (0, None, None);
        std::mem::take(&mut self.said)
    }

    /// Notes a failure. True if the user is to be told: once, when `tell_at` attempts in a row have failed.
    pub(crate) fn failed(&mut self, failure: &Failure, now: Instant, tell_at: u32) -> bool {
        self.failures += 1;
        let doubled = self.first.saturating_mul(1 << (self.failures - 1).min(16)).min(LONGEST);
        let jittered = doubled.mul_f64(0.5 + fastrand::f64() / 2.0);
        let asked = failure.asked().unwrap_or_default().min(LONGEST_ASKED);
        (self.not_before, self.asked) = (Some(now + jittered.max(asked)), Some(now + asked));
        let tell = !self.said && self.failures >= tell_at;
        self.said |= tell;
        tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_what_the_server_asks_is_kept() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        let (now, failure) = (Instant::now(), Failure::Temporary(String::new(), None));
        let mut told = Vec::new();
        for doubled in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            told.push(backoff.failed(&failure, now, 3));
            let pause = backoff.pause(now).unwrap_or_default().as_secs_f64();
            assert!((doubled / 2.0..=doubled).contains(&pause), "{pause} of {doubled}");
        }
        assert_eq!(told, [false, false, true, false, false, false, false, false]);
        assert!(backoff.succeeded() && backoff.pause(now).is_none());
        backoff.failed(&Failure::Temporary(String::new(), Some(Duration::from_secs(90))), now, 1);
        assert_eq!(backoff.pause(now), Some(Duration::from_secs(90)));
        backoff.restart(Duration::from_secs(1));
        assert_eq!(backoff.pause(now), Some(Duration::from_secs(90)), "whoever else is in a hurry");
    }
}
