//! The configuration of a plugin's sink, as the tracker uses any other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::de::Error;
use serde_json::{Map, Value as Json};

use super::fork_server::ForkServer;
use super::isolated::{self, RemoteSink};
use super::sink::{self, JsonSink, LocalSink};
use super::types::{Hosting, SinkType};
use crate::job::{Outcome, Run};
use crate::patience::PATIENCE;
use crate::sample::Sample;
use crate::sink::{Sink, SinkConfig, SinkContext};

/// A configuration of a plugin's sink.
pub(crate) struct PluginSinkConfig {
    sink: &'static SinkType,
    config: String,
    /// Its process, unless it runs in this one.
    fork_server: Option<Arc<ForkServer>>,
}

impl SinkType {
    /// The user's configuration, completed, and checked by the plugin.
    pub(crate) fn configure(&'static self, values: Map<String, Json>) -> serde_json::Result<Box<dyn SinkConfig>> {
        let config = self.info.component.configuration(values)?;
        let checked = match &self.hosting {
            Hosting::InProcess { table, original } => sink::check(table, *original, &config).map(|()| None),
            Hosting::Isolated => isolated::configured_sink(self, &config).map(Some),
        };
        let fork_server = checked.map_err(|error| serde_json::Error::custom(format!("{error:#}")))?.map(Arc::new);
        Ok(Box::new(PluginSinkConfig { sink: self, config, fork_server }))
    }
}

impl fmt::Debug for PluginSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink {} of {}", self.sink.info.component.name, self.sink.file.display())
    }
}

impl SinkConfig for PluginSinkConfig {
    /// The plugin is called on the sink's own thread only, where it may block without delaying the command.
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        let (wraps_command, host) = (context.wraps_command, context.host.clone());
        let config = self.config.clone();
        let json_sink: Box<dyn JsonSink> = match &self.fork_server {
            Some(fork_server) => {
                Box::new(RemoteSink::new(self.sink, Arc::clone(fork_server), config, wraps_command, host)?)
            }
            None => {
                let (table, original) = self.sink.hosting.in_process()?;
                Box::new(LocalSink::new(self.sink, table, original, config, wraps_command, host))
            }
        };
        Ok(Box::new(PluginSink { sink: self.sink, json_sink, line: Vec::new() }))
    }

    fn patience(&self) -> Duration {
        match self.sink.info.patience_ns {
            0 => PATIENCE,
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn typetag_deserialize(&self) {}
}

struct PluginSink {
    sink: &'static SinkType,
    json_sink: Box<dyn JsonSink>,
    line: Vec<u8>,
}

impl PluginSink {
    fn blame<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        result.with_context(|| self.sink.file.display().to_string())
    }
}

impl Sink for PluginSink {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        let result = self.json_sink.start(&run.to_json().to_string());
        self.blame(result)
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line.clear();
        sample.write_json(&mut self.line)?;
        let result = self.json_sink.write(std::str::from_utf8(&self.line)?);
        self.blame(result)
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let result = self.json_sink.finish(&outcome.to_json().to_string());
        self.blame(result)
    }
}
