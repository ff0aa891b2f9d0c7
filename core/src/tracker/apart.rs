//! A source that may block, on a thread of its own.

use std::io;
use std::time::{Duration, Instant};

use super::feed::{Reader, Reading};
use crate::background::Background;
use crate::source::Tick;

/// An answer is left out when it is older than this, or than three intervals.
const STALE: Duration = Duration::from_secs(2);

/// How long a tick waits for its answer; less when the interval is short.
const GRACE: Duration = Duration::from_millis(50);

/// Each answer is in one sample: in that of the tick that asked, or, when it comes too late for it, in the next.
pub(super) struct Apart {
    component: String,
    thread: Background<Tick, Answer>,
    stale_after: Duration,
    /// The answer to an earlier tick, which no sample has yet.
    late: Option<(Answer, Instant)>,
    last_answer: Option<Instant>,
    last_tick: Option<Instant>,
    /// How long it has not answered, in time in which the tracker itself could run: who is stopped, or frozen with its
    /// container, must not take others for stuck.
    unanswered: Duration,
    /// Its last answer came too late, so the next one is not waited for.
    is_slow: bool,
    is_asked: bool,
    is_silent: bool,
}

#[derive(Clone)]
struct Answer {
    tick: u64,
    asked: Instant,
    reading: Reading,
}

impl Apart {
    /// `every` is the time between two readings.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn new(name: &str, mut reader: Reader, every: Duration) -> io::Result<Self> {
        let component = reader.component().to_owned();
        let thread = Background::spawn(name, move |tick: Tick| Answer {
            tick: tick.number,
            asked: tick.at,
            reading: reader.read(Tick { at: Instant::now(), ..tick }),
        })?;
        Ok(Self {
            component,
            thread,
            stale_after: STALE.max(every * 3),
            late: None,
            last_answer: None,
            last_tick: None,
            unanswered: Duration::ZERO,
            is_slow: false,
            is_asked: false,
            is_silent: false,
        })
    }

    /// Asks, unless it is not due, or still busy. Says whether it did.
    pub(super) fn ask(&mut self, tick: &Tick, is_due: bool) -> bool {
        self.late = self.thread.take_answer(tick.at);
        if let Some((answer, at)) = &self.late {
            self.is_slow = is_slow(answer, *at, tick);
        }
        let is_busy = self.thread.is_busy();
        let passed =
            self.last_tick.replace(tick.at).map_or(Duration::ZERO, |last| tick.at.saturating_duration_since(last));
        self.unanswered = if is_busy { self.unanswered + passed.min(tick.interval) } else { Duration::ZERO };
        let is_silent = self.unanswered > self.stale_after;
        if is_silent && !self.is_silent {
            let secs = self.stale_after.as_secs();
            log::warn!("{} has not answered for {secs} s; it is left out until it does", self.component);
        }
        self.is_silent = is_silent;
        // The baseline can be left out; anything later would be missing in a sum.
        let is_late = self.late.as_ref().is_some_and(|(answer, _)| answer.tick > 0 || answer.is_absent());
        let asks = is_due && !is_busy && (self.is_slow || !is_late);
        self.is_asked = asks && !is_late;
        if asks {
            self.thread.ask(tick.clone());
        }
        asks
    }

    /// The answer that belongs into the sample of this tick; `None` when the last one is to be repeated.
    pub(super) fn read(&mut self, tick: &Tick) -> Option<Reading> {
        let late = self.late.take();
        let answer = match self.is_asked {
            true => self.thread.take_answer(tick.at + grace(tick)).or(late),
            false => late,
        };
        if let Some((answer, at)) = answer {
            self.is_slow &= is_slow(&answer, at, tick);
            self.last_answer = Some(at);
            return Some(answer.reading);
        }
        let is_stale = self.last_answer.is_some_and(|at| tick.at.saturating_duration_since(at) > self.stale_after);
        is_stale.then_some(Reading::Failed)
    }
}

impl Answer {
    fn is_absent(&self) -> bool {
        matches!(self.reading, Reading::Absent)
    }
}

/// Whether it came too late for its sample. The baseline, with which the source is built, says nothing of others.
fn is_slow(answer: &Answer, at: Instant, tick: &Tick) -> bool {
    answer.tick > 0 && at.saturating_duration_since(answer.asked) > grace(tick)
}

