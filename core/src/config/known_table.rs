//! Tables of the configuration beside `sources` and `sinks`.

use std::fmt;

use serde_json::{Map, Value as Json};

use crate::registry::inline_generator;

/// A table of the configuration that belongs to the program itself.
#[derive(Clone, Copy)]
pub struct KnownTable {
    name: &'static str,
    schema: fn() -> Json,
    parse: fn(Map<String, Json>) -> serde_json::Result<()>,
}

impl KnownTable {
    /// The table `name`, which holds a `T`.
    pub const fn new<T: serde::de::DeserializeOwned + schemars::JsonSchema>(name: &'static str) -> Self {
        Self {
            name,
            schema: || inline_generator().into_root_schema_for::<T>().to_value(),
            parse: |values| serde_json::from_value::<T>(values.into()).map(drop),
        }
    }

    /// Its key.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The JSON Schema of its type.
    pub fn schema(&self) -> Json {
        (self.schema)()
    }

    /// Reads a part of it.
    pub(super) fn parse(&self, values: Map<String, Json>) -> serde_json::Result<()> {
        (self.parse)(values)
    }
}

impl fmt::Debug for KnownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
