//! The sampling loop: reads the sources at each tick and hands what they saw to the sinks.

mod apart;
mod built;
mod derive;
mod feed;
mod outlet;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::clock::Clock;
use crate::derivation::Derivation;
use crate::job::{Outcome, Run};
use crate::patience;
use crate::pool::Pool;
use crate::registry::linked_sections;
use crate::sample::{Sample, Sections};
use crate::sink::{Sink, SinkConfig, SinkContext};
use crate::source::{Host, Schedule, Source, SourceConfig, Tick};
use crate::tracked::{JobCgroup, Ledger, Members, Tracked};
use built::Built;
use derive::Derivations;
use feed::Feed;
use outlet::{Named, Outlet, Outlets, lock};

/// A run to be sampled, put together from sources and sinks.
pub struct Tracker {
    run: Run,
    host: Host,
    sources: Vec<(String, Box<dyn SourceConfig>)>,
    derivations: Derivations,
    sinks: Vec<Named>,
    when_closed: Option<WhenClosed>,
    ledger: Ledger,
    members: Arc<Members>,
    cgroup: Option<Arc<JobCgroup>>,
    adopts_orphans: bool,
    fork_mark: Option<u64>,
}

type WhenClosed = Arc<dyn Fn() + Send + Sync>;

impl Tracker {
    /// A tracker for `run`, without sources and sinks. When the run has a command, its process is taken to be a child
    /// of this program: what it used since it was born counts.
    pub fn new(run: Run) -> Self {
        Self {
            run,
            host: Host::default(),
            sources: Vec::new(),
            derivations: Derivations::default(),
            sinks: Vec::new(),
            when_closed: None,
            ledger: Ledger::default(),
            members: Arc::default(),
            cgroup: None,
            adopts_orphans: false,
            fork_mark: None,
        }
    }

    /// Reads another procfs and sysfs than this machine's own.
    pub fn host(mut self, host: Host) -> Self {
        // Its shared readers are those of one run.
        self.host = Host::new(host.procfs, host.sysfs);
        self
    }

    /// Adds a source. Sources are read in the order in which they were added.
    pub fn source(mut self, name: impl Into<String>, config: Box<dyn SourceConfig>) -> Self {
        self.sources.push((name.into(), config));
        self
    }

    /// Adds a source that is built already: one that looks at something inside this program.
    pub fn own_source(self, name: impl Into<String>, source: impl Source + 'static, schedule: Schedule) -> Self {
        self.source(name, Box::new(Built::new(source, schedule)))
    }

    /// Adds a derivation. Those that are linked in or loaded are in the
    /// [`Registry`](crate::registry::Registry::derivations).
    pub fn derivation(mut self, name: &str, derivation: Box<dyn Derivation>) -> Self {
        self.derivations.add(name, derivation);
        self
    }

    /// Adds a sink.
    pub fn sink(mut self, name: impl Into<String>, sink: impl Sink + 'static) -> Self {
        self.sinks.push((name.into(), Box::new(sink), outlet::PATIENCE));
        self
    }

    /// Builds a sink from its configuration and adds it.
    ///
    /// # Errors
    /// When the sink cannot be built.
    pub fn sink_from(mut self, name: impl Into<String>, config: &dyn SinkConfig) -> anyhow::Result<Self> {
        let context = SinkContext { wraps_command: !self.run.command.is_empty() };
        self.sinks.push((name.into(), config.build(&context)?, config.patience()));
        Ok(self)
    }

    /// Calls `action` once when every sink has closed for good, because nobody reads any more.
    pub fn when_all_sinks_closed(mut self, action: impl Fn() + Send + Sync + 'static) -> Self {
        self.when_closed = Some(Arc::new(action));
        self
    }

    /// Where to write down what the command used when it has ended, and orphans of it that were waited for.
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// Orphans of the command become children of this program's main thread (`PR_SET_CHILD_SUBREAPER`, or process 1), so
    /// that thread's new children belong to the run. To be said of one tracker in a program at most: without it, only
    /// descendants of the command are counted. Children that bear the `fork_mark` are this program's own.
    pub fn set_adopts_orphans(&mut self, fork_mark: Option<u64>) {
        (self.adopts_orphans, self.fork_mark) = (true, fork_mark);
    }