/// The time for which a tick can be kept.
fn grace(tick: &Tick) -> Duration {
    match tick {
        Tick { number: 0, .. } => Duration::ZERO,
        Tick { last: true, .. } => GRACE,
        _ => GRACE.min(tick.interval / 4),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use schemars::JsonSchema;
    use serde::Serialize;

    use super::super::built::Built;
    use super::super::feed::Feed;
    use crate::sample::{Section, Sections};
    use crate::source::{Cadence, Host, Schedule, Source};

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
    struct Meter {
        tick: u64,
        energy: Option<u64>,
    }

    impl Section for Meter {
        const NAME: &'static str = "meter";

        fn without_deltas(&self) -> Option<Self> {
            Some(Self { energy: None, ..*self })
        }
    }

    /// Its counter grows by one with every tick; it answers when it may.
    struct MeterSource {
        may_answer: Receiver<()>,
        done: Sender<u64>,
        last: u64,
    }

    impl Source for MeterSource {
        fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            self.may_answer.recv()?;
            let energy = tick.number - self.last;
            self.last = tick.number;
            *out.section::<Meter>() = Meter { tick: tick.number, energy: Some(energy) };
            self.done.send(tick.number)?;
            Ok(())
        }
    }

    struct Run {
        feed: Feed,
        may_answer: Sender<()>,
        done: Receiver<u64>,
        number: u64,
    }

    impl Run {
        fn new() -> Self {
            let ((may_answer, gate), (done, answered)) = (mpsc::channel(), mpsc::channel());
            let schedule = Schedule { cadence: Cadence::EveryTick, blocking: true };
            let config = Box::new(Built::new(MeterSource { may_answer: gate, done, last: 0 }, schedule));
            let feed = Feed::new("meter", config, &Host::default(), Duration::from_millis(100));
            Self { feed, may_answer, done: answered, number: 0 }
        }

        /// A tick whose question is answered at once when it is `quick`: the tick and the energy in its sample.
        fn tick(&mut self, quick: bool) -> anyhow::Result<Option<(u64, Option<u64>)>> {
            let tick = Tick {
                number: self.number,
                at: Instant::now(),
                elapsed: Duration::ZERO,
                interval: Duration::from_secs(1),
                last: false,
                tracked: None,
            };
            self.number += 1;
            self.feed.ask(&tick, tick.at);
            if quick {
                self.may_answer.send(())?;
            }
            let meter = self.feed.read(&tick, tick.at);
            Ok(meter.and_then(|sections| sections.get::<Meter>().map(|meter| (meter.tick, meter.energy))))
        }

        /// The question that is open is answered, after so long.
        fn answer(&self, after: Duration) -> anyhow::Result<()> {
            std::thread::sleep(after);
            self.may_answer.send(())?;
            self.done.recv()?;
            // The answer is there a moment after the source has returned.
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
    }

    #[test]
    fn a_quick_answer_is_in_the_sample_of_its_tick() -> anyhow::Result<()> {
        let mut run = Run::new();
        run.tick(false)?;
        run.answer(Duration::ZERO)?;
        for number in 1..10 {
            assert_eq!(run.tick(true)?, Some((number, Some(1))));
        }
        Ok(())
    }

    #[test]
    fn time_in_which_the_tracker_did_not_run_does_not_count() -> anyhow::Result<()> {
        let ((_may_answer, gate), (done, _answered)) = (mpsc::channel(), mpsc::channel());
        let schedule = Schedule { cadence: Cadence::EveryTick, blocking: true };
        let config = Box::new(Built::new(MeterSource { may_answer: gate, done, last: 0 }, schedule));
        let interval = Duration::from_millis(100);
        let mut apart = Apart::new("meter", Reader::new("source meter", config, Host::default()), interval)?;
        // In the past: no answer is waited for.
        let mut at = Instant::now() - Duration::from_secs(3700);
        let mut is_silent_after = |pause: Duration| {
            at += pause;
            apart.ask(&Tick { number: 0, at, elapsed: pause, interval, last: false, tracked: None }, true);
            apart.is_silent
        };
        assert!(!is_silent_after(Duration::ZERO), "it is asked now");
        assert!(!is_silent_after(Duration::from_secs(3600)), "an hour in a frozen container");
        assert!((0..19).all(|_| !is_silent_after(interval)), "two seconds");
        assert!(is_silent_after(interval), "and more");
        Ok(())
    }

    #[test]
    fn nothing_is_counted_twice_and_nothing_is_lost() -> anyhow::Result<()> {
        let mut run = Run::new();
        run.tick(false)?;
        run.answer(Duration::ZERO)?;
        assert_eq!(run.tick(true)?, Some((1, Some(1))));
        assert_eq!(run.tick(false)?, Some((1, None)), "a repetition");
        assert_eq!(run.tick(false)?, Some((1, None)), "one more: the source is still busy");
        run.answer(Duration::ZERO)?;
        assert_eq!(run.tick(false)?, Some((2, Some(1))), "late, and the next question is asked already");
        run.answer(GRACE * 2)?;
        assert_eq!(run.tick(false)?, Some((4, Some(2))), "of the ticks 3 and 4");
        run.answer(Duration::ZERO)?;
        assert_eq!(run.tick(false)?, Some((5, Some(1))), "it was quick: it is not asked, so that it is in time again");
        assert_eq!(run.tick(true)?, Some((7, Some(2))));
        assert_eq!(run.tick(true)?, Some((8, Some(1))));
        Ok(())
    }
}
