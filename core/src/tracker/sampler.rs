//! The thread that takes the samples.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::derive::Derivations;
use super::observe::ObserverRunner;
use super::prepared::Beginning;
use super::reader::Purpose;
use super::sampler_request::SamplerRequest;
use super::sink_runner::{SinkRunners, lock};
use super::sink_writer::{DirectWriter, write_direct};
use super::source_runner::SourceRunner;
use crate::clock::Clock;
use crate::guard::Guard;
use crate::job::Run;
use crate::observer::Moment;
use crate::pool::Pool;
use crate::registry::linked_sections;
use crate::sample::{Sample, SectionEntry, Sections};
use crate::source::{GRACE, Host, SourceConfig};

/// What is known before the run begins.
pub(super) struct Plan {
    pub(super) sources: Vec<(String, Box<dyn SourceConfig>)>,
    pub(super) derivations: Derivations,
    pub(super) host: Host,
    pub(super) interval: Duration,
    pub(super) steps: Arc<AtomicUsize>,
}

struct Sampler {
    sources: Vec<SourceRunner>,
    derivations: Derivations,
    defaults: Vec<(&'static str, Arc<Sections>)>,
    sinks: Arc<Mutex<SinkRunners>>,
    /// The sinks without a thread, while a sample is written.
    direct: Vec<Arc<Mutex<DirectWriter>>>,
    pool: Pool<Sample>,
    run: Arc<Run>,
    observer: ObserverRunner,
    previous: Instant,
    number: u64,
    missed: u64,
    /// Counts the steps of the sampler, which tell a sampler that hangs from one on a busy machine.
    steps: Arc<AtomicUsize>,
}

/// Which sample it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SampleKind {
    Regular,
    /// Just before the last: it takes answers that came late, and asks no source.
    Settling,
    Last,
}

impl Plan {
    /// Sets up the sources on a thread of its own. The thread samples once the run begins, and does as `requests` say. It
    /// ends if no run begins.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn carry_out(
        self,
        begins: mpsc::Receiver<Beginning>,
        requests: mpsc::Receiver<SamplerRequest>,
    ) -> io::Result<()> {
        thread::Builder::new().name("sampler".into()).spawn(move || {
            let Self { sources, derivations, host, interval, steps } = self;
            let set_up = |(name, config): (String, Box<dyn SourceConfig>)| {
                let source = SourceRunner::new(&name, config, &host, interval);
                steps.fetch_add(1, Ordering::Relaxed);
                source
            };
            let sources = sources.into_iter().map(set_up).collect();
            let Ok(beginning) = begins.recv() else { return };
            let start = Instant::now();
            let mut sampler = Sampler::new(beginning, sources, derivations, steps);
            sampler.baseline(start);
            lock(&sampler.sinks).open();
            sampler.work(start, &requests);
        })?;
        Ok(())
    }
}

impl Sampler {
    fn new(
        beginning: Beginning,
        sources: Vec<SourceRunner>,
        derivations: Derivations,
        steps: Arc<AtomicUsize>,
    ) -> Self {
        let Beginning { run, observer, sinks } = beginning;
        Self {
            sources,
            derivations,
            defaults: default_sections(linked_sections()),
            sinks,
            direct: Vec::new(),
            pool: Pool::new(),
            run,
            observer,
            previous: Instant::now(),
            number: 0,
            missed: 0,
            steps,
        }
    }

