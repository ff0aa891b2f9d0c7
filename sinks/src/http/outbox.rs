//! Requests that wait to be sent.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many bytes wait at most.
const LARGEST: usize = 4 << 20;

const FOR_EVER: Duration = Duration::from_secs(3600);

/// Requests in the order in which they were made. When more wait than there is room for, the oldest go.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether one was taken that is neither sent nor given up.
    in_hand: bool,
    lost: u64,
    /// Once nothing more comes: until when it is tried.
    end: Option<Instant>,
    /// Nothing more is tried.
    is_over: bool,
    /// Whether the pause is cut short: there may be no time for it, and it may be over what it waits for.
    hurries: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Says how many had to go for it.
    pub(super) fn add(&self, request: Vec<u8>) -> u64 {
        let mut state = self.lock();
        if request.len() > LARGEST {
            state.lost += 1;
            return 1;
        }
        state.bytes += request.len();
        state.waiting.push_back(request);
        let mut gone = 0;
        while state.bytes > LARGEST
            && let Some(oldest) = state.waiting.pop_front()
        {
            state.bytes -= oldest.len();
            gone += 1;
        }
        state.lost += gone;
        self.changed.notify_all();
        gone
    }

    /// Takes the next request, after `pause`, in which others may come. When nothing more comes, the pause that goes on then
    /// is not longer than what the receiver has `asked` for. `back` is a request that was taken and is to be tried again: it
    /// is the oldest. `None`: nothing more comes, or it is too late.
    pub(super) fn take(&self, back: Option<Vec<u8>>, pause: Duration, asked: Duration) -> Option<Vec<u8>> {
        let mut state = self.lock();
        state.bytes += back.as_ref().map_or(0, Vec::len);
        back.into_iter().for_each(|request| state.waiting.push_front(request));
        state.in_hand = false;
        self.changed.notify_all();
        let start = Instant::now();
        let mut begin = start + pause;
        loop {
            let now = Instant::now();
            if std::mem::take(&mut state.hurries) {
                begin = begin.min(start + asked);
            }
            let is_late = state.end.is_some_and(|end| end <= now.max(begin));
            if is_late || (state.end.is_some() && state.waiting.is_empty()) {
                state.is_over = true;
                self.changed.notify_all();
                return None;
            }
            if now >= begin
                && let Some(request) = state.waiting.pop_front()
            {
                state.bytes -= request.len();
                state.in_hand = true;
                return Some(request);
            }
            let wait = begin.saturating_duration_since(now);
            let wait = if wait.is_zero() { FOR_EVER } else { wait };
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes that a request is given up.
    pub(super) fn give_up(&self) {
        self.lock().lost += 1;
    }

    /// Nothing more comes. Waits until all is sent, or that time is over; says how many requests never arrived.
    pub(super) fn close(&self, patience: Duration) -> u64 {
        let mut state = self.lock();
        let end = Instant::now() + patience;
        (state.end, state.hurries) = (Some(end), state.end.is_none());
        self.changed.notify_all();
        while !state.is_over && (!state.waiting.is_empty() || state.in_hand) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.lost + state.waiting.len() as u64 + u64::from(state.in_hand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let outbox = Outbox::default();
        assert_eq!((1..=4).map(|number| outbox.add(vec![number; LARGEST / 4])).sum::<u64>(), 0);
        assert_eq!(outbox.add(vec![5; LARGEST / 2]), 2);
        let first = outbox.take(None, Duration::ZERO, Duration::ZERO).unwrap();
        assert_eq!(first[0], 3);
        let again = outbox.take(Some(first), Duration::ZERO, Duration::ZERO).unwrap();
        assert_eq!(again[0], 3, "it is tried again before the others");
        assert_eq!(outbox.add(vec![0; LARGEST + 1]), 1, "one that is too large never goes, and the others stay");
        assert_eq!(outbox.close(Duration::ZERO), 6, "three had to go, one is in hand, and two wait");
    }

    #[test]
    fn the_end_waits_for_what_can_arrive() {
        let outbox = &Outbox::default();
        outbox.add(vec![1]);
        let first = outbox.take(None, Duration::ZERO, Duration::ZERO);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let second = outbox.take(first, Duration::from_secs(100), Duration::from_millis(20));
                assert_eq!(second, Some(vec![1]), "its own pause is cut short");
                assert_eq!(outbox.take(None, Duration::ZERO, Duration::ZERO), None);
            });
            assert_eq!(outbox.close(Duration::from_secs(60)), 0);
        });
        let late = &Outbox::default();
        late.add(vec![1]);
        std::thread::scope(|scope| {
            let first = late.take(None, Duration::ZERO, Duration::ZERO);
            let asked = Duration::from_secs(100);
            scope.spawn(move || assert_eq!(late.take(first, asked, asked), None, "the pause ends after the end"));
            let begun = Instant::now();
            assert_eq!(late.close(Duration::from_secs(50)), 1);
            assert!(begun.elapsed() < Duration::from_secs(25), "nobody waits for what is not tried");
        });
    }
}
