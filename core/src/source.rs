//! Where readings come from.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::background::Background;
use crate::observer::{Moment, Observation, ObservedJob};
use crate::sample::Sections;
use crate::worker_threads::WorkerThreads;

/// One moment at which the sources are read, with what was observed before.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tick<'a> {
    /// The number of the sample; 0 for the baseline, with which sources are primed.
    pub number: u64,
    /// When this source's reading begins, on the monotonic clock: what is read before it at the same tick, and opening it, are
    /// over then. For a derivation, when the tick began.
    pub at: Instant,
    /// Time since the last reading of this source that succeeded, from `at` to `at`: what a rate is taken over. Zero the first
    /// time, and for a derivation.
    pub elapsed: Duration,
    /// Time between two samples.
    pub interval: Duration,
    /// Whether the run ends with it. No further one follows.
    pub last: bool,
    /// Samples that were due so far and were not taken, because the one before took too long. A plugin does not get it:
    /// there it is 0.
    pub missed: u64,
    /// The ids of all processes of the machine, in ascending order, when they were listed at this tick. A source with a
    /// thread of its own never has them.
    pub processes: Option<&'a [i32]>,
    /// The process tree that is tracked, if one is.
    pub job: Option<ObservedJob<'a>>,
}

impl<'a> Tick<'a> {
    /// A tick without a job: what a test of a source needs.
    pub fn new(number: u64, at: Instant, elapsed: Duration, interval: Duration) -> Self {
        Self { number, at, elapsed, interval, last: false, missed: 0, processes: None, job: None }
    }

    /// The same with a job.
    pub fn with_job(self, job: impl Into<Option<ObservedJob<'a>>>) -> Self {
        Self { job: job.into(), ..self }
    }

    /// What was seen at a moment.
    pub fn of(moment: &Moment, seen: Observation<'a>) -> Self {
        let Moment { number, at, elapsed, interval, last, missed } = *moment;
        Self { number, at, elapsed, interval, last, missed, processes: seen.processes, job: seen.job }
    }

    /// How long its sample waits for what works on another thread.
    pub(crate) fn grace(&self) -> Duration {
        match self.last {
            true => GRACE,
            false => GRACE.min(self.interval / 4),
        }
    }
}

/// How long a tick waits for an answer; less when the interval is short.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// The machine that is read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Host {
    /// Where procfs is mounted; `/proc` unless a container looks at its host.
    pub procfs: PathBuf,
    /// Where sysfs is mounted; `/sys` likewise.
    pub sysfs: PathBuf,
    /// Threads for readings that may block.
    workers: Arc<WorkerThreads>,
}

impl Host {
    /// A machine with these two file systems.
    pub fn new(procfs: impl Into<PathBuf>, sysfs: impl Into<PathBuf>) -> Self {
        Self { procfs: procfs.into(), sysfs: sysfs.into(), workers: Arc::default() }
    }

    /// Runs `answer`, which can block but seldom does, on a thread that other sources use as well. `name` is what `ps
    /// -T` shows meanwhile (15 bytes of it). A reading that blocks as a rule needs a thread of its own
    /// ([`Background::spawn`]).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn background<Q: Send + 'static, A: Clone + Send + 'static>(
        &self,
        name: &str,
        answer: impl FnMut(Q) -> A + Send + 'static,
    ) -> io::Result<Background<Q, A>> {
        Background::shared(name, answer, &self.workers)
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new("/proc", "/sys")
    }
}

/// Something that can be read.
pub trait Source: Send {
    /// Reads the hardware once and adds what it saw to `out`.
    ///
    /// # Errors
    /// When nothing could be read. The source is asked again later, with growing pauses; its sections are missing
    /// meanwhile. One value that cannot be read is no error: it is null.
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()>;

    /// Reads for the first time, when the run begins: what the deltas of the first sample are taken from. A source that
    /// comes up later begins with [`collect`](Self::collect), and so does one that is read only once.
    ///
    /// What it adds to `out` is in no sample of its own; it is what a sample has until there is something newer, where
    /// the source is read rarely or answers late.
    ///
    /// # Errors
    /// As for [`collect`](Self::collect).
    fn prime(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.collect(tick, out)
    }
}

/// The configuration of a source, which knows how to build it. `#[typetag::deserialize(name = "…")]` on the
/// implementation gives the name of its type.
#[typetag::deserialize(tag = "type")]
pub trait SourceConfig: Debug + Send + Sync {
    /// Opens what is to be read. `Ok(None)`: the hardware is not here; that is no error.
    ///
    /// # Errors
    /// When the hardware is here and cannot be read. It is tried again later, with growing pauses.
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>>;

    /// Whether a glance shows that the hardware is not here. A source that can block then needs no thread to find out,
    /// and [`build`](Self::build), which must say so as well, is not called.
    fn is_plainly_absent(&self, _host: &Host) -> bool {
        false
    }

    /// When the source is read, and where.
    fn schedule(&self) -> Schedule {
        Schedule::default()
    }
}

/// When a source is read, and on which thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Schedule {
    /// How often it is read.
    pub cadence: Cadence,
    /// Whether a reading can take long (device libraries, HTTP). It then has a thread of its own, and a sample has the
    /// answer to an earlier tick when that to its own does not come within a quarter of the interval, or 50 ms.
    pub blocking: bool,
}

impl Schedule {
    /// A source that is read so often, on the thread that takes the samples.
    pub const fn new(cadence: Cadence) -> Self {
        Self { cadence, blocking: false }
    }

    /// A source that is read so often, on a thread of its own, because a reading can take long.
    pub const fn blocking(cadence: Cadence) -> Self {
        Self { cadence, blocking: true }
    }
}

/// How often a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Cadence {
    /// At every tick.
    #[default]
    EveryTick,
    /// At the first tick after this time has passed, and at the last one; the ticks between repeat the last reading, without what was counted
    /// over an interval ([`Section::without_deltas`](crate::Section::without_deltas)).
    Every(Duration),
    /// Until it has been read once; only that sample has its sections.
    Once,
}

/// A source that is linked in.
pub struct SourceEntry {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) on_by_default: bool,
    pub(crate) order: u32,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) defaults: fn() -> serde_json::Result<serde_json::Value>,
}

inventory::collect!(SourceEntry);

impl SourceEntry {
    /// Describes the source that configuration `C` builds. `name` is its typetag name and unique among components.
    pub const fn new<C>(name: &'static str, description: &'static str) -> Self
    where
        C: SourceConfig + DeserializeOwned + Serialize + JsonSchema + Default,
    {
        Self {
            name,
            description,
            on_by_default: false,
            order: 1000,
            schema: |generator| generator.subschema_for::<C>(),
            defaults: || serde_json::to_value(C::default()),
        }
    }

    /// The source is read unless the user turns it off.
    pub const fn on_by_default(mut self) -> Self {
        self.on_by_default = true;
        self
    }

    /// Where the source stands among the others, in reading and in the sample: lower first, 1000 unless set, equal
    /// ones by name.
    pub const fn order(mut self, order: u32) -> Self {
        self.order = order;
        self
    }
}

/// Registers a source: `register_source!(SourceEntry::new::<MyConfig>("my", "What it reads").on_by_default())`.
#[macro_export]
macro_rules! register_source {
    ($entry:expr) => {
        $crate::reexport::inventory::submit! { $entry }
    };
}
