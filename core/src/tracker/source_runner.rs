//! One source at work: when it is read, where, and what a sample takes from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blocking_source::BlockingSource;
use super::last_reading::LastReading;
use super::reader::{Purpose, Reader, Reading};
use crate::guard::Guard;
use crate::sample::{Sections, SourceState};
use crate::source::{Cadence, Host, Schedule, SourceConfig, Tick};

/// A source of a run.
pub(super) struct SourceRunner {
    name: Arc<str>,
    /// For calls of the source on the sampler's thread, other than readings.
    guard: Guard,
    state: SourceState,
    cadence: Cadence,
    access: Access,
    /// When the tick of its last reading was due, which is exact where the tick itself came a little early or late.
    last_due: Option<Instant>,
    last: LastReading,
}

/// How the source is read.
enum Access {
    /// At once, on the sampler's thread.
    Direct(Box<Reader>),
    /// By a thread of its own, which is asked.
    Asked(BlockingSource),
    /// Not at all: it is absent, or was read for good.
    Ended,
}

impl SourceRunner {
    pub(super) fn new(name: &str, config: Box<dyn SourceConfig>, host: &Host, interval: Duration) -> Self {
        let component = format!("source {name}");
        let mut guard = Guard::new(component.clone());
        let asked = guard.run(|| {
            let schedule = config.schedule();
            (schedule, schedule.blocking && config.is_plainly_absent(host))
        });
        let (Schedule { cadence, blocking }, is_absent) = asked.unwrap_or_default();
        let mut reader = Reader::new(&component, config, host.clone());
        let (mut state, mut access) = (SourceState::Awaited, Access::Ended);
        if guard.is_off() {
            state = SourceState::Failed;
        } else if is_absent {
            state = SourceState::Absent;
        } else if blocking {
            let every = match cadence {
                Cadence::EveryTick => Some(interval),
                Cadence::Every(every) => Some(every.max(interval)),
                Cadence::Once => None,
            };
            match BlockingSource::new(name, reader, every) {
                Ok(source) => access = Access::Asked(source),
                Err(error) => {
                    log::warn!("{component}: no thread for it ({error}), so it is off");
                    state = SourceState::Absent;
                }
            }
        } else {
            reader.build();
            access = Access::Direct(Box::new(reader));
        }
        Self { name: name.into(), guard, state, cadence, access, last_due: None, last: LastReading::default() }
    }

    /// Its name, and what came of reading it so far.
    pub(super) fn state(&self) -> (Arc<str>, SourceState) {
        (Arc::clone(&self.name), self.state)
    }

    /// Asks a source that blocks, so that it works while the others are read. The tick was `due` then.
    pub(super) fn ask(&mut self, tick: &Tick, due: Instant, purpose: Purpose) {
        let is_due = self.is_due(tick, due);
        let purpose = if self.cadence == Cadence::Once { Purpose::Sample } else { purpose };
        if let Access::Asked(source) = &mut self.access
            && source.ask(tick, is_due, purpose)
        {
            self.last_due = Some(due);
        }
    }

    /// Before the last tick of a run: waits until `deadline` for an answer that was too late for its own sample.
    /// Whether it came and is to be read. A source that is read once has no counters, and is not waited for.
    pub(super) fn settle(&mut self, deadline: Instant) -> bool {
        match &mut self.access {
            Access::Asked(source) => self.cadence != Cadence::Once && source.settle(deadline),
            Access::Direct(_) | Access::Ended => false,
        }
    }

    /// Primes a source that is read here. One that blocks was asked, and one that is read once has no counters.
    pub(super) fn prime(&mut self, tick: &Tick, due: Instant) {
        if let Access::Direct(reader) = &mut self.access
            && self.cadence != Cadence::Once
        {
            self.last_due = Some(due);
            let reading = reader.read(tick, Purpose::Prime);
            self.keep(reading);
        }
    }

    /// What this source gives to the sample of this tick. For a source that blocks it waits until the grace time of the
    /// tick is over.
    pub(super) fn read(&mut self, tick: &Tick, due: Instant) -> Option<Arc<Sections>> {
        let is_due = self.is_due(tick, due);
        let reading = match &mut self.access {
            Access::Ended => return None,
            Access::Asked(source) => source.read(tick),
            Access::Direct(_) if !is_due => None,
            Access::Direct(reader) => {
                self.last_due = Some(due);
                Some(reader.read(tick, Purpose::Sample))
            }
        };
        match reading {
            Some(reading) => self.keep(reading),
            None => self.repeat(),
        }
    }

    fn repeat(&mut self) -> Option<Arc<Sections>> {
        let Self { guard, last, .. } = self;
        if let Some(sections) = guard.run(|| last.repeat()) {
            return sections;
        }
        // Its section panicked.
        self.access = Access::Ended;
        self.keep(Reading::Failed)
    }

