//! What is known before a sink is built.

use crate::registry::Registry;
use crate::source::Host;

/// What a sink may want to know before the run begins.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SinkContext {
    /// Whether a command is wrapped. Standard output belongs to the command then.
    pub wraps_command: bool,
    /// What there is, with the sections of the plugins that were loaded; a sink in a plugin knows those of its own.
    pub registry: Registry,
    /// Where sources read: for a sink that wants to know more of this machine.
    pub host: Host,
}

impl SinkContext {
    /// The context of a run that wraps a command, or not, with the components that are linked in.
    pub fn new(wraps_command: bool) -> Self {
        Self { wraps_command, ..Self::default() }
    }

    /// The same, with the components that were loaded.
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// The same, where sources read another procfs and sysfs.
    pub fn with_host(self, host: Host) -> Self {
        Self { host, ..self }
    }
}
