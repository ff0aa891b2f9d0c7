//! Components of a plugin that run in a process of their own: the same contract, behind a pair of sockets.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::derivation::JsonDerivation;
use super::fork_server::{ForkServer, NoAnswer};
use super::load::{Description, Loaded};
use super::sections;
use super::sink::JsonSink;
use super::types::{DerivationType, Hosting, SinkType, SourceType};
use super::worker::{Request, Worker, WorkerReply};
use crate::owned_tick::OwnedTick;
use crate::sample::Sections;
use crate::source::{Host, Source, Tick};

/// The time for each answer that is needed before the run begins.
const SETUP_LIMIT: Duration = Duration::from_secs(5);

/// Describes a plugin, without loading it into this process.
pub(super) fn describe(file: &Path) -> anyhow::Result<Loaded> {
    let fork_server = fork_server(file)?;
    let text = ask(&fork_server, &Request::Describe, Some(SETUP_LIMIT))?.unwrap_or_default();
    let description: Description = serde_json::from_str(&text)?;
    let sources = description.sources.iter().map(|_| Hosting::Isolated).collect();
    let sinks = description.sinks.iter().map(|_| Hosting::Isolated).collect();
    let derivations = description.derivations.iter().map(|_| Hosting::Isolated).collect();
    Ok(Loaded { description, sources, sinks, derivations })
}

/// A process for a source, in which the plugin has checked this configuration.
pub(super) fn configured_source(source: &SourceType, config: &str) -> anyhow::Result<ForkServer> {
    let request = Request::CheckSource { name: source.info.component.name.clone(), config: config.to_owned() };
    let fork_server = checked(&source.file, &request)?;
    // Only a sink may own standard output.
    fork_server.leave_stdout()?;
    Ok(fork_server)
}

/// The same for a sink.
pub(super) fn configured_sink(sink: &SinkType, config: &str) -> anyhow::Result<ForkServer> {
    checked(&sink.file, &Request::CheckSink { name: sink.info.component.name.clone(), config: config.to_owned() })
}

/// Has a configuration checked in a process that ends with it, because it still has the tracker's standard output.
fn checked(file: &Path, request: &Request) -> anyhow::Result<ForkServer> {
    let fork_server = fork_server(file)?;
    ask(&fork_server, request, Some(SETUP_LIMIT))?;
    fork_server.end_life(SETUP_LIMIT)?;
    Ok(fork_server)
}

fn ask(fork_server: &ForkServer, request: &Request, limit: Option<Duration>) -> anyhow::Result<Option<String>> {
    answer(fork_server, request, limit)?
}

/// The outer error: there is no answer. The inner one: the answer is that it failed.
fn answer(
    fork_server: &ForkServer,
    request: &Request,
    limit: Option<Duration>,
) -> Result<anyhow::Result<Option<String>>, NoAnswer> {
    let request = serde_json::to_vec(request).map_err(|error| NoAnswer::Lost(error.into()))?;
    let reply = fork_server.ask(&request, limit)?;
    match serde_json::from_slice(&reply) {
        Ok(WorkerReply::Ok(text)) => Ok(Ok(Some(text))),
        Ok(WorkerReply::Absent) => Ok(Ok(None)),
        Ok(WorkerReply::Failed(why)) => Ok(Err(anyhow!(why))),
        Err(error) => Err(NoAnswer::Lost(error.into())),
    }
}

/// A source in another process.
pub(super) struct RemoteSource {
    source: &'static SourceType,
    fork_server: Arc<ForkServer>,
    config: String,
    host: Host,
    state: RemoteState,
}

#[derive(Clone, Copy)]
enum RemoteState {
    /// Not opened yet, or closed because its process has ended.
    Closed,
    /// The source says that its hardware is not here.
    Absent,
    /// A source that begins anew has no counters from before, until it was read.
    Open { was_read: bool },
}