    /// Keeps what was read, for this sample and for those that repeat it.
    fn keep(&mut self, reading: Reading) -> Option<Arc<Sections>> {
        let (state, sections) = match reading {
            Reading::Read(sections) => (SourceState::Read, Some(sections)),
            Reading::Failed => (SourceState::Failed, None),
            Reading::Absent => (SourceState::Absent, None),
        };
        self.state = state;
        self.last.set(sections.clone());
        match (state, self.cadence) {
            // Its thread, if it has one, ends as well.
            (SourceState::Absent, _) | (SourceState::Read, Cadence::Once) => self.access = Access::Ended,
            // It is tried again.
            (SourceState::Failed, Cadence::Once) => self.last_due = None,
            _ => (),
        }
        sections
    }

    fn is_due(&self, tick: &Tick, due: Instant) -> bool {
        // An interval such as a third of a second is cut to whole nanoseconds.
        let rounding = tick.interval / 1000;
        self.last_due.is_none_or(|last| match self.cadence {
            Cadence::EveryTick => true,
            Cadence::Once => false,
            // At the end as well, so that nothing that was counted since is missing.
            Cadence::Every(every) => tick.last || due.saturating_duration_since(last) + rounding >= every,
        })
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;

    use super::super::ready_source::ReadySource;
    use super::*;
    use crate::clock::Clock;
    use crate::sample::Section;
    use crate::source::Source;

    const MS: Duration = Duration::from_millis(1);

    #[derive(Clone, Debug, Default, Serialize, JsonSchema)]
    struct Read {
        number: u64,
        elapsed: Duration,
        #[serde(skip)]
        at: Option<Instant>,
    }

    impl Section for Read {
        const NAME: &'static str = "read";
    }

    /// Fails at these ticks.
    struct Fails(Vec<u64>);

    impl Source for Fails {
        fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            anyhow::ensure!(!self.0.contains(&tick.number), "not now");
            *out.section() = Read { number: tick.number, elapsed: tick.elapsed, at: Some(tick.at) };
            Ok(())
        }
    }

    fn runner(fails: &[u64], cadence: Cadence, interval: Duration) -> SourceRunner {
        let schedule = Schedule { cadence, blocking: false };
        let source = Box::new(ReadySource::new(Fails(fails.to_vec()), schedule));
        SourceRunner::new("test", source, &Host::default(), interval)
    }

