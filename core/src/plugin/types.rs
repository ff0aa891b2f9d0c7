//! What a plugin says of its sources, sinks and derivations.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::abi::{DerivationTable, SinkTable, SourceTable};
use super::sections::PluginSection;
use crate::source::Cadence;

/// What sources and sinks have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ComponentInfo {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) defaults: Json,
    pub(crate) schema: Json,
}

/// The facts of a source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SourceInfo {
    pub(crate) component: ComponentInfo,
    pub(crate) on_by_default: bool,
    pub(crate) order: u32,
    pub(crate) cadence_ns: u64,
}

/// The facts of a sink.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SinkInfo {
    pub(crate) component: ComponentInfo,
    pub(crate) patience_ns: u64,
}

/// The facts of a derivation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DerivationInfo {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// A source of a plugin.
pub(crate) struct SourceType {
    pub(crate) info: SourceInfo,
    pub(crate) file: PathBuf,
    /// The sections that it may write.
    pub(super) sections: &'static [PluginSection],
    pub(super) hosting: Hosting<SourceTable>,
}

/// A sink of a plugin.
pub(crate) struct SinkType {
    pub(crate) info: SinkInfo,
    pub(crate) file: PathBuf,
    pub(super) hosting: Hosting<SinkTable>,
}

/// A derivation of a plugin.
pub(crate) struct DerivationType {
    pub(crate) info: DerivationInfo,
    pub(crate) file: PathBuf,
    /// The sections that it may write.
    pub(super) sections: &'static [PluginSection],
    pub(super) hosting: Hosting<DerivationTable>,
}

/// Where a component runs.
pub(super) enum Hosting<T> {
    /// In this process. The table as this version of the contract knows it, and where the plugin has it.
    InProcess { table: T, original: *const T },
    /// Each configured component in a process of its own.
    Isolated,
}

// SAFETY: the table and what it points to are never written to, and stay until the process ends.
unsafe impl<T> Send for Hosting<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for Hosting<T> {}

impl<T> Hosting<T> {
    /// The table, and where the plugin has it.
    ///
    /// # Errors
    /// When the component runs elsewhere.
    pub(super) fn in_process(&self) -> anyhow::Result<(&T, *const T)> {
        match self {
            Hosting::InProcess { table, original } => Ok((table, *original)),
            Hosting::Isolated => bail!("it was loaded elsewhere"),
        }
    }
}

impl SourceInfo {
    pub(super) fn cadence(&self) -> Cadence {
        match self.cadence_ns {
            super::abi::RT_EVERY_TICK => Cadence::EveryTick,
            super::abi::RT_ONCE => Cadence::Once,
            nanos => Cadence::Every(Duration::from_nanos(nanos)),
        }
    }
}

impl ComponentInfo {
    /// The whole configuration, with the values that the user gave. A plugin may check little, so this checks that each
    /// value has the type of its default.
    pub(super) fn configuration(&self, values: Map<String, Json>) -> serde_json::Result<String> {
        let mut whole = self.defaults.as_object().cloned().unwrap_or_default();
        for (key, value) in values {
            let known = whole.get(&key).unwrap_or(&Json::Null);
            if !known.is_null() && !value.is_null() && kind(known) != kind(&value) {
                return Err(serde_json::Error::custom(format!("invalid type: must be {}", kind(known))));
            }
            whole.insert(key, value);
        }
        serde_json::to_string(&whole)
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "a table",
    }
}