    /// Who belongs to the tree that is tracked, as of each tick.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members)
    }

    /// The command was started in a cgroup that holds nothing else.
    pub fn set_cgroup(&mut self, cgroup: JobCgroup) {
        self.cgroup = Some(Arc::new(cgroup));
    }

    /// The facts of the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The facts of the run, which may still be completed (the command's process id is known once it runs).
    pub fn run_mut(&mut self) -> &mut Run {
        &mut self.run
    }

    /// Begins: takes the baseline and samples from then on, one interval apart, on a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self) -> io::Result<Running> {
        let run = Arc::new(self.run);
        let open = Arc::new(AtomicUsize::new(self.sinks.len()));
        let when_closed = self.when_closed.unwrap_or_else(|| Arc::new(|| ()));
        let one_closed: WhenClosed = Arc::new(move || {
            if open.fetch_sub(1, Ordering::AcqRel) == 1 {
                when_closed();
            }
        });
        let (orders, inbox) = mpsc::channel();
        let outlets = Arc::new(Mutex::new(Outlets::new(self.sinks, &run, one_closed)));
        let mut sampler = Sampler {
            feeds: Vec::new(),
            derivations: self.derivations,
            defaults: default_sections(),
            outlets: Arc::clone(&outlets),
            pool: Pool::new(),
            run: Arc::clone(&run),
            ledger: self.ledger,
            cgroup: self.cgroup,
            adopts_orphans: self.adopts_orphans,
            fork_mark: self.fork_mark,
            members: self.members,
            previous: Instant::now(),
            number: 0,
            steps: Arc::default(),
        };
        let steps = Arc::clone(&sampler.steps);
        thread::Builder::new().name("sampler".into()).spawn(move || {
            let start = Instant::now();
            for (name, config) in self.sources {
                sampler.feeds.push(Feed::new(&name, config, &self.host, run.interval));
                sampler.steps.fetch_add(1, Ordering::Relaxed);
            }
            sampler.baseline(start);
            lock(&sampler.outlets).open();
            sampler.work(start, &inbox);
        })?;
        Ok(Running { orders, outlets, steps })
    }
}

/// The sections that are in a sample also when no source wrote them, each with its name.
fn default_sections() -> Vec<(&'static str, Arc<Sections>)> {
    let always = linked_sections().into_iter().filter_map(|entry| Some((entry.name, entry.write_default?)));
    always
        .map(|(name, write)| {
            let mut sections = Sections::default();
            write(&mut sections);
            (name, Arc::new(sections))
        })
        .collect()
}

