//! A derivation of a plugin that runs in this process.

use anyhow::Context;

use super::abi::{DerivationTable, Text, TickTable};
use super::host::HostContext;
use super::open_state::OpenState;
use super::types::DerivationInfo;
use crate::owned_tick::OwnedTick;
use crate::source::Host;

/// A derivation that takes and gives everything as JSON.
pub(super) trait JsonDerivation: Send {
    /// What follows from `sample`: an object of sections.
    fn derive(&mut self, tick: &OwnedTick, run: &str, sample: &str) -> anyhow::Result<String>;
}

/// A derivation in this process; it is opened by the first call.
pub(super) struct LocalDerivation {
    info: &'static DerivationInfo,
    table: &'static DerivationTable,
    original: *const DerivationTable,
    host: Host,
    open: Option<OpenState>,
}

// SAFETY: the contract: a state may be used by different threads, one at a time.
unsafe impl Send for LocalDerivation {}

impl LocalDerivation {
    pub(super) fn new(
        info: &'static DerivationInfo,
        table: &'static DerivationTable,
        original: *const DerivationTable,
        host: Host,
    ) -> Self {
        Self { info, table, original, host, open: None }
    }

    fn open(&self, run: &str) -> anyhow::Result<OpenState> {
        let component = format!("derivation {}", self.info.name);
        let host = HostContext::new(component, &self.host, false);
        let open = self.table.open.context("it has no open")?;
        let (original, run) = (self.original, Text::new(run));
        // SAFETY: the contract; the host outlives the state, the others the call.
        let opened = |host, state, reply| unsafe { open(original, host, run, state, reply) };
        OpenState::open(host, self.table.close, opened)?.context("it opened without a state")
    }
}

impl JsonDerivation for LocalDerivation {
    fn derive(&mut self, tick: &OwnedTick, run: &str, sample: &str) -> anyhow::Result<String> {
        if self.open.is_none() {
            self.open = Some(self.open(run)?);
        }
        let open = self.open.as_mut().context("it is not open")?;
        let derive = self.table.derive.context("it has no derive")?;
        let tick = tick.lend();
        let table = TickTable::of(&tick);
        // SAFETY: the contract; the tick with its list and the sample live during the call.
        let text = open.call(|state, reply| unsafe { derive(state, &table, Text::new(sample), reply) })?;
        Ok(std::str::from_utf8(text.unwrap_or_default())?.to_owned())
    }
}