    fn tick(number: u64, at: Instant, interval: Duration) -> Tick<'static> {
        Tick::new(number, at, Duration::ZERO, interval)
    }

    /// The numbers of the ticks at which it is read, when each comes as late as `late` says.
    fn read_at(every: Duration, interval: Duration, late: impl Fn(u64) -> Duration) -> Vec<u64> {
        let mut runner = runner(&[], Cadence::Every(every), interval);
        let start = Instant::now();
        let mut clock = Clock::new(start, interval);
        let first = runner.read(&tick(0, start, interval), start);
        assert!(first.is_some());
        let read = |number: u64| {
            let at = start + interval * number as u32 + late(number);
            let due = clock.advance(at);
            runner.read(&tick(number, at, interval), due)?.get::<Read>().map(|read| read.number)
        };
        let mut read: Vec<u64> = (1..=60).filter_map(read).filter(|number| *number > 0).collect();
        read.dedup();
        read
    }

    #[test]
    fn it_is_read_at_every_multiple_whenever_the_tick_came() {
        // What a timer does: never early, and a little late, now more and now less.
        let jitter = |number: u64| Duration::from_micros(number * 7919 % 700);
        let multiples = |of: u64| (1..=60 / of).map(|number| number * of).collect::<Vec<u64>>();
        assert_eq!(read_at(100 * MS, 100 * MS, jitter), multiples(1));
        assert_eq!(read_at(200 * MS, 100 * MS, jitter), multiples(2));
        assert_eq!(read_at(1000 * MS, 100 * MS, jitter), multiples(10));
        assert_eq!(read_at(Duration::from_secs(1), Duration::from_secs(1) / 3, jitter), multiples(3));
        // Never sooner than it may be.
        assert_eq!(read_at(250 * MS, 100 * MS, jitter), multiples(3));
        // A machine that stands still for the better part of an interval.
        assert_eq!(read_at(200 * MS, 100 * MS, |number| 60 * MS * u32::from(number % 4 == 2)), multiples(2));
    }

    /// What panics beside the readings.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Broken {
        Schedule,
        Glance,
        Section,
        Drop,
    }

    #[derive(Clone, Debug, Default, Serialize, JsonSchema)]
    struct BrokenSection(bool);

    impl Section for BrokenSection {
        const NAME: &'static str = "broken";

        fn without_deltas(&self) -> Option<Self> {
            if self.0 { std::panic::panic_any("broken") } else { None }
        }
    }

    impl SourceConfig for Broken {
        fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
            Ok(Some(Box::new(BrokenSource(*self))))
        }

        fn is_plainly_absent(&self, _: &Host) -> bool {
            if *self == Broken::Glance { std::panic::panic_any("broken") } else { false }
        }

        fn schedule(&self) -> Schedule {
            match self {
                Broken::Schedule => std::panic::panic_any("broken"),
                Broken::Glance => Schedule { cadence: Cadence::EveryTick, blocking: true },
                Broken::Section | Broken::Drop => Schedule { cadence: Cadence::Every(60_000 * MS), blocking: false },
            }
        }

        fn typetag_deserialize(&self) {}
    }

    struct BrokenSource(Broken);

    impl Source for BrokenSource {
        fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            out.section::<BrokenSection>().0 = self.0 == Broken::Section;
            Ok(())
        }
    }

    impl Drop for BrokenSource {
        fn drop(&mut self) {
            if self.0 == Broken::Drop {
                std::panic::panic_any("broken")
            }
        }
    }

    #[test]
    fn a_panic_beside_its_readings_switches_it_off() {
        let start = Instant::now();
        for broken in [Broken::Schedule, Broken::Glance, Broken::Section, Broken::Drop] {
            let mut runner = SourceRunner::new("test", Box::new(broken), &Host::default(), 1000 * MS);
            let tick = tick(0, start, 1000 * MS);
            runner.prime(&tick, start);
            let sections = [0, 1].map(|_| runner.read(&tick, start).is_some());
            let works = broken == Broken::Drop;
            assert_eq!(sections, [works; 2], "{broken:?}");
            assert_eq!(runner.state().1, if works { SourceState::Read } else { SourceState::Failed }, "{broken:?}");
        }
    }

    #[test]
    fn it_is_read_at_the_end_as_well() {
        let second = 1000 * MS;
        let mut runner = runner(&[], Cadence::Every(60 * second), second);
        let start = Instant::now();
        let mut read = |number: u64, last: bool| {
            let at = start + second * number as u32;
            let tick = Tick { last, ..tick(number, at, second) };
            runner.read(&tick, at)?.get::<Read>().map(|read| read.number)
        };
        assert_eq!([(0, false), (1, false), (50, true)].map(|(number, last)| read(number, last)), [0, 0, 50].map(Some));
    }

    /// Says what it was read for.
    struct Says;

    impl Source for Says {
        fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            *out.section() = Read { number: tick.number, elapsed: tick.elapsed, at: Some(tick.at) };
            Ok(())
        }

        fn prime(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            *out.section() = Read { number: 1000, ..Read::default() };
            Ok(())
        }
    }

    /// The numbers in the first three samples, whose times are in the future: a thread of its own is waited for.
    fn first_samples(cadence: Cadence, blocking: bool) -> [Option<u64>; 3] {
        let interval = 60_000 * MS;
        let source = Box::new(ReadySource::new(Says, Schedule { cadence, blocking }));
        let mut runner = SourceRunner::new("test", source, &Host::default(), interval);
        let start = Instant::now();
        let baseline = tick(0, start, interval);
        runner.ask(&baseline, start, Purpose::Prime);
        runner.prime(&baseline, start);
        [1, 2, 3].map(|number| {
            let at = start + interval * number as u32;
            let tick = tick(number, at, interval);
            runner.ask(&tick, at, Purpose::Sample);
            runner.read(&tick, at)?.get::<Read>().map(|read| read.number)
        })
    }

    #[test]
    fn a_source_is_primed_and_one_that_is_read_once_is_read() {
        assert_eq!(first_samples(Cadence::EveryTick, false), [Some(1), Some(2), Some(3)]);
        assert_eq!(first_samples(Cadence::Every(120_000 * MS), false), [Some(1000), Some(2), Some(2)]);
        assert_eq!(first_samples(Cadence::Once, false), [Some(1), None, None]);
        assert_eq!(first_samples(Cadence::Once, true), [Some(0), None, None], "it was asked when the run began");
    }

    #[test]
    fn what_is_read_after_a_failure_covers_the_time_since_the_success_before() {
        let interval = 1000 * MS;
        let mut runner = runner(&[2], Cadence::EveryTick, interval);
        let start = Instant::now();
        let mut read = |number: u64, at: Duration| {
            let at = start + at;
            let sections = runner.read(&tick(number, at, interval), at)?;
            sections.get::<Read>().and_then(|read| Some((read.at?, read.elapsed)))
        };
        let (first, elapsed) = read(0, Duration::ZERO).unwrap();
        assert_eq!(elapsed, Duration::ZERO);
        let (second, elapsed) = read(1, interval).unwrap();
        assert_eq!(elapsed, second - first);
        assert!(read(2, interval * 2).is_none(), "it fails");
        assert!(read(3, interval * 2 + 500 * MS).is_none(), "it is paused");
        let (third, elapsed) = read(4, interval * 4).unwrap();
        assert_eq!(elapsed, third - second);
        let (fourth, elapsed) = read(5, interval * 5).unwrap();
        assert_eq!(elapsed, fourth - third);
    }

    #[test]
    fn one_that_fails_from_the_start_is_told_that_no_time_has_passed() {
        let interval = 1000 * MS;
        let mut runner = runner(&[0], Cadence::EveryTick, interval);
        let start = Instant::now();
        assert!(runner.read(&tick(0, start, interval), start).is_none());
        let at = start + interval * 2;
        let first = runner.read(&tick(2, at, interval), at);
        assert_eq!(first.and_then(|read| read.get::<Read>().map(|read| read.elapsed)), Some(Duration::ZERO));
    }
}
