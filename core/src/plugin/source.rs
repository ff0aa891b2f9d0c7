//! A source of a plugin that runs in this process.

use anyhow::Context;

use super::abi::{SourceTable, Text, TickTable};
use super::call_result::CallResult;
use super::host::HostContext;
use super::open_state::OpenState;
use super::sections;
use super::types::SourceType;
use crate::sample::Sections;
use crate::source::{Host, Source, Tick};

/// Lets the plugin look at a whole configuration.
///
/// # Errors
/// Those of the plugin.
pub(super) fn check(table: &SourceTable, original: *const SourceTable, config: &str) -> anyhow::Result<()> {
    let Some(check) = table.check else { return Ok(()) };
    let config = Text::new(config);
    // SAFETY: the contract, with the plugin's own table, and a text that lives during the call.
    CallResult::default().of(|reply| unsafe { check(original, config, reply) }).map(drop)
}

/// An open source in this process.
pub(super) struct LocalSource {
    source: &'static SourceType,
    table: &'static SourceTable,
    open: OpenState,
}

// SAFETY: the contract: a state may be used by different threads, one at a time.
unsafe impl Send for LocalSource {}

impl LocalSource {
    pub(super) fn open(
        source: &'static SourceType,
        table: &'static SourceTable,
        original: *const SourceTable,
        config: &str,
        host: &Host,
    ) -> anyhow::Result<Option<Self>> {
        let host = HostContext::new(format!("source {}", source.info.component.name), host, false);
        let open = table.open.context("it has no open")?;
        let config = Text::new(config);
        // SAFETY: the contract; the host outlives the state, the others the call.
        let opened = |host, state, reply| unsafe { open(original, host, config, state, reply) };
        let opened = OpenState::open(host, table.close, opened)?;
        Ok(opened.map(|open| Self { source, table, open }))
    }
}

impl Source for LocalSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let table = TickTable::of(tick);
        let collect = self.table.collect.context("it has no collect")?;
        // SAFETY: the contract; the tick and its list live during the call.
        let text = self.open.call(|state, reply| unsafe { collect(state, &table, reply) });
        let text = text.with_context(|| self.source.file.display().to_string())?;
        sections::read(text.unwrap_or_default(), self.source.sections, out)
            .with_context(|| self.source.file.display().to_string())
    }
}
