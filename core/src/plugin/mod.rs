//! Sources, sinks and derivations that are loaded: `.so` files of any language and compiler that keep to one C contract.
//!
//! [`abi`] is that contract. A tracker [loads](crate::registry::Registry::load) a plugin and uses its components as it
//! uses those that are linked in. A Rust crate becomes a plugin by one line, [`export_plugin!`](crate::export_plugin).

pub mod abi;
mod call_result;
mod derivation;
mod derivation_type;
pub(crate) mod export;
mod fork_server;
mod host;
mod isolated;
pub mod layout;
mod line;
mod load;
mod messages;
mod open_state;
mod prefix;
mod run;
mod sections;
mod sink;
mod sink_config;
mod source;
mod source_config;
#[cfg(test)]
mod tests;
mod tick;
mod types;
mod worker;

use std::path::Path;

pub(crate) use load::Plugin;
pub(crate) use sections::{PluginSection, read as read_sections};
pub(crate) use types::{DerivationType, SinkType, SourceType};

/// Where the code of a plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// In this process.
    #[default]
    None,
    /// Each component in a process of its own, which may crash. It has to be asked for while the process has one thread.
    Process,
}

/// Loads a plugin for good.
///
/// # Errors
/// When the file cannot be loaded, is no plugin, is one for another version, or describes itself wrongly.
pub(crate) fn load(file: &Path, isolation: Isolation) -> anyhow::Result<&'static Plugin> {
    let loaded = match isolation {
        Isolation::None => load::open(file)?,
        Isolation::Process => isolated::describe(file)?,
    };
    Ok(load::keep(file, loaded))
}
