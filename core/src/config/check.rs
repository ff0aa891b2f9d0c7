//! Everything that is wrong with a configuration, at once.

use serde_json::{Map, Value as Json};

use super::components::{suggestion, unknown};
use super::error::Parse;
use super::{Component, ConfigError, Settings, tree};
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
        let tree = self.tree();
        for (key, value) in tree.as_object().into_iter().flatten() {
            let table = tables.iter().find(|table| table.name == key);
            let errors = match (table, Kind::ALL.into_iter().find(|kind| kind.table() == key)) {
                (None, None) => vec![self.no_such_table(key, tables)],
                (Some(table), _) => self.check_table(key, value, &table.schema, &Json::Null, &table.parse),
                (None, Some(kind)) => self.check_components(kind, value),
            };
            problems.extend(errors.iter().map(ConfigError::to_string));
        }
        problems
    }

    /// Looks whether all that [`set_assignment`](Self::set_assignment) set is there to be set. It comes after all layers,
    /// because the type of a component decides.
    ///
    /// # Errors
    /// Names the key, and the nearest one that there is.
    pub fn check_assignments(&self, tables: &[KnownTable]) -> Result<(), ConfigError> {
        let assigned = tree(&self.assigned);
        for (table, members) in assigned.as_object().into_iter().flatten() {
            let members = members.as_object().into_iter().flatten();
            let known_table = tables.iter().find(|known| known.name == table);
            match (known_table, Kind::ALL.into_iter().find(|kind| kind.table() == table)) {
                (None, None) => return Err(self.no_such_table(table, tables)),
                (Some(known), _) => {
                    let known = Keys::of(&known.schema, &Json::Null);
                    members.map(|(name, _)| name).try_for_each(|name| self.no_such_key(table, name, &known, ""))?;
                }
                (None, Some(kind)) => {
                    members.into_iter().try_for_each(|(name, keys)| self.check_assigned(kind, name, keys))?;
                }
            }
        }
        Ok(())
    }

    fn check_assigned(&self, kind: Kind, name: &str, keys: &Json) -> Result<(), ConfigError> {
        let types = self.registry.of(kind);
        let tables = self.table(kind.table()).unwrap_or_default();
        let component = self.component(kind, name, tables.get(name), &types)?;
        let key = Component::key(kind, name);
        let Some(component_type) = component.component_type else {
            return Err(self.error(&key, unknown(kind, name, &types)));
        };
        let known = Keys::of(&component_type.schema(), &component_type.defaults()).and(&["enabled", "type"]);
        let keys = keys.as_object().into_iter().flatten();
        keys.map(|(name, _)| name).try_for_each(|name| self.no_such_key(&key, name, &known, ""))
    }

    fn no_such_table(&self, name: &str, tables: &[KnownTable]) -> ConfigError {
        let known = tables.iter().map(|table| table.name).chain(Kind::ALL.map(Kind::table));
        self.error(name, suggestion("there is no such table", name, &known.collect::<Vec<_>>()))
    }

    fn no_such_key(&self, table: &str, name: &str, known: &Keys, so: &str) -> Result<(), ConfigError> {
        if known.has(name) {
            return Ok(());
        }
        let names: Vec<&str> = known.names.iter().map(String::as_str).collect();
        let problem = suggestion(&format!("there is no such key{so}"), name, &names);
        Err(self.error(&format!("{table}.{name}"), problem))
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
            self.check_table(&key, &values, &component_type.schema(), &component_type.defaults(), parse)
        };
        tables.iter().flat_map(one).collect()
    }

    fn check_table(
        &self,
        key: &str,
        values: &Json,
        schema: &Json,
        defaults: &Json,
        parse: Parse<'_>,
    ) -> Vec<ConfigError> {
        let Some(values) = values.as_object() else {
            return vec![self.error(key, "must be a table")];
        };
        let known = Keys::of(schema, defaults);
        let one = |(name, value): (&String, &Json)| match self.no_such_key(key, name, &known, ", so it is ignored") {
            Ok(()) => self.blame_key(key, name, value, schema, parse),
            Err(error) => Some(error),
        };
        values.iter().filter_map(one).collect()
    }
}

/// The keys of a table.
struct Keys {
    names: Vec<String>,
    /// A plugin need not say which there are.
    are_known: bool,
}

impl Keys {
    fn of(schema: &Json, defaults: &Json) -> Self {
        let keys = |table: &Json| table.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let mut names: Vec<String> = keys(&schema["properties"]);
        let further: Vec<String> = keys(defaults);
        names.extend(further.into_iter().filter(|name| schema["properties"].get(name).is_none()));
        Self { are_known: schema["properties"].is_object() || !names.is_empty(), names }
    }

    fn and(mut self, more: &[&str]) -> Self {
        self.names.extend(more.iter().map(|name| (*name).to_owned()));
        self
    }

    fn has(&self, name: &str) -> bool {
        !self.are_known || self.names.iter().any(|known| known == name)
    }
}
