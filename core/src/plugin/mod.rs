//! Sources and sinks that are loaded: `.so` files of any language and compiler that keep to one C contract.
//!
//! [`abi`] is that contract. A tracker [loads](crate::registry::Registry::load) a plugin and uses its components as it
//! uses those that are linked in. A Rust crate becomes a plugin by one line, [`export_plugin!`](crate::export_plugin).

pub mod abi;
mod answer;
mod export;
mod host;
mod isolated;
pub mod layout;
mod line;
mod load;
mod messages;
mod run;
mod sections;
mod sink;
mod source;
mod supervisor;
#[cfg(test)]
mod tests;
mod types;

pub use export::PluginInfo;
pub use load::Isolation;

pub(crate) use load::{Plugin, load};
pub(crate) use sections::{PluginSection, read as read_sections};
pub(crate) use types::{SinkType, SourceType};
