//! A source that may block, on a thread of its own.

use std::io;
use std::time::{Duration, Instant};

use super::reader::{Purpose, Reader, Reading};
use crate::answer_watch::AnswerWatch;
use crate::background::Background;
use crate::owned_tick::OwnedTick;
use crate::patience::PATIENCE;
use crate::source::Tick;

/// Each answer is in one sample: in that of the tick that asked, or, when it comes too late for it, in the next.
pub(super) struct BlockingSource {
    component: String,
    thread: Background<Question, Answer>,
    this_tick: ThisTick,
    pace: Pace,
    /// What the newest question is for, until its answer is taken.
    open: Option<Purpose>,
    watch: AnswerWatch,
}

struct Question {
    purpose: Purpose,
    asked: Instant,
    tick: OwnedTick,
}

#[derive(Clone)]
struct Answer {
    purpose: Purpose,
    asked: Instant,
    reading: Reading,
}

/// What the sample of this tick gets.
enum ThisTick {
    /// The answer to its own question, which is waited for; else what had been answered before it was asked.
    Waits { else_take: Option<(Answer, Instant)> },
    /// The answer to an earlier question, which came too late for its own sample.
    Takes((Answer, Instant)),
    /// Nothing new.
    Repeats,
}

/// How the last answer came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// There was none in a sample yet.
    Unknown,
    /// In time for its sample.
    InTime,
    /// Too late, so that the next one is not waited for.
    Late,
}

impl BlockingSource {
    /// `every` is the time between two readings. One that is read once needs no thread for longer.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn new(name: &str, mut reader: Reader, every: Option<Duration>) -> io::Result<Self> {
        let component = reader.component().to_owned();
        let host = reader.host().clone();
        let answer = move |Question { purpose, asked, tick }: Question| Answer {
            purpose,
            asked,
            reading: reader.read(&tick.lend(), purpose),
        };
        let thread = match every {
            Some(_) => Background::spawn(name, answer),
            None => host.background(name, answer),
        }?;
        let watch = AnswerWatch::new(PATIENCE.max(every.unwrap_or_default().saturating_mul(3)));
        let (this_tick, pace) = (ThisTick::Repeats, Pace::Unknown);
        Ok(Self { component, thread, this_tick, pace, open: None, watch })
    }

    /// Asks, unless it is not due, or still busy. Says whether it did.
    pub(super) fn ask(&mut self, tick: &Tick, is_due: bool, purpose: Purpose) -> bool {
        let before = self.take_answer(tick.at);
        let not_read = std::mem::replace(&mut self.this_tick, ThisTick::Repeats);
        if let Some((answer, at)) = &before {
            self.pace = answer.pace(*at, tick);
        }
        let is_busy = self.thread.is_busy();
        if self.watch.tick(tick, is_busy) {
            let secs = self.watch.limit().as_secs();
            log::warn!("{} has not answered for {secs} s; it is left out until it does", self.component);
        }
        // What only primes can be left out; anything later would be missing in a sum.
        let late = before.as_ref().is_some_and(|(answer, _)| answer.purpose == Purpose::Sample || answer.is_absent());
        let asks = is_due && !is_busy && (self.pace == Pace::Late || !late);
        self.this_tick = match before {
            else_take if asks && !late => ThisTick::Waits { else_take },
            Some(answer) => ThisTick::Takes(answer),
            // What is read once was asked for the first sample when the run began, when no sample was taken.
            None if self.open == Some(Purpose::Sample) && matches!(not_read, ThisTick::Waits { .. }) => not_read,
            None => ThisTick::Repeats,
        };
        if asks {
            self.open = Some(purpose);
            self.thread.ask(Question { purpose, asked: tick.at, tick: OwnedTick::of(tick) });
        }
        asks
    }

    /// Before the last tick of a run: waits until `deadline` for an answer that was too late for its own sample. Says whether it
    /// has come and is to be read.
    pub(super) fn settle(&mut self, deadline: Instant) -> bool {
        if self.open != Some(Purpose::Sample) || self.watch.is_overdue() {
            return false;
        }
        let late = self.take_answer(deadline);
        let has_come = late.is_some();
        self.this_tick = late.map_or(ThisTick::Repeats, ThisTick::Takes);
        has_come
    }

    fn take_answer(&mut self, deadline: Instant) -> Option<(Answer, Instant)> {
        let answer = self.thread.take_answer(deadline)?;
        self.open = None;
        Some(answer)
    }

    /// The answer that belongs into the sample of this tick; `None` when the last one is to be repeated.
    pub(super) fn read(&mut self, tick: &Tick) -> Option<Reading> {
        let answer = match std::mem::replace(&mut self.this_tick, ThisTick::Repeats) {
            ThisTick::Waits { else_take } => self.take_answer(tick.at + tick.grace()).or(else_take),
            ThisTick::Takes(answer) => Some(answer),
            ThisTick::Repeats => None,
        };
        if let Some((answer, at)) = answer {
            let pace = answer.pace(at, tick);
            if pace == Pace::InTime || self.pace == Pace::Unknown {
                self.pace = pace;
            }
            return Some(answer.reading);
        }
        (self.pace != Pace::Unknown && self.watch.is_overdue()).then_some(Reading::Failed)
    }
}

impl Answer {
    fn is_absent(&self) -> bool {
        matches!(self.reading, Reading::Absent)
    }

