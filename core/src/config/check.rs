//! Everything that is wrong with a configuration, at once.

use serde_json::{Map, Value as Json};

use super::components::{suggestion, unknown};
use super::error::Parse;
use super::{Component, ConfigError, Settings};
use crate::registry::{Kind, inline_generator};
use crate::sink::SinkConfig;
use crate::source::SourceConfig;

/// A table of the configuration beside `sources` and `sinks`.
pub struct KnownTable {
    /// Its key.
    pub name: &'static str,
    /// The schema of its type.
    pub schema: Json,
    /// Reads a part of it.
    pub parse: fn(Map<String, Json>) -> serde_json::Result<()>,
}

impl KnownTable {
    /// The table `name`, which holds a `T`.
    pub fn new<T: serde::de::DeserializeOwned + schemars::JsonSchema>(name: &'static str) -> Self {
        let parse = |values: Map<String, Json>| serde_json::from_value::<T>(values.into()).map(drop);
        Self { name, schema: inline_generator().into_root_schema_for::<T>().to_value(), parse }
    }
}

impl Settings {
    /// Reports every problem, one line each: a broken file, unknown keys (which a run ignores), unknown component
    /// types, and values of the wrong type.
    pub fn check(&self, tables: &[KnownTable]) -> Vec<String> {
        let broken = self.file.as_ref().and_then(|file| file.problem.clone());
        let mut problems: Vec<String> = broken.into_iter().collect();
        let mut known: Vec<&str> = tables.iter().map(|table| table.name).collect();
        known.extend([Kind::Source.table(), Kind::Sink.table()]);
        let tree = self.tree();
        for (key, value) in tree.as_object().into_iter().flatten() {
            let errors = match tables.iter().find(|table| table.name == key) {
                _ if !known.contains(&key.as_str()) => {
                    vec![self.error(key, suggestion("there is no such table", key, &known))]
                }
                Some(table) => self.check_table(key, value, &table.schema, &table.parse),
                None if *key == *Kind::Source.table() => self.check_components(Kind::Source, value),
                None => self.check_components(Kind::Sink, value),
            };
            problems.extend(errors.iter().map(ConfigError::to_string));
        }
        problems
    }

    /// Whether the configuration file exists.
    pub fn has_file(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.missing)
    }

    fn check_components(&self, kind: Kind, tables: &Json) -> Vec<ConfigError> {
        let Some(tables) = tables.as_object() else {
            return vec![self.error(kind.table(), "must be a table")];
        };
        let types = self.registry.of(kind);
        let one = |(name, table): (&String, &Json)| {
            let key = Component::key(kind, name);
            let component = match self.component(kind, name, Some(table), &types) {
                Ok(component) => component,
                Err(error) => return vec![error],
            };
            let Some(component_type) = component.component_type else {
                let type_name = table["type"].as_str().unwrap_or(name);
                return vec![self.error(&key, unknown(kind, type_name, &types))];
            };
            let values = Json::Object(component.configured().clone());
            let parse: Parse<'_> = match kind {
                Kind::Source => &|values| component.parse::<Box<dyn SourceConfig>>(values).map(drop),
                Kind::Sink => &|values| component.parse::<Box<dyn SinkConfig>>(values).map(drop),
            };
            self.check_table(&key, &values, &component_type.schema(), parse)
        };
        tables.iter().flat_map(one).collect()
    }

    fn check_table(&self, key: &str, values: &Json, schema: &Json, parse: Parse<'_>) -> Vec<ConfigError> {
        let Some(values) = values.as_object() else {
            return vec![self.error(key, "must be a table")];
        };
        let known: Vec<&str> =
            schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let one = |(name, value): (&String, &Json)| {
            if known.contains(&name.as_str()) {
                self.blame_key(key, name, value, schema, parse)
            } else {
                let problem = suggestion("there is no such key, so it is ignored", name, &known);
                Some(self.error(&format!("{key}.{name}"), problem))
            }
        };
        values.iter().filter_map(one).collect()
    }
}
