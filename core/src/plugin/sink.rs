//! A sink of a plugin that runs in this process.

use std::ffi::c_void;

use anyhow::Context;

use super::abi::{Reply, SinkTable, Text};
use super::call_result::CallResult;
use super::host::HostContext;
use super::open_state::OpenState;
use super::types::SinkType;
use crate::source::Host;

/// Lets the plugin look at a whole configuration.
///
/// # Errors
/// Those of the plugin.
pub(super) fn check(table: &SinkTable, original: *const SinkTable, config: &str) -> anyhow::Result<()> {
    let Some(check) = table.check else { return Ok(()) };
    let config = Text::new(config);
    // SAFETY: the contract, with the plugin's own table, and a text that lives during the call.
    CallResult::default().of(|reply| unsafe { check(original, config, reply) }).map(drop)
}

/// A sink that takes everything as JSON.
pub(super) trait JsonSink: Send {
    fn start(&mut self, run: &str) -> anyhow::Result<()>;
    fn write(&mut self, sample: &str) -> anyhow::Result<()>;
    fn finish(&mut self, outcome: &str) -> anyhow::Result<()>;
}

/// An open sink in this process; it is opened by the first call.
pub(super) struct LocalSink {
    sink: &'static SinkType,
    table: &'static SinkTable,
    original: *const SinkTable,
    config: String,
    wraps_command: bool,
    host: Host,
    open: Option<OpenState>,
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
        host: Host,
    ) -> Self {
        Self { sink, table, original, config, wraps_command, host, open: None }
    }

    fn open(&mut self) -> anyhow::Result<&mut OpenState> {
        if self.open.is_none() {
            let component = format!("sink {}", self.sink.info.component.name);
            let host = HostContext::new(component, &self.host, self.wraps_command);
            let open = self.table.open.context("it has no open")?;
            let (original, config) = (self.original, Text::new(&self.config));
            // SAFETY: the contract; the host outlives the state, the others the call.
            let opened = |host, state, reply| unsafe { open(original, host, config, state, reply) };
            let opened = OpenState::open(host, self.table.close, opened)?;
            self.open = Some(opened.context("it opened without a state")?);
        }
        self.open.as_mut().context("it is not open")
    }

    fn call(&mut self, call: Option<Call>, text: &str) -> anyhow::Result<()> {
        let open = self.open()?;
        let Some(call) = call else { return Ok(()) };
        // SAFETY: the contract; the text lives during the call.
        open.call(|state, reply| unsafe { call(state, Text::new(text), reply) }).map(drop)
    }
}

impl JsonSink for LocalSink {
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
