//! One configuration out of the TOML file, the environment and the command line, which knows where each value is from.

mod check;
mod components;
mod error;
mod file;
mod found_file;
mod interval;
mod toml;

use std::ffi::OsString;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

pub use check::KnownTable;
pub use components::{ByName, Component, State};
pub use error::{ConfigError, is_secret};
pub use file::ConfigFile;
pub use found_file::NEEDS_NAMED_FILE;
pub use interval::Interval;
use toml::literal;

use crate::registry::{Kind, Registry, inline_generator};

/// The merged configuration. Later layers win: defaults, file, environment, command line.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    registry: Registry,
    figment: Figment,
    file: Option<ConfigFile>,
    /// What [`set_assignment`](Self::set_assignment) set, in which no key may be unknown.
    assigned: Figment,
    /// What variables set that are named after a key.
    variables: Figment,
}

/// More parts than any key has. Tables that are nested without bound would overflow the stack.
const MOST_PARTS: usize = 32;

/// Values of one origin.
struct Layer {
    origin: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

impl Settings {
    /// Settings in which everything has its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Settings for the components of this registry. It comes before the layers, because the names of components matter
    /// in them.
    pub fn of(registry: Registry) -> Self {
        Self { registry, ..Self::default() }
    }

    /// The components that can be configured.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds a TOML file that the user named. One that is missing, unreadable or broken counts as empty, as the user was
    /// promised; [`check`](Self::check) tells.
    pub fn file(self, path: &Path) -> Self {
        self.config_file(ConfigFile::named(path))
    }

    /// Adds a TOML file that was read already.
    pub fn config_file(mut self, file: ConfigFile) -> Self {
        if let Some(values) = &file.values {
            self.figment = self.figment.merge(Layer { origin: file.name.clone(), values: values.clone() });
        }
        self.file = Some(file);
        self
    }

    /// Adds the environment: the variables in `names` (variable, key), taken as text, and `A__B=…` after
    /// the prefix (such as `MY_PROGRAM_`) for any other key `a.b`, read as TOML where it is TOML. Empty variables count as not set.
    ///
    /// # Errors
    /// When a key has more parts than any key has.
    pub fn environment(
        mut self,
        prefix: &str,
        names: &[(&str, &str)],
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        for (name, value) in variables.into_iter().filter_map(text).filter(|(_, value)| !value.is_empty()) {
            if let Some((_, key)) = names.iter().find(|(known, _)| *known == name) {
                self = self.set(&name, key, value);
            } else if let Some(key) = name.strip_prefix(prefix).filter(|key| key.contains("__")) {
                let key = self.key_of_variable(key);
                check_depth(&name, &key)?;
                self.variables = self.variables.merge(layer(&name, key.split('.'), literal(&value)));
                self = self.set(&name, &key, literal(&value));
            }
        }
        Ok(self)
    }

    /// `SINKS__STDOUT_JSON__STREAM` is `sinks.stdout-json.stream`: a variable's name has no hyphens.
    fn key_of_variable(&self, variable: &str) -> String {
        let mut parts: Vec<String> = variable.split("__").map(str::to_lowercase).collect();
        let kind = [Kind::Source, Kind::Sink].into_iter().find(|kind| kind.table() == parts[0]);
        if let (Some(kind), Some(name)) = (kind, parts.get_mut(1)) {
            let configured = self.table(kind.table()).into_iter().flatten().map(|(name, _)| name);
            let known = self.registry.of(kind).into_iter().map(|component| component.name.to_owned());
            if let Some(meant) = configured.chain(known).find(|known| known.replace('-', "_") == *name) {
                *name = meant;
            }
        }
        parts.join(".")
    }

    /// Sets one value above all others. `origin` says who did, such as `--interval`.
    pub fn set(self, origin: &str, key: &str, value: impl Into<Value>) -> Self {
        self.set_at(origin, key.split('.'), value)
    }