    fn work(&mut self, start: Instant, requests: &mpsc::Receiver<SamplerRequest>) {
        let mut clock = Clock::new(start, self.run.interval);
        loop {
            match requests.recv_timeout(clock.until_next(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    let due = clock.advance(now);
                    self.missed = clock.missed();
                    self.sample(now, due, SampleKind::Regular);
                }
                Ok(SamplerRequest::LastSample(done)) => {
                    self.settle();
                    let now = Instant::now();
                    self.sample(now, now, SampleKind::Last);
                    // The receiver is gone when the limit has passed.
                    let _ = done.send(());
                    return;
                }
                Ok(SamplerRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn moment(&self, at: Instant, last: bool) -> Moment {
        let (interval, missed) = (self.run.interval, self.missed);
        Moment { number: self.number, at, elapsed: Duration::ZERO, interval, last, missed }
    }

    /// Takes the baseline, which was `due` then.
    fn baseline(&mut self, due: Instant) {
        let at = Instant::now();
        let moment = self.moment(at, false);
        self.previous = at;
        let Self { observer, sources, steps, .. } = self;
        let tick = observer.observe(moment);
        steps.fetch_add(1, Ordering::Relaxed);
        sources.iter_mut().for_each(|source| source.ask(&tick, due, Purpose::Prime));
        for source in sources {
            source.prime(&tick, due);
            steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts answers that were too late for their samples into a sample of their own, so that the last sample has room
    /// for what was counted since.
    fn settle(&mut self) {
        let deadline = Instant::now() + GRACE;
        let late = self.sources.iter_mut().filter_map(|source| source.settle(deadline).then_some(())).count();
        if late > 0 {
            let now = Instant::now();
            self.sample(now, now, SampleKind::Settling);
        }
    }

    /// Takes a sample that was `due` then.
    fn sample(&mut self, at: Instant, due: Instant, kind: SampleKind) {
        // The thread may have waited since then.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let timestamp = now.saturating_sub(at.elapsed());
        self.number += 1;
        let moment = self.moment(at, kind == SampleKind::Last);
        let Self { observer, sources, derivations, defaults, pool, run, steps, .. } = self;
        let elapsed = at.saturating_duration_since(self.previous);
        let tick = observer.observe(moment);
        steps.fetch_add(1, Ordering::Relaxed);
        let (sample, ()) = pool.fill(|sample| {
            sample.run = Arc::clone(run);
            sample.timestamp = timestamp;
            sample.elapsed = elapsed;
            sample.parts.clear();
            sample.states.clear();
            if kind != SampleKind::Settling {
                sources.iter_mut().for_each(|source| source.ask(&tick, due, Purpose::Sample));
            }
            for source in sources {
                source.read(&tick, due).into_iter().for_each(|part| sample.parts.push(part));
                sample.states.push(source.state());
                steps.fetch_add(1, Ordering::Relaxed);
            }
            for (name, sections) in defaults {
                if !sample.sections().any(|(other, _)| other == *name) {
                    sample.parts.push(Arc::clone(sections));
                }
            }
            derivations.complete(&tick, sample);
        });
        self.previous = at;
        self.direct.extend(lock(&self.sinks).open().iter_mut().filter_map(|sink| sink.hand_over(&sample)));
        write_direct(&mut self.direct, &sample);
    }
}

/// The sections that are in a sample also when no source wrote them, each with its name.
fn default_sections(entries: Vec<&SectionEntry>) -> Vec<(&'static str, Arc<Sections>)> {
    let always = entries.into_iter().filter_map(|entry| Some((entry.name, entry.write_default?)));
    always
        .filter_map(|(name, write)| {
            let mut sections = Sections::default();
            Guard::new(format!("section {name}")).run(|| write(&mut sections))?;
            Some((name, Arc::new(sections)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use schemars::JsonSchema;
    use serde::Serialize;

    use super::super::Tracker;
    use super::*;
    use crate::job::Outcome;
    use crate::sample::Section;
    use crate::sink::Sink;
    use crate::source::{Schedule, Source, Tick};

    /// Takes its time at every other tick, and says when it was done.
    struct Slow(Arc<Mutex<Instant>>);

    impl Source for Slow {
        fn collect(&mut self, tick: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            thread::sleep(Duration::from_millis(tick.number % 2 * 3));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            Ok(())
        }
    }

    /// What the second source gets: when the one before it was done, when its own reading begins, and the time since
    /// the last.
    struct Delayed {
        done: Arc<Mutex<Instant>>,
        readings: mpsc::Sender<(Instant, Instant, Duration)>,
    }

    impl Source for Delayed {
        fn collect(&mut self, tick: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            let done = *self.done.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(self.readings.send((done, tick.at, tick.elapsed))?)
        }
    }

    #[derive(Clone, Debug, Serialize, JsonSchema)]
    struct Broken;

    impl Default for Broken {
        fn default() -> Self {
            std::panic::panic_any("broken")
        }
    }

    impl Section for Broken {
        const NAME: &'static str = "broken";
    }

    #[test]
    fn a_section_that_cannot_be_made_is_left_out() {
        const ENTRIES: [SectionEntry; 2] =
            [SectionEntry::always_present::<Broken>(), SectionEntry::always_present::<Count>()];
        let names: Vec<_> = default_sections(ENTRIES.iter().collect()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["count"]);
    }

    #[test]
    fn an_interval_of_nothing_and_one_without_end_are_intervals() -> anyhow::Result<()> {
        for interval in [Duration::ZERO, Duration::MAX] {
            let readings = Arc::<AtomicUsize>::default();
            let schedule = Schedule { blocking: true, ..Schedule::default() };
            let run = Run { interval, ..Run::default() };
            let running =
                Tracker::new(run).own_source("count", LateCounter(Arc::clone(&readings)), schedule).start()?;
            thread::sleep(Duration::from_millis(20));
            assert!(running.take_last_sample(Duration::from_secs(20)), "{interval:?}");
            running.finish(Outcome::default());
            assert!(readings.load(Ordering::Relaxed) <= 20, "{interval:?}");
        }
        Ok(())
    }

    /// What was counted in one reading.
    #[derive(Clone, Debug, Default, Serialize, JsonSchema)]
    struct Count(u64);

    impl Section for Count {
        const NAME: &'static str = "count";

        fn without_deltas(&self) -> Option<Self> {
            Some(Self(0))
        }
    }

    /// Counts its readings, each of which takes longer than a sample waits.
    struct LateCounter(Arc<AtomicUsize>);

    impl Source for LateCounter {
        fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
            thread::sleep(Duration::from_millis(4));
            self.0.fetch_add(1, Ordering::Relaxed);
            out.section::<Count>().0 = 1;
            Ok(())
        }

        fn prime(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            Ok(())
        }
    }

    struct Sum(Arc<AtomicUsize>);

    impl Sink for Sum {
        fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
            let counted = sample.get::<Count>().map_or(0, |count| count.0);
            self.0.fetch_add(counted as usize, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn what_a_late_source_counted_is_in_the_samples_to_the_end() -> anyhow::Result<()> {
        // Whether the end waited for nothing in vain: a machine that stands still for longer keeps something out.
        let is_in_time = |pause: u64| -> anyhow::Result<bool> {
            let (counted, sum) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
            let run = Run { interval: Duration::from_millis(10), ..Run::default() };
            let schedule = Schedule { blocking: true, ..Schedule::default() };
            let tracker = Tracker::new(run).own_source("late", LateCounter(Arc::clone(&counted)), schedule);
            let running = tracker.sink("sum", Sum(Arc::clone(&sum))).start()?;
            while counted.load(Ordering::Relaxed) < 3 {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(pause));
            let end = Instant::now();
            assert!(running.take_last_sample(Duration::from_secs(20)));
            let is_in_time = end.elapsed() < GRACE;
            running.finish(Outcome::default());
            let (counted, sum) = (counted.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
            assert!(sum == counted || sum < counted && !is_in_time, "{sum} of {counted}");
            Ok(is_in_time)
        };
        for pause in 0..10 {
            let mut late = 0;
            while !is_in_time(pause)? {
                late += 1;
                assert!(late < 20, "too late, twenty times");
            }
        }
        Ok(())
    }

    #[test]
    fn a_source_that_is_delayed_by_another_knows_the_time_between_its_own_readings() -> anyhow::Result<()> {
        let done = Arc::new(Mutex::new(Instant::now()));
        let (readings, read) = mpsc::channel();
        let run = Run { interval: Duration::from_millis(10), ..Run::default() };
        let tracker = Tracker::new(run).own_source("slow", Slow(Arc::clone(&done)), Schedule::default());
        let running = tracker.own_source("delayed", Delayed { done, readings }, Schedule::default()).start()?;
        let readings: Vec<_> = read.iter().take(6).collect();
        drop(read);
        running.finish(Outcome::default());
        assert_eq!(readings[0].2, Duration::ZERO, "the baseline");
        for (done, at, _) in &readings {
            assert!(at >= done, "its reading begins after that of the other");
        }
        for pair in readings.windows(2) {
            let (_, at, elapsed) = pair[1];
            assert_eq!(elapsed, at - pair[0].1);
        }
        Ok(())
    }
}