impl RemoteSource {
    pub(super) fn new(source: &'static SourceType, fork_server: Arc<ForkServer>, config: String, host: &Host) -> Self {
        Self { source, fork_server, config, host: host.clone(), state: RemoteState::Closed }
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Option<String>> {
        let answered = answer(&self.fork_server, request, None);
        if answered.is_err() {
            self.state = RemoteState::Closed;
        }
        answered?
    }

    fn open(&mut self) -> anyhow::Result<()> {
        let request = Request::OpenSource {
            name: self.source.info.component.name.clone(),
            config: self.config.clone(),
            machine: (&self.host).into(),
        };
        self.state = match self.ask(&request)? {
            Some(_) => RemoteState::Open { was_read: false },
            None => RemoteState::Absent,
        };
        Ok(())
    }

    fn read(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if let RemoteState::Closed = self.state {
            self.open()?;
        }
        let RemoteState::Open { was_read } = self.state else { return Ok(()) };
        let mut tick = OwnedTick::of(tick);
        if !was_read {
            tick.elapsed = Duration::ZERO;
        }
        let text = self.ask(&Request::Collect(tick))?;
        self.state = RemoteState::Open { was_read: true };
        sections::read(text.unwrap_or_default().as_bytes(), self.source.sections, out)
    }
}

impl Source for RemoteSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out).with_context(|| self.source.file.display().to_string())
    }
}

/// A sink in another process.
pub(super) struct RemoteSink {
    sink: &'static SinkType,
    fork_server: Arc<ForkServer>,
    config: String,
    wraps_command: bool,
    host: Host,
    run: Option<String>,
    is_open: bool,
}

impl RemoteSink {
    /// # Errors
    /// When its process is gone.
    pub(super) fn new(
        sink: &'static SinkType,
        fork_server: Arc<ForkServer>,
        config: String,
        wraps_command: bool,
        host: Host,
    ) -> anyhow::Result<Self> {
        if wraps_command {
            fork_server.leave_stdout()?;
        }
        Ok(Self { sink, fork_server, config, wraps_command, host, run: None, is_open: false })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<()> {
        let answered = answer(&self.fork_server, request, None);
        self.is_open &= answered.is_ok();
        answered?.map(drop)
    }

    /// Opens it, and begins the run, also in a new life.
    fn open(&mut self) -> anyhow::Result<()> {
        if !self.is_open {
            let (name, config) = (self.sink.info.component.name.clone(), self.config.clone());
            let (wraps_command, machine) = (self.wraps_command, (&self.host).into());
            self.ask(&Request::OpenSink { name, config, wraps_command, machine })?;
            self.is_open = true;
            if let Some(run) = self.run.clone() {
                self.ask(&Request::Start(run))?;
            }
        }
        Ok(())
    }
}

impl JsonSink for RemoteSink {
    fn start(&mut self, run: &str) -> anyhow::Result<()> {
        self.run = Some(run.to_owned());
        self.open()
    }

    fn write(&mut self, sample: &str) -> anyhow::Result<()> {
        self.open()?;
        self.ask(&Request::Write(sample.to_owned()))
    }

    fn finish(&mut self, outcome: &str) -> anyhow::Result<()> {
        self.open()?;
        self.ask(&Request::Finish(outcome.to_owned()))
    }
}

/// A derivation in another process.
pub(super) struct RemoteDerivation {
    derivation: &'static DerivationType,
    fork_server: ForkServer,
    host: Host,
    is_open: bool,
}

impl RemoteDerivation {
    /// # Errors
    /// When no process can be made for it.
    pub(super) fn new(derivation: &'static DerivationType, host: Host) -> anyhow::Result<Self> {
        let fork_server = fork_server(&derivation.file)?;
        fork_server.leave_stdout()?;
        Ok(Self { derivation, fork_server, host, is_open: false })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<String> {
        let answered = answer(&self.fork_server, request, None);
        self.is_open &= answered.is_ok();
        Ok(answered??.unwrap_or_default())
    }
}

impl JsonDerivation for RemoteDerivation {
    fn derive(&mut self, tick: &OwnedTick, run: &str, sample: &str) -> anyhow::Result<String> {
        if !self.is_open {
            let name = self.derivation.info.name.clone();
            self.ask(&Request::OpenDerivation { name, run: run.to_owned(), machine: (&self.host).into() })?;
            self.is_open = true;
        }
        self.ask(&Request::Derive { tick: tick.clone(), sample: sample.to_owned() })
    }
}

/// The process of a file.
fn fork_server(file: &Path) -> anyhow::Result<ForkServer> {
    let worker = Rc::new(RefCell::new(Worker::new(file)));
    ForkServer::start(move |request| {
        let reply = serde_json::from_slice(request).map_err(anyhow::Error::from);
        let reply = reply.and_then(|request| worker.borrow_mut().answer(request));
        let reply = reply.unwrap_or_else(|error| WorkerReply::Failed(format!("{error:#}")));
        serde_json::to_vec(&reply).unwrap_or_default()
    })
}
