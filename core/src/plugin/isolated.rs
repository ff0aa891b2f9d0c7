//! Components of a plugin that run in a process of their own: the same contract, behind a pipe.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::load::{self, Loaded};
use super::sections;
use super::sink::{LocalSink, TakesTexts};
use super::source::LocalSource;
use super::supervisor::{NoAnswer, Supervisor};
use super::types::{Hosting, SinkType, SourceType};
use crate::json;
use crate::observer::ObservedJob;
use crate::sample::Sections;
use crate::source::{Host, Source, Tick};

/// What has to be known before the run begins has to be told within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a plugin's process is asked. The texts are those of the contract.
#[derive(Serialize, Deserialize)]
enum Request {
    Describe,
    CheckSource { name: String, config: String },
    CheckSink { name: String, config: String },
    OpenSource { name: String, config: String, procfs: PathBuf, sysfs: PathBuf },
    Collect { number: u64, elapsed: Duration, interval: Duration, last: bool, job: Option<(i32, bool, Vec<i32>)> },
    OpenSink { name: String, config: String, wraps_command: bool },
    Start(String),
    Write(String),
    Finish(String),
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Ok(String),
    Absent,
    Failed(String),
}

/// Describes a plugin, without loading it into this process.
pub(super) fn describe(file: &Path) -> anyhow::Result<Loaded> {
    let supervisor = supervisor(file)?;
    let text = ask(&supervisor, &Request::Describe, Some(PATIENCE))?.unwrap_or_default();
    let description: load::Description = serde_json::from_str(&text)?;
    let sources = description.sources.iter().map(|_| Hosting::Isolated).collect();
    let sinks = description.sinks.iter().map(|_| Hosting::Isolated).collect();
    Ok(Loaded { description, sources, sinks })
}

/// A process for a source of this configuration, which the plugin has looked at there.
pub(super) fn configured_source(source: &SourceType, config: &str) -> anyhow::Result<Supervisor> {
    let request = Request::CheckSource { name: source.info.component.name.clone(), config: config.to_owned() };
    let supervisor = checked(&source.file, &request)?;
    // Only a sink may own it.
    supervisor.leave_stdout()?;
    Ok(supervisor)
}

/// The same for a sink.
pub(super) fn configured_sink(sink: &SinkType, config: &str) -> anyhow::Result<Supervisor> {
    checked(&sink.file, &Request::CheckSink { name: sink.info.component.name.clone(), config: config.to_owned() })
}

/// The check has a life of its own, in which standard output is still the tracker's.
fn checked(file: &Path, request: &Request) -> anyhow::Result<Supervisor> {
    let supervisor = supervisor(file)?;
    ask(&supervisor, request, Some(PATIENCE))?;
    supervisor.end_life(PATIENCE)?;
    Ok(supervisor)
}

fn ask(supervisor: &Supervisor, request: &Request, limit: Option<Duration>) -> anyhow::Result<Option<String>> {
    answer(supervisor, request, limit)?
}

/// Told apart: that there is no answer, and that it is a failure.
fn answer(
    supervisor: &Supervisor,
    request: &Request,
    limit: Option<Duration>,
) -> Result<anyhow::Result<Option<String>>, NoAnswer> {
    let request = serde_json::to_vec(request).map_err(|error| NoAnswer::Lost(error.into()))?;
    let reply = supervisor.ask(&request, limit)?;
    match serde_json::from_slice(&reply) {
        Ok(Reply::Ok(text)) => Ok(Ok(Some(text))),
        Ok(Reply::Absent) => Ok(Ok(None)),
        Ok(Reply::Failed(why)) => Ok(Err(anyhow!(why))),
        Err(error) => Err(NoAnswer::Lost(error.into())),
    }
}

/// A source on the other side.
pub(super) struct RemoteSource {
    source: &'static SourceType,
    supervisor: Arc<Supervisor>,
    config: String,
    host: Host,
    is_open: bool,
    is_absent: bool,
    /// Whether it was read since it was opened. One that begins anew has no counters from before.
    was_read: bool,
}

impl RemoteSource {
    pub(super) fn new(source: &'static SourceType, supervisor: Arc<Supervisor>, config: String, host: &Host) -> Self {
        Self { source, supervisor, config, host: host.clone(), is_open: false, is_absent: false, was_read: false }
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Option<String>> {
        let answered = answer(&self.supervisor, request, None);
        self.is_open &= answered.is_ok();
        answered?
    }
}

impl RemoteSource {
    fn read(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if self.is_absent {
            return Ok(());
        }
        if !self.is_open {
            let request = Request::OpenSource {
                name: self.source.info.component.name.clone(),
                config: self.config.clone(),
                procfs: self.host.procfs.clone(),
                sysfs: self.host.sysfs.clone(),
            };
            self.is_absent = self.ask(&request)?.is_none();
            (self.is_open, self.was_read) = (true, false);
            if self.is_absent {
                return Ok(());
            }
        }
        let text = self.ask(&Request::Collect {
            number: tick.number,
            elapsed: if self.was_read { tick.elapsed } else { Duration::ZERO },
            interval: tick.interval,
            last: tick.last,
            job: tick.job.map(|job| (job.root, job.spawned, job.members.to_vec())),
        })?;
        self.was_read = true;
        sections::read(text.unwrap_or_default().as_bytes(), self.source.sections, out)
    }
}

impl Source for RemoteSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read(tick, out).with_context(|| self.source.file.display().to_string())
    }
}

