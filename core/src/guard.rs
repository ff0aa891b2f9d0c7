//! Runs a component so that its errors and panics stop nothing else.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a component, whose panic is caught and logged. For a panic hook, which would report it
/// again.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// Calls a component. The caller reports a panic.
pub(crate) fn guarded<R>(body: impl FnOnce() -> R) -> thread::Result<R> {
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    GUARDED.set(false);
    result
}

/// A component that worked for so many times its last pause is paused as briefly as one that never failed.
const RECOVERED: u32 = 4;

/// Calls one component: logs its first failure, pauses it for longer and longer until it has worked for a while, and
/// switches it off when it panics.
pub(crate) struct Guard {
    component: String,
    off: bool,
    failing: bool,
    /// The last one; zero when there was none.
    pause: Duration,
    retry_at: Option<Instant>,
    works_since: Option<Instant>,
    said: Option<String>,
}

impl Guard {
    /// `component` is how messages name it, such as `source cpu`.
    pub(crate) fn new(component: String) -> Self {
        Self {
            component,
            off: false,
            failing: false,
            pause: Duration::ZERO,
            retry_at: None,
            works_since: None,
            said: None,
        }
    }

    pub(crate) fn component(&self) -> &str {
        &self.component
    }

    /// Whether it panicked, or was switched off, and will not be called again.
    pub(crate) fn is_off(&self) -> bool {
        self.off
    }

    pub(crate) fn switch_off(&mut self) {
        self.off = true;
    }

    /// Calls `body` unless the component is off or paused. `None` when it gave no result.
    pub(crate) fn call<R>(&mut self, now: Instant, body: impl FnOnce() -> anyhow::Result<R>) -> Option<R> {
        if self.off || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        match self.run(body)? {
            Ok(value) => {
                self.succeeded(now);
                Some(value)
            }
            Err(error) => {
                self.failed(now, &format!("{error:#}"));
                None
            }
        }
    }

    /// Calls what cannot fail but by a panic, also while the component is paused. `None` when it panicked, now or before.
    pub(crate) fn run<R>(&mut self, body: impl FnOnce() -> R) -> Option<R> {
        if self.off {
            return None;
        }
        let panic = match guarded(body) {
            Ok(value) => return Some(value),
            Err(panic) => panic,
        };
        self.off = true;
        log::warn!("{} panicked and is off from now on: {}", self.component, panic_message(&*panic));
        None
    }

    /// Drops the component, which can panic as well. A second panic of a component is not reported.
    pub(crate) fn end<T>(&mut self, component: T) {
        if let Err(panic) = guarded(|| drop(component))
            && !self.off
        {
            log::warn!("{} panicked when it ended: {}", self.component, panic_message(&*panic));
        }
        self.off = true;
    }

    /// Calls `body` even while the component is paused: for the last call, whose success repairs nothing.
    pub(crate) fn call_last<R>(&mut self, body: impl FnOnce() -> anyhow::Result<R>) -> Option<R> {
        self.retry_at = None;
        self.failing = false;
        self.call(Instant::now(), body)
    }

    fn succeeded(&mut self, now: Instant) {
        if self.failing {
            log::warn!("{} works again", self.component);
        }
        self.failing = false;
        self.retry_at = None;
        self.works_since.get_or_insert(now);
    }

    fn failed(&mut self, now: Instant, error: &str) {
        if self.said.as_deref() != Some(error) {
            log::warn!("{}: {error}", self.component);
            self.said = Some(error.to_owned());
            self.failing = true;
        }
        let worked = self.works_since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.pause = match worked >= self.pause * RECOVERED {
            true => FIRST_PAUSE,
            false => (self.pause * 2).min(LONGEST_PAUSE),
        };
        self.retry_at = Some(now + self.pause);
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_and_end_when_it_works() {
        let mut guard = Guard::new("source test".into());
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut calls = 0;
        for tick in 0..20 {
            guard.call(start + tick * second, || -> anyhow::Result<()> {
                calls += 1;
                anyhow::bail!("no")
            });
        }
        assert_eq!(calls, 5, "at 0, 1, 3, 7 and 15 s");
        assert_eq!(guard.call(start + 40 * second, || Ok(7)), Some(7));
        assert_eq!(guard.call(start + 40 * second, || Ok(8)), Some(8));
    }

    /// A component that always fails soon after it was begun anew is begun less and less often.
    #[test]
    fn a_moment_of_work_does_not_shorten_the_pauses() {
        let mut guard = Guard::new("source test".into());
        let start = Instant::now();
        let (mut calls, mut failures) = (0, Vec::new());
        for tick in 0..600 {
            let now = start + tick * Duration::from_millis(100);
            guard.call(now, || {
                calls += 1;
                anyhow::ensure!(calls % 4 != 0, "a crash");
                Ok(())
            });
            if calls % 4 == 0 && failures.last() != Some(&calls) {
                failures.push(calls);
                assert_eq!(guard.retry_at, Some(now + FIRST_PAUSE * (1 << (failures.len() - 1))));
            }
        }
        assert_eq!(failures.len(), 6, "after 1, 2, 4, 8 and 16 s, and the next pause is 32 s");
        let late = start + Duration::from_secs(1000);
        for second in 0..=128 {
            guard.call(late + Duration::from_secs(second), || Ok(()));
        }
        let late = late + Duration::from_secs(129);
        guard.call(late, || -> anyhow::Result<()> { anyhow::bail!("no") });
        assert_eq!(guard.retry_at, Some(late + FIRST_PAUSE), "it had worked for four times as long");
    }

    #[test]
    fn a_panic_switches_it_off() {
        let mut guard = Guard::new("source test".into());
        let now = Instant::now();
        std::panic::set_hook(Box::new(|_| assert!(is_guarded())));
        let fail = || -> anyhow::Result<()> { std::panic::panic_any("boom") };
        assert!(guard.call(now, fail).is_none());
        drop(std::panic::take_hook());
        assert!(guard.is_off() && !is_guarded());
        assert!(guard.call(now + LONGEST_PAUSE, || Ok(())).is_none());
    }
}
