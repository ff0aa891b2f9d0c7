//! The sampling loop, in the stages of a tick:
//!
//! 1. *read*: the sources see an immutable [`Tick`](crate::source::Tick); those that may block work on threads of their
//!    own meanwhile (`source_runner`, `blocking_source`);
//! 2. *derive*: what follows from the sample as the sources left it (`derive`);
//! 3. the sample is handed to the sinks, each with a thread and a queue (`sink_runner`).
//!
//! `sampler` goes through them at each tick of the clock. Data goes forward only.

mod blocking_source;
mod derive;
mod ready_source;
mod running;
mod sampler;
mod sink_runner;
mod source_runner;

use std::io;
use std::sync::{Arc, Mutex};

use crate::derivation::Derivation;
use crate::job::Run;
use crate::sink::{PATIENCE, Sink, SinkConfig, SinkContext};
use crate::source::{Host, Schedule, Source, SourceConfig};
use crate::tracked::{JobCgroup, Ledger, Members};
use derive::Derivations;
use ready_source::ReadySource;
use sampler::{Observed, Sampler};
use sink_runner::{PendingSink, SinkRunners, WhenClosed};

pub use running::Running;

/// A run to be sampled, put together from sources and sinks.
pub struct Tracker {
    run: Run,
    host: Host,
    sources: Vec<(String, Box<dyn SourceConfig>)>,
    derivations: Derivations,
    sinks: Vec<PendingSink>,
    when_closed: Option<WhenClosed>,
    ledger: Ledger,
    members: Arc<Members>,
    cgroup: Option<Arc<JobCgroup>>,
    adopts_orphans: bool,
    fork_mark: Option<u64>,
}

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
        self.source(name, Box::new(ReadySource::new(source, schedule)))
    }

    /// Adds a derivation. Those that are linked in or loaded are in the
    /// [`Registry`](crate::registry::Registry::derivations).
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
        let when_closed = self.when_closed.unwrap_or_else(|| Arc::new(|| ()));
        let sinks = Arc::new(Mutex::new(SinkRunners::new(self.sinks, &run, when_closed)));
        let observed = Observed {
            ledger: self.ledger,
            cgroup: self.cgroup,
            adopts_orphans: self.adopts_orphans,
            fork_mark: self.fork_mark,
            members: self.members,
        };
        Sampler::new(run, observed, self.derivations, Arc::clone(&sinks)).start(self.sources, self.host)
    }
}
