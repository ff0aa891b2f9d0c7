//! Calls that are repeated only so often that they stay cheap.

use std::time::{Duration, Instant};

/// One call on one of `devices` takes at most one part in this many of the time, divided by the number of devices.
const PARTS: u32 = 50;

/// No call is left alone for longer, however slow it was once.
const LONGEST: Duration = Duration::from_secs(60);

/// A call, with what it answered last and when it is due again: the slower it was, the later.
#[derive(Debug)]
pub(crate) struct Paced<T> {
    last: Option<T>,
    due: Option<Instant>,
}

impl<T> Default for Paced<T> {
    fn default() -> Self {
        Self { last: None, due: None }
    }
}

impl<T: Clone> Paced<T> {
    /// What the call answers, or what it answered when it was last made.
    pub(crate) fn get(&mut self, devices: usize, call: impl FnOnce() -> Option<T>) -> Option<T> {
        self.made(devices, false, call);
        self.last.clone()
    }

    /// The answer of the call, if it is made: when it is due, or at once where it `must`. So each count is given once.
    pub(crate) fn fresh(&mut self, devices: usize, must: bool, call: impl FnOnce() -> Option<T>) -> Option<T> {
        self.made(devices, must, call).then(|| self.last.clone()).flatten()
    }

    fn made(&mut self, devices: usize, must: bool, call: impl FnOnce() -> Option<T>) -> bool {
        let start = Instant::now();
        let is_due = must || self.due.is_none_or(|due| start >= due);
        if is_due {
            self.last = call();
            self.due = Some(start + pause(start.elapsed(), devices));
        }
        is_due
    }
}

fn pause(took: Duration, devices: usize) -> Duration {
    took.saturating_mul(PARTS.saturating_mul(devices.max(1) as u32)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_call_is_made_less_often() {
        let (mut call, mut made) = (Paced::default(), 0);
        let mut ask = || {
            call.get(1, || {
                made += 1;
                std::thread::sleep(Duration::from_millis(10));
                Some(made)
            })
        };
        assert_eq!((ask(), ask(), ask()), (Some(1), Some(1), Some(1)));
        assert_eq!(call.fresh(1, false, || Some(9)), None, "it is not due");
        assert_eq!((call.fresh(1, true, || Some(9)), call.get(1, || None)), (Some(9), Some(9)));
        assert_eq!(pause(Duration::from_millis(10), 16), Duration::from_secs(8));
        assert_eq!(pause(Duration::from_secs(30), 1), LONGEST);
    }

    #[test]
    fn a_fast_call_is_made_every_time() {
        let (mut call, mut made) = (Paced::default(), 0);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(2));
            call.get(1, || {
                made += 1;
                Some(made)
            });
        }
        assert_eq!(made, 3);
    }
}
