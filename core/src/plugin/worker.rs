//! The process that a component of a plugin has of its own: it loads the plugin, and answers what the tracker asks.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::derivation::{JsonDerivation, LocalDerivation};
use super::load::{self, Plugin};
use super::sink::{self, JsonSink, LocalSink};
use super::source::{self, LocalSource};
use crate::owned_tick::OwnedTick;
use crate::sample::Sections;
use crate::source::{Host, Source};

/// A request to a plugin's process. The texts are those of the contract.
#[derive(Serialize, Deserialize)]
pub(super) enum Request {
    Describe,
    CheckSource { name: String, config: String },
    CheckSink { name: String, config: String },
    OpenSource { name: String, config: String, machine: Machine },
    Collect(OwnedTick),
    OpenSink { name: String, config: String, wraps_command: bool, machine: Machine },
    Start(String),
    Write(String),
    Finish(String),
    OpenDerivation { name: String, run: String, machine: Machine },
    Derive { tick: OwnedTick, sample: String },
}

/// Where a [`Host`] reads.
#[derive(Serialize, Deserialize)]
pub(super) struct Machine {
    procfs: PathBuf,
    sysfs: PathBuf,
}

impl From<&Host> for Machine {
    fn from(host: &Host) -> Self {
        Self { procfs: host.procfs.clone(), sysfs: host.sysfs.clone() }
    }
}

impl From<Machine> for Host {
    fn from(machine: Machine) -> Self {
        Self::new(machine.procfs, machine.sysfs)
    }
}

/// The answer to a request.
#[derive(Serialize, Deserialize)]
pub(super) enum WorkerReply {
    Ok(String),
    Absent,
    Failed(String),
}

/// The side of the plugin. It loads the plugin at the first request, in a process on which nothing depends.
pub(super) struct Worker {
    file: PathBuf,
    plugin: Option<&'static Plugin>,
    open: Option<Opened>,
}

enum Opened {
    Source(Box<dyn Source>, Sections),
    Sink(Box<dyn JsonSink>),
    /// It is opened with the run that it belongs to, by the first call.
    Derivation(LocalDerivation, String),
}

impl Worker {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), plugin: None, open: None }
    }

    pub(super) fn answer(&mut self, request: Request) -> anyhow::Result<WorkerReply> {
        if let Request::Describe = request {
            let description = load::open(&self.file)?.description;
            return Ok(WorkerReply::Ok(serde_json::to_string(&description)?));
        }
        let plugin = match self.plugin {
            Some(plugin) => plugin,
            None => self.plugin.insert(load::keep(&self.file, load::open(&self.file)?)),
        };
        let find_source = |name: &str| {
            let found = plugin.sources.iter().find(|source| source.info.component.name == name);
            found.copied().context("it has no such source any more")
        };
        let find_sink = |name: &str| {
            let found = plugin.sinks.iter().find(|sink| sink.info.component.name == name);
            found.copied().context("it has no such sink any more")
        };
        match request {
            Request::Describe => (),
            Request::CheckSource { name, config } => {
                let (table, original) = find_source(&name)?.hosting.in_process()?;
                source::check(table, original, &config)?;
            }
            Request::CheckSink { name, config } => {
                let (table, original) = find_sink(&name)?.hosting.in_process()?;
                sink::check(table, original, &config)?;
            }
            Request::OpenSource { name, config, machine } => {
                let source = find_source(&name)?;
                let (table, original) = source.hosting.in_process()?;
                match LocalSource::open(source, table, original, &config, &machine.into())? {
                    None => return Ok(WorkerReply::Absent),
                    Some(open) => self.open = Some(Opened::Source(Box::new(open), Sections::default())),
                }
            }
            Request::Collect(tick) => {
                let Some(Opened::Source(source, out)) = &mut self.open else { bail!("it is not open") };
                out.clear();
                source.collect(&tick.lend(), out)?;
                let mut text = Vec::new();
                out.write_json(&mut text)?;
                return Ok(WorkerReply::Ok(String::from_utf8(text)?));
            }
            Request::OpenSink { name, config, wraps_command, machine } => {
                let sink = find_sink(&name)?;
                let (table, original) = sink.hosting.in_process()?;
                let local = LocalSink::new(sink, table, original, config, wraps_command, machine.into());
                self.open = Some(Opened::Sink(Box::new(local)));
            }
            Request::Start(text) => self.sink()?.start(&text)?,
            Request::Write(text) => self.sink()?.write(&text)?,
            Request::Finish(text) => self.sink()?.finish(&text)?,
            Request::OpenDerivation { name, run, machine } => {
                let found = plugin.derivations.iter().find(|derivation| derivation.info.name == name);
                let derivation = found.copied().context("it has no such derivation any more")?;
                let (table, original) = derivation.hosting.in_process()?;
                let local = LocalDerivation::new(&derivation.info, table, original, machine.into());
                self.open = Some(Opened::Derivation(local, run));
            }
            Request::Derive { tick, sample } => {
                let Some(Opened::Derivation(derivation, run)) = &mut self.open else { bail!("it is not open") };
                let text = derivation.derive(&tick, run, &sample)?;
                return Ok(WorkerReply::Ok(text));
            }
        }
        Ok(WorkerReply::Ok(String::new()))
    }

    fn sink(&mut self) -> anyhow::Result<&mut dyn JsonSink> {
        match &mut self.open {
            Some(Opened::Sink(sink)) => Ok(&mut **sink),
            _ => bail!("it is not open"),
        }
    }
}
