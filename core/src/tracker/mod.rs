//! The sampling loop, in the stages of a tick:
//!
//! 1. *observe*: who belongs to the job now, looked up once by one owner (`observe`);
//! 2. *read*: the sources see an immutable [`Tick`](crate::source::Tick) with the observation in it; those that may block
//!    work on threads of their own meanwhile (`source_runner`, `reader`, `blocking_source`);
//! 3. *derive*: what follows from the sample as the sources left it (`derive`);
//! 4. the sample is handed to the sinks, each with a thread and a queue (`sink_runner`).
//!
//! `sampler` goes through them at each tick of the clock. Data goes forward only.

mod blocking_source;
mod derive;
mod last_reading;
mod observe;
mod prepared;
mod reader;
mod ready_source;
mod running;
mod sampler;
mod sampler_request;
mod sink_runner;
mod sink_writer;
mod source_runner;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::build_error::BuildError;
use crate::derivation::Derivation;
use crate::job::Run;
use crate::observer::Observer;
use crate::patience::PATIENCE;
use crate::registry::Registry;
use crate::sink::{Sink, SinkConfig, SinkContext};
use crate::source::{Host, Schedule, Source, SourceConfig};
use derive::Derivations;
use ready_source::ReadySource;
use sink_runner::PendingSink;
use sink_writer::WhenClosed;

pub use prepared::Prepared;
pub use running::{Closing, Running};

/// The shortest time between two samples.
const SHORTEST: Duration = Duration::from_millis(1);

/// A run to be sampled, put together from sources and sinks.
pub struct Tracker {
    run: Run,
    host: Host,
    sources: Vec<(String, Box<dyn SourceConfig>)>,
    derivations: Derivations,
    sinks: Vec<PendingSink>,
    when_closed: Option<WhenClosed>,
    observer: Option<Box<dyn Observer>>,
}

impl Tracker {
    /// A tracker for `run`, without a job, sources and sinks.
    pub fn new(run: Run) -> Self {
        Self {
            run,
            host: Host::default(),
            sources: Vec::new(),
            derivations: Derivations::default(),
            sinks: Vec::new(),
            when_closed: None,
            observer: None,
        }
    }

    /// Reads another procfs and sysfs than this machine's own.
    pub fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// Tracks the job that this observer looks at.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Adds a source. Sources are read in the order in which they were added.
    pub fn source(mut self, name: impl Into<String>, config: Box<dyn SourceConfig>) -> Self {
        self.sources.push((name.into(), config));
        self
    }

    /// Adds a source that is built already: one that looks at something inside this program.
    pub fn own_source(self, name: impl Into<String>, source: impl Source + 'static, schedule: Schedule) -> Self {
        self.source(name, Box::new(ReadySource::new(source, schedule)))
    }

    /// Adds all derivations that are linked in or were loaded. They are told that this machine is read.
    ///
    /// # Errors
    /// When the process of one in isolation cannot be made.
    pub fn derivations_of(mut self, registry: &Registry, host: &Host) -> Result<Self, BuildError> {
        for derivation in registry.derivations() {
            self.derivations.add(derivation.name(), derivation.build(host)?);
        }
        Ok(self)
    }

    /// Adds a derivation. Those that are linked in, as by the crate `sources`, are added by
    /// [`derivations_of`](Self::derivations_of).
    pub fn derivation(mut self, name: &str, derivation: Box<dyn Derivation>) -> Self {
        self.derivations.add(name, derivation);
        self
    }

    /// Adds a sink.
    pub fn sink(mut self, name: impl Into<String>, sink: impl Sink + 'static) -> Self {
        self.sinks.push((name.into(), Box::new(sink), PATIENCE));
        self
    }

    /// Builds a sink from its configuration and adds it.
    ///
    /// # Errors
    /// When the sink cannot be built.
    pub fn sink_from(
        mut self,
        name: impl Into<String>,
        config: &dyn SinkConfig,
        context: &SinkContext,
    ) -> Result<Self, BuildError> {
        let name = name.into();
        match config.build(context) {
            Ok(sink) => self.sinks.push((name, sink, config.patience())),
            Err(reason) => return Err(BuildError::Sink { name, reason: format!("{reason:#}") }),
        }
        Ok(self)
    }

    /// Calls `action` once when every sink has closed for good, because nobody reads any more.
    pub fn when_all_sinks_closed(mut self, action: impl Fn() + Send + Sync + 'static) -> Self {
        self.when_closed = Some(Arc::new(action));
        self
    }

    /// The facts of the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Begins: takes the baseline and samples from then on, one interval apart, on a thread of its own. An interval of less
    /// than 1 ms counts as 1 ms.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self) -> io::Result<Running> {
        Ok(self.prepare()?.start())
    }

    /// Sets up the sources, on the thread that will sample, while something else is prepared: a command, say, whose process id is
    /// not known yet.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn prepare(mut self) -> io::Result<Prepared> {
        self.run.interval = self.run.interval.max(SHORTEST);
        let ((requests, inbox), (begin, begins)) = (mpsc::channel(), mpsc::channel());
        let steps = Arc::default();
        let plan = sampler::Plan {
            sources: self.sources,
            derivations: self.derivations,
            host: self.host,
            interval: self.run.interval,
            steps: Arc::clone(&steps),
        };
        plan.carry_out(begins, inbox)?;
        let Self { run, observer, sinks, when_closed, .. } = self;
        Ok(Prepared { run, observer, sinks, when_closed, requests, begin, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct WithoutRoom;

    impl SinkConfig for WithoutRoom {
        fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
            Err(anyhow::anyhow!("no room").context("cannot write"))
        }

        fn typetag_deserialize(&self) {}
    }

    #[test]
    fn a_sink_that_cannot_be_built_is_told_by_its_name() {
        let built = Tracker::new(Run::default()).sink_from("archive", &WithoutRoom, &SinkContext::default());
        let error = built.err().unwrap();
        assert_eq!(error.to_string(), "sinks.archive: cannot write: no room");
        assert!(matches!(error, BuildError::Sink { name, .. } if name == "archive"));
    }
}