struct Sampler {
    feeds: Vec<Feed>,
    derivations: Derivations,
    defaults: Vec<(&'static str, Arc<Sections>)>,
    outlets: Arc<Mutex<Outlets>>,
    pool: Pool<Sample>,
    run: Arc<Run>,
    ledger: Ledger,
    cgroup: Option<Arc<JobCgroup>>,
    adopts_orphans: bool,
    fork_mark: Option<u64>,
    members: Arc<Members>,
    previous: Instant,
    number: u64,
    /// Counts what the sampler has got done, so that one that hangs can be told from one on a busy machine.
    steps: Arc<AtomicUsize>,
}

enum Order {
    LastSample(mpsc::Sender<()>),
    Stop,
}

impl Sampler {
    fn work(&mut self, start: Instant, inbox: &mpsc::Receiver<Order>) {
        let mut clock = Clock::new(start, self.run.interval);
        loop {
            match inbox.recv_timeout(clock.until_next(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    let due = clock.advance(now);
                    self.sample(now, due, false);
                }
                Ok(Order::LastSample(done)) => {
                    let now = Instant::now();
                    self.sample(now, now, true);
                    // Nobody waits any more when the limit has passed.
                    let _ = done.send(());
                    return;
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn tick(&self, at: Instant, last: bool) -> Tick {
        let spawned = !self.run.command.is_empty();
        let tracked = self.run.pid.map(|pid| {
            let cgroup = self.cgroup.as_ref().map(Arc::clone);
            let (adopts_orphans, fork_mark) = (self.adopts_orphans, self.fork_mark);
            let (reaped, members) = (self.ledger.reaped(), Arc::clone(&self.members));
            Tracked { pid, spawned, adopts_orphans, fork_mark, reaped, cgroup, members }
        });
        Tick { number: self.number, at, elapsed: Duration::ZERO, interval: self.run.interval, last, tracked }
    }

    fn baseline(&mut self, at: Instant) {
        let tick = self.tick(at, false);
        self.previous = at;
        self.feeds.iter_mut().for_each(|feed| feed.ask(&tick, at));
        for feed in &mut self.feeds {
            feed.read(&tick, at);
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a sample that was `due` then.
    fn sample(&mut self, at: Instant, due: Instant, last: bool) {
        let timestamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.number += 1;
        let tick = self.tick(at, last);
        let (feeds, derivations) = (&mut self.feeds, &mut self.derivations);
        let (defaults, run, steps) = (&self.defaults, &self.run, &self.steps);
        let elapsed = at.saturating_duration_since(self.previous);
        let (sample, ()) = self.pool.fill(|sample| {
            sample.run = Arc::clone(run);
            sample.timestamp = timestamp;
            sample.elapsed = elapsed;
            sample.parts.clear();
            sample.states.clear();
            feeds.iter_mut().for_each(|feed| feed.ask(&tick, due));
            for feed in feeds {
                sample.parts.extend(feed.read(&tick, due));
                sample.states.push(feed.state());
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
        lock(&self.outlets).open().iter_mut().for_each(|outlet| outlet.write(&sample));
    }
}

/// A tracker at work. Dropping it stops the sampling; [`finish`](Running::finish) also closes the sinks in order.
pub struct Running {
    orders: mpsc::Sender<Order>,
    outlets: Arc<Mutex<Outlets>>,
    steps: Arc<AtomicUsize>,
}

impl Running {
    /// Takes one more sample and no further ones. Says whether it was taken. A source that hangs in the kernel can
    /// prevent it: it is given up when no source was read for as long as `limit`.
    pub fn take_last_sample(&self, limit: Duration) -> bool {
        let (done, taken) = mpsc::channel();
        if self.orders.send(Order::LastSample(done)).is_err() {
            return false;
        }
        loop {
            let steps = self.steps.load(Ordering::Relaxed);
            match patience::receive(&taken, limit) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if self.steps.load(Ordering::Relaxed) != steps => (),
                Err(_) => return false,
            }
        }
    }

    /// Ends the run: the sinks write what waits for them and close. A sink that makes no progress is left behind after
    /// its patience, with a message.
    pub fn finish(self, outcome: Outcome) {
        // The loop is gone already when the last sample was taken.
        let _ = self.orders.send(Order::Stop);
        let deadline = Instant::now() + outlet::PATIENCE;
        loop {
            match self.outlets.try_lock() {
                Ok(mut outlets) => return close(outlets.open(), outcome),
                Err(TryLockError::Poisoned(poisoned)) => return close(poisoned.into_inner().open(), outcome),
                // A sink without a thread of its own hangs in a write.
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn close(outlets: &mut [Outlet], outcome: Outcome) {
    outlets.iter_mut().for_each(|outlet| outlet.close(outcome));
    outlets.iter_mut().for_each(Outlet::wait);
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::*;

    /// Hangs until it may go on.
    struct Hangs(mpsc::Receiver<()>);

    impl Source for Hangs {
        fn collect(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            Ok(self.0.recv()?)
        }
    }

    struct Calls(Arc<Mutex<Vec<String>>>);

    impl Calls {
        fn say(&self, call: String) -> anyhow::Result<()> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            Ok(())
        }
    }

    impl Sink for Calls {
        fn start(&mut self, run: &Run) -> anyhow::Result<()> {
            self.say(format!("start {:?}", run.pid))
        }

        fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
            self.say("write".into())
        }

        fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
            self.say(format!("finish {:?}", outcome.exit_code))
        }
    }

    #[test]
    fn a_run_that_ends_before_its_first_reading_closes_its_sinks() -> anyhow::Result<()> {
        let (go_on, gate) = mpsc::channel();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let run = Run { pid: Some(7), ..Run::default() };
        let tracker = Tracker::new(run).own_source("hangs", Hangs(gate), Schedule::default());
        let running = tracker.sink("calls", Calls(Arc::clone(&calls))).start()?;
        assert!(!running.take_last_sample(Duration::from_millis(50)), "it hangs");
        running.finish(Outcome { exit_code: Some(3), signal: None });
        let called = || calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(called(), ["start Some(7)", "finish Some(3)"]);
        drop(go_on);
        Ok(())
    }
}