    /// Sets the value of a key that is given in its parts, each of which may hold dots.
    pub fn set_at<'a>(
        mut self,
        origin: &str,
        key: impl DoubleEndedIterator<Item = &'a str>,
        value: impl Into<Value>,
    ) -> Self {
        self.figment = self.figment.merge(layer(origin, key, value.into()));
        self
    }

    /// Sets one value below all others.
    pub fn set_default(mut self, origin: &str, key: &str, value: impl Into<Value>) -> Self {
        self.figment = self.figment.join(layer(origin, key.split('.'), value.into()));
        self
    }

    /// Sets what `key=value` says, as in `--set sinks.file.path=run.jsonl`. The value is read as TOML where it is
    /// TOML, else as text.
    ///
    /// # Errors
    /// When there is no `=`, no key before it, or one with more parts than any key has.
    pub fn set_assignment(mut self, origin: &str, assignment: &str) -> Result<Self, ConfigError> {
        match assignment.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                let (key, value) = (key.trim(), literal(value.trim()));
                check_depth(origin, key)?;
                self.assigned = self.assigned.merge(layer(origin, key.split('.'), value.clone()));
                Ok(self.set(origin, key, value))
            }
            _ => Err(ConfigError {
                key: origin.to_owned(),
                value: Some(format!("{assignment:?}")),
                origin: None,
                problem: "must be KEY=VALUE, such as sinks.file.path=run.jsonl".into(),
            }),
        }
    }

    /// Reads one table of the configuration into a type. Keys that the type does not have are ignored; a table that
    /// is not there counts as empty.
    ///
    /// # Errors
    /// Names the key, the value, its origin and what is allowed.
    pub fn extract<T: DeserializeOwned + schemars::JsonSchema>(&self, table: &str) -> Result<T, ConfigError> {
        let values = match self.value(table) {
            None => serde_json::Map::new(),
            Some(Json::Object(values)) => values,
            Some(_) => return Err(self.error(table, "must be a table")),
        };
        let parse = |values: serde_json::Map<String, Json>| serde_json::from_value::<T>(values.into());
        parse(values.clone()).map_err(|error| {
            let schema = inline_generator().into_root_schema_for::<T>().to_value();
            self.blame(table, &values, &schema, &error.to_string(), &|values| parse(values).map(drop))
        })
    }

    /// The value of a key, if any layer has one.
    pub fn value(&self, key: &str) -> Option<Json> {
        self.figment.find_value(key).ok().and_then(|value| serde_json::to_value(value).ok())
    }

    /// A table of the configuration, if any layer has it.
    pub fn table(&self, key: &str) -> Option<serde_json::Map<String, Json>> {
        match self.value(key) {
            Some(Json::Object(table)) => Some(table),
            _ => None,
        }
    }

    /// Where the value of a key is from: `FILE:LINE:COLUMN`, a variable, a flag.
    pub fn origin(&self, key: &str) -> Option<String> {
        let origin = self.figment.find_metadata(key)?.name.to_string();
        match &self.file {
            Some(file) if file.name == origin => Some(file.position(key)),
            _ => Some(origin),
        }
    }

    /// The whole configuration as one tree.
    pub fn tree(&self) -> Json {
        tree(&self.figment)
    }
}

fn tree(figment: &Figment) -> Json {
    figment.extract::<Value>().ok().and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
}

fn layer<'a>(origin: &str, key: impl DoubleEndedIterator<Item = &'a str>, value: Value) -> Layer {
    let nested = key.rev().fold(value, |value, part| Dict::from([(part.to_owned(), value)]).into());
    Layer { origin: origin.to_owned(), values: nested.into_dict().unwrap_or_default() }
}

fn check_depth(origin: &str, key: &str) -> Result<(), ConfigError> {
    let parts = key.split('.').count();
    if parts <= MOST_PARTS {
        return Ok(());
    }
    let beginning: String = key.chars().take(32).collect();
    let problem = format!("has {parts} parts; a key of the configuration has at most {MOST_PARTS}");
    Err(ConfigError { key: format!("{beginning}…"), value: None, origin: Some(origin.to_owned()), problem })
}