    /// When it was primed, the source was built as well: that says nothing of others.
    fn pace(&self, at: Instant, tick: &Tick) -> Pace {
        let is_late = self.purpose == Purpose::Sample && at.saturating_duration_since(self.asked) > tick.grace();
        if is_late { Pace::Late } else { Pace::InTime }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use schemars::JsonSchema;
    use serde::Serialize;

    use super::super::ready_source::ReadySource;
    use super::super::source_runner::SourceRunner;
    use crate::sample::{Section, Sections, SourceState};
    use crate::source::{Cadence, GRACE, Host, Schedule, Source};

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
        source: SourceRunner,
        may_answer: Sender<()>,
        done: Receiver<u64>,
        number: u64,
    }

    impl Run {
        fn new() -> Self {
            let ((may_answer, gate), (done, answered)) = (mpsc::channel(), mpsc::channel());
            let schedule = Schedule { cadence: Cadence::EveryTick, blocking: true };
            let config = Box::new(ReadySource::new(MeterSource { may_answer: gate, done, last: 0 }, schedule));
            let source = SourceRunner::new("meter", config, &Host::default(), Duration::from_millis(100));
            Self { source, may_answer, done: answered, number: 0 }
        }

        /// It is primed, with a question that is answered later.
        fn prime(&mut self) {
            let tick = Tick::new(self.number, Instant::now(), Duration::ZERO, Duration::from_secs(1));
            self.number += 1;
            self.source.ask(&tick, tick.at, Purpose::Prime);
            self.source.prime(&tick, tick.at);
        }

        /// A tick whose question is answered at once when it is `quick`: the tick and the energy in its sample.
        fn tick(&mut self, quick: bool) -> anyhow::Result<Option<(u64, Option<u64>)>> {
            let tick = Tick::new(self.number, Instant::now(), Duration::ZERO, Duration::from_secs(1));
            self.number += 1;
            self.source.ask(&tick, tick.at, Purpose::Sample);
            if quick {
                self.may_answer.send(())?;
            }
            let meter = self.source.read(&tick, tick.at);
            Ok(meter.and_then(|sections| sections.get::<Meter>().map(|meter| (meter.tick, meter.energy))))
        }

        /// What the end of the run waits for.
        fn settle(&mut self) -> bool {
            self.source.settle(Instant::now() + Duration::from_secs(20))
        }

        /// A tick at which nobody is asked.
        fn read(&mut self) -> Option<(u64, Option<u64>)> {
            let tick = Tick::new(self.number, Instant::now(), Duration::ZERO, Duration::from_secs(1));
            self.number += 1;
            let sections = self.source.read(&tick, tick.at)?;
            sections.get::<Meter>().map(|meter| (meter.tick, meter.energy))
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
        run.prime();
        run.answer(Duration::ZERO)?;
        for number in 1..10 {
            assert_eq!(run.tick(true)?, Some((number, Some(1))));
        }
        Ok(())
    }

    #[test]
    fn what_was_counted_until_the_end_is_in_the_last_samples() -> anyhow::Result<()> {
        let mut run = Run::new();
        run.prime();
        run.answer(Duration::ZERO)?;
        assert!(!run.settle(), "nothing is open");
        assert_eq!(run.tick(true)?, Some((1, Some(1))));
        // An answer has come too late for its sample.
        assert_eq!(run.tick(false)?, Some((1, None)));
        run.answer(Duration::ZERO)?;
        assert!(run.settle());
        assert_eq!(run.read(), Some((2, Some(1))), "it has a sample of its own");
        assert_eq!(run.tick(true)?, Some((4, Some(2))), "and leaves room in the last one");
        // An answer is under way.
        assert_eq!(run.tick(false)?, Some((4, None)));
        run.may_answer.send(())?;
        assert!(run.settle());
        assert_eq!(run.read(), Some((5, Some(1))));
        assert_eq!(run.tick(true)?, Some((7, Some(2))));
        Ok(())
    }

    #[test]
    fn a_tracker_that_was_stopped_takes_no_source_for_failed() -> anyhow::Result<()> {
        let ((may_answer, gate), (done, answered)) = (mpsc::channel(), mpsc::channel());
        let schedule = Schedule { cadence: Cadence::EveryTick, blocking: true };
        let config = Box::new(ReadySource::new(MeterSource { may_answer: gate, done, last: 0 }, schedule));
        let mut source = SourceRunner::new("meter", config, &Host::default(), Duration::from_millis(100));
        // In the past: no answer is waited for.
        let (mut at, mut number) = (Instant::now() - Duration::from_secs(7200), 0);
        let mut state_after = |pause: Duration| {
            at += pause;
            number += 1;
            let tick = Tick::new(number, at, Duration::ZERO, Duration::from_millis(100));
            source.ask(&tick, at, Purpose::Sample);
            source.read(&tick, at);
            source.state().1
        };
        state_after(Duration::ZERO);
        may_answer.send(())?;
        answered.recv()?;
        while state_after(Duration::ZERO) != SourceState::Read {
            std::thread::yield_now();
        }
        state_after(Duration::ZERO);
        assert_eq!(state_after(Duration::from_secs(3600)), SourceState::Read, "an hour in a frozen container");
        assert_eq!(state_after(Duration::from_millis(100)), SourceState::Read, "the question is open");
        assert!((0..30).any(|_| state_after(Duration::from_millis(100)) == SourceState::Failed), "three seconds");
        Ok(())
    }

    #[test]
    fn nothing_is_counted_twice_and_nothing_is_lost() -> anyhow::Result<()> {
        let mut run = Run::new();
        run.prime();
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
