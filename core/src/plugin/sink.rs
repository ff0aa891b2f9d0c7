//! A sink of a plugin, as the tracker uses any other.

use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::de::Error;
use serde_json::{Map, Value as Json};

use super::abi::{Reply, SinkTable, Text};
use super::answer::Answer;
use super::host::HostContext;
use super::isolated::{self, RemoteSink};
use super::supervisor::Supervisor;
use super::types::{Hosting, SinkType};
use crate::job::{Outcome, Run};
use crate::sample::Sample;
use crate::sink::{Sink, SinkConfig, SinkContext};

/// A configuration of a plugin's sink.
pub(crate) struct PluginSinkConfig {
    sink: &'static SinkType,
    config: String,
    /// Where it runs, unless in this process.
    supervisor: Option<Arc<Supervisor>>,
}

impl SinkType {
    /// What the user configured, completed and looked at by the plugin.
    pub(crate) fn configure(&'static self, values: Map<String, Json>) -> serde_json::Result<Box<dyn SinkConfig>> {
        let config = self.info.component.configuration(values)?;
        let checked = match &self.hosting {
            Hosting::InProcess { table, original } => match table.check {
                Some(check) => {
                    let config = Text::new(&config);
                    // SAFETY: the contract, with the plugin's own table, and a text that lives during the call.
                    Answer::default().of(|reply| unsafe { check(*original, config, reply) }).map(|_| None)
                }
                None => Ok(None),
            },
            Hosting::Isolated => isolated::configured_sink(self, &config).map(Some),
        };
        let supervisor = checked.map_err(|error| serde_json::Error::custom(format!("{error:#}")))?.map(Arc::new);
        Ok(Box::new(PluginSinkConfig { sink: self, config, supervisor }))
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
        let wraps_command = context.wraps_command;
        let config = self.config.clone();
        let texts: Box<dyn TakesTexts> = match (&self.sink.hosting, &self.supervisor) {
            (Hosting::InProcess { table, original }, _) => {
                Box::new(LocalSink::new(self.sink, table, *original, config, wraps_command))
            }
            (Hosting::Isolated, supervisor) => {
                let supervisor = supervisor.clone().context("its process was never started")?;
                Box::new(RemoteSink::new(self.sink, supervisor, config, wraps_command)?)
            }
        };
        Ok(Box::new(PluginSink { sink: self.sink, texts, line: Vec::new() }))
    }

    fn patience(&self) -> Duration {
        match self.sink.info.patience_ns {
            0 => Duration::from_secs(2),
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn typetag_deserialize(&self) {}
}

/// A sink that takes everything as JSON.
pub(super) trait TakesTexts: Send {
    fn start(&mut self, run: &str) -> anyhow::Result<()>;
    fn write(&mut self, sample: &str) -> anyhow::Result<()>;
    fn finish(&mut self, outcome: &str) -> anyhow::Result<()>;
}

struct PluginSink {
    sink: &'static SinkType,
    texts: Box<dyn TakesTexts>,
    line: Vec<u8>,
}

impl PluginSink {
    fn blame<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        result.with_context(|| self.sink.file.display().to_string())
    }
}

impl Sink for PluginSink {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        let result = self.texts.start(&run.to_json().to_string());
        self.blame(result)
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line.clear();
        sample.write_json(&mut self.line)?;
        let result = self.texts.write(std::str::from_utf8(&self.line)?);
        self.blame(result)
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let result = self.texts.finish(&outcome.to_json().to_string());
        self.blame(result)
    }
}

/// An open sink in this process; it is opened by the first call.
pub(super) struct LocalSink {
    sink: &'static SinkType,
    table: &'static SinkTable,
    original: *const SinkTable,
    config: String,
    wraps_command: bool,
    open: Option<Open>,
}

struct Open {
    state: *mut c_void,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    answer: Answer,
    // The plugin may use it until it is closed.
    _host: HostContext,
}

// SAFETY: the contract: a state may be used by different threads, one at a time.
unsafe impl Send for LocalSink {}

type Call = unsafe extern "C" fn(*mut c_void, Text, *const Reply) -> i32;

impl LocalSink {
    pub(super) fn new(
        sink: &'static SinkType,
        table: &'static SinkTable,
        original: *const SinkTable,
        config: String,
        wraps_command: bool,
    ) -> Self {
        Self { sink, table, original, config, wraps_command, open: None }
    }

    fn open(&mut self) -> anyhow::Result<&mut Open> {
        if self.open.is_none() {
            let component = format!("sink {}", self.sink.info.component.name);
            let host = HostContext::new(component, Path::new("/proc"), Path::new("/sys"), self.wraps_command);
            let open = self.table.open.context("it has no open")?;
            let (mut state, mut answer) = (std::ptr::null_mut(), Answer::default());
            let (original, config) = (self.original, Text::new(&self.config));
            // SAFETY: the contract; the host outlives the state, the others the call.
            let opened = answer.of(|reply| unsafe { open(original, host.table(), config, &mut state, reply) })?;
            ensure!(opened.is_some() && !state.is_null(), "it opened without a state");
            self.open = Some(Open { state, close: self.table.close, answer, _host: host });
        }
        self.open.as_mut().context("it is not open")
    }

    fn call(&mut self, call: Option<Call>, text: &str) -> anyhow::Result<()> {
        let open = self.open()?;
        let Some(call) = call else { return Ok(()) };
        let state = open.state;
        // SAFETY: the contract; the text lives during the call.
        open.answer.of(|reply| unsafe { call(state, Text::new(text), reply) }).map(drop)
    }
}

impl TakesTexts for LocalSink {
    fn start(&mut self, run: &str) -> anyhow::Result<()> {
        self.call(self.table.start, run)
    }

    fn write(&mut self, sample: &str) -> anyhow::Result<()> {
        self.call(self.table.write, sample)
    }

    fn finish(&mut self, outcome: &str) -> anyhow::Result<()> {
        self.call(self.table.finish, outcome)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(close) = self.close {
            // SAFETY: the contract: it is not used any more.
            unsafe { close(self.state) };
        }
    }
}
