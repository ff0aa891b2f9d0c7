//! What is known of a sink that is linked in, whatever configures it.

use schemars::{Schema, SchemaGenerator};

/// A sink that is linked in.
pub struct SinkEntry {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) defaults: fn() -> serde_json::Result<serde_json::Value>,
}

inventory::collect!(SinkEntry);