/// A sink on the other side.
pub(super) struct RemoteSink {
    sink: &'static SinkType,
    supervisor: Arc<Supervisor>,
    config: String,
    wraps_command: bool,
    run: Option<String>,
    is_open: bool,
}

impl RemoteSink {
    /// # Errors
    /// When its process is gone.
    pub(super) fn new(
        sink: &'static SinkType,
        supervisor: Arc<Supervisor>,
        config: String,
        wraps_command: bool,
    ) -> anyhow::Result<Self> {
        if wraps_command {
            supervisor.leave_stdout()?;
        }
        Ok(Self { sink, supervisor, config, wraps_command, run: None, is_open: false })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<()> {
        let answered = answer(&self.supervisor, request, None);
        self.is_open &= answered.is_ok();
        answered?.map(drop)
    }

    /// Opens it, and begins the run, also in a new life.
    fn open(&mut self) -> anyhow::Result<()> {
        if !self.is_open {
            let (name, config) = (self.sink.info.component.name.clone(), self.config.clone());
            self.ask(&Request::OpenSink { name, config, wraps_command: self.wraps_command })?;
            self.is_open = true;
            if let Some(run) = self.run.clone() {
                self.ask(&Request::Start(run))?;
            }
        }
        Ok(())
    }
}

impl TakesTexts for RemoteSink {
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

/// The process of a file.
fn supervisor(file: &Path) -> anyhow::Result<Supervisor> {
    let worker = Rc::new(RefCell::new(Worker { file: file.to_owned(), plugin: None, open: None }));
    Supervisor::start(move |request| {
        let reply = serde_json::from_slice(request).map_err(anyhow::Error::from);
        let reply = reply.and_then(|request| worker.borrow_mut().answer(request));
        let reply = reply.unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        serde_json::to_vec(&reply).unwrap_or_default()
    })
}

/// The side of the plugin. It loads it with the first request, in a process of which nothing depends.
struct Worker {
    file: PathBuf,
    plugin: Option<&'static load::Plugin>,
    open: Option<Opened>,
}

enum Opened {
    Source(Box<dyn Source>, Sections),
    Sink(Box<dyn TakesTexts>),
}

impl Worker {
    fn answer(&mut self, request: Request) -> anyhow::Result<Reply> {
        if let Request::Describe = request {
            let description = load::open(&self.file)?.description;
            return Ok(Reply::Ok(serde_json::to_string(&description)?));
        }
        let plugin = match self.plugin {
            Some(plugin) => plugin,
            None => self.plugin.insert(load::load(&self.file, load::Isolation::None)?),
        };
        let source = |name: &str| {
            let found = plugin.sources.iter().find(|source| source.info.component.name == name);
            found.copied().context("it has no such source any more")
        };
        let sink = |name: &str| {
            let found = plugin.sinks.iter().find(|sink| sink.info.component.name == name);
            found.copied().context("it has no such sink any more")
        };
        let values = |config: &str| serde_json::from_str(config);
        match request {
            Request::Describe => (),
            Request::CheckSource { name, config } => drop(source(&name)?.configure(values(&config)?)?),
            Request::CheckSink { name, config } => drop(sink(&name)?.configure(values(&config)?)?),
            Request::OpenSource { name, config, procfs, sysfs } => {
                let source = source(&name)?;
                let Hosting::InProcess { table, original } = &source.hosting else { bail!("it was loaded elsewhere") };
                match LocalSource::open(source, table, *original, &config, &procfs, &sysfs)? {
                    None => return Ok(Reply::Absent),
                    Some(open) => self.open = Some(Opened::Source(Box::new(open), Sections::default())),
                }
            }
            Request::Collect { number, elapsed, interval, last, job } => {
                let Some(Opened::Source(source, out)) = &mut self.open else { bail!("it is not open") };
                let job = job.as_ref().map(|(root, spawned, pids)| ObservedJob::new(*root, *spawned, pids));
                let tick = Tick { last, job, ..Tick::new(number, Instant::now(), elapsed, interval) };
                out.clear();
                source.collect(&tick, out)?;
                let mut text = Vec::new();
                json::write_sections(out, &mut text)?;
                return Ok(Reply::Ok(String::from_utf8(text)?));
            }
            Request::OpenSink { name, config, wraps_command } => {
                let sink = sink(&name)?;
                let Hosting::InProcess { table, original } = &sink.hosting else { bail!("it was loaded elsewhere") };
                self.open = Some(Opened::Sink(Box::new(LocalSink::new(sink, table, *original, config, wraps_command))));
            }
            Request::Start(text) => self.sink()?.start(&text)?,
            Request::Write(text) => self.sink()?.write(&text)?,
            Request::Finish(text) => self.sink()?.finish(&text)?,
        }
        Ok(Reply::Ok(String::new()))
    }

    fn sink(&mut self) -> anyhow::Result<&mut dyn TakesTexts> {
        match &mut self.open {
            Some(Opened::Sink(sink)) => Ok(&mut **sink),
            _ => bail!("it is not open"),
        }
    }
}
