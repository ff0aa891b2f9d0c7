//! The settings of a program: what was set, and what follows from it.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::error::{ConfigError, ConfigErrorKind};
use super::file::ConfigFile;
use super::known_table::KnownTable;
use super::layers::{Layer, Merged, Set};
use super::origin::Origin;
use super::toml::literal;
use super::value::ConfigValue;
use crate::registry::{ComponentKind, Registry};

/// The merged configuration. Later layers win: defaults, the site's file, the user's file, environment, command line. The order in which they are
/// added matters only within a kind, where the last one wins.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub(super) registry: Registry,
    pub(super) tables: Vec<KnownTable>,
    pub(super) files: Vec<ConfigFile>,
    pub(super) layers: Vec<Layer>,
    /// Keys that the site's file alone sets.
    pub(super) enforced: Vec<Vec<String>>,
    pub(super) merged: OnceLock<Merged>,
}

/// More parts than any key has. Tables that are nested without bound would overflow the stack.
const MOST_PARTS: usize = 32;

impl Settings {
    /// Settings in which everything has its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Settings for the components of this registry.
    pub fn of(registry: Registry) -> Self {
        Self { registry, ..Self::default() }
    }

    /// The same, for the components of another registry.
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, merged: OnceLock::new(), ..self }
    }

    /// Says which tables the program itself has, beside `sources` and `sinks`.
    pub fn tables(mut self, tables: impl IntoIterator<Item = KnownTable>) -> Self {
        self.tables.extend(tables);
        self
    }

    /// The components that can be configured.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds a TOML file that the user named. One that is missing, unreadable or broken counts as empty;
    /// [`check`](Self::check) tells.
    pub fn file(self, path: &Path) -> Self {
        self.config_file(ConfigFile::named(path))
    }

    /// Adds a TOML file that was read already.
    pub fn config_file(mut self, file: ConfigFile) -> Self {
        if let Some(values) = &file.values {
            self.push(Origin::file(&file.name), Set::Values(values.clone()));
        }
        self.files.push(file);
        self
    }

    /// Adds the environment: the variables in `names` (variable, key), taken as text, and `A__B=…` after the prefix (such as
    /// `MY_PROGRAM_`) for any other key `a.b`, read as TOML where it is TOML. Empty variables count as not set.
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
                self = self.set(Origin::variable(name), key, value);
            } else if let Some(key) = name.strip_prefix(prefix).filter(|key| key.contains("__")) {
                let key: Vec<String> = key.split("__").map(str::to_lowercase).collect();
                check_depth(&name, &key)?;
                self.push(Origin::variable(name), Set::Variable { key, value: literal(&value) });
            }
        }
        Ok(self)
    }

    /// Sets one value. `origin` is where it is from, such as `"--interval"` or `Origin::variable("INTERVAL")`.
    pub fn set(self, origin: impl Into<Origin>, key: &str, value: impl Into<ConfigValue>) -> Self {
        self.set_at(origin, key.split('.'), value)
    }

    /// Sets the value of a key that is given in its parts, each of which may hold dots.
    pub fn set_at<'a>(
        mut self,
        origin: impl Into<Origin>,
        key: impl IntoIterator<Item = &'a str>,
        value: impl Into<ConfigValue>,
    ) -> Self {
        let key: Vec<String> = key.into_iter().map(str::to_owned).collect();
        self.push(origin.into(), Set::Values(super::layers::at(&key, value.into().0)));
        self
    }

    /// Sets a value that follows from that of another key, with the origin of that one. A value that this origin sets
    /// itself counts more.
    pub fn imply(mut self, from: &str, key: &str, value: impl Into<ConfigValue>) -> Self {
        let parts = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<String>>();
        let (from_parts, key) = (parts(from), parts(key));
        let setters = self.layers.iter().filter(|layer| layer.what.sets(&from_parts));
        let last = setters.max_by_key(|layer| layer.origin.rank);
        let origin = last.map_or_else(|| Origin::default_of(from), |layer| layer.origin.clone());
        self.layers.insert(0, Layer { origin, what: Set::Values(super::layers::at(&key, value.into().0)) });
        self.merged = OnceLock::new();
        self
    }

    /// Sets what `key=value` says, as in `--set sinks.file.path=run.jsonl`. The value is read as TOML where it is TOML,
    /// else as text. A key that does not exist is an error of [`sources`](Self::sources), [`sinks`](Self::sinks) and
    /// [`components`](Self::components).
    ///
    /// # Errors
    /// When there is no `=`, no key before it, or one with more parts than any key has.
    pub fn set_assignment(mut self, origin: impl Into<Origin>, assignment: &str) -> Result<Self, ConfigError> {
        let origin = origin.into();
        match assignment.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                let (key, value) =
                    (key.trim().split('.').map(str::to_owned).collect::<Vec<_>>(), literal(value.trim()));
                check_depth(&origin.name, &key)?;
                self.push(origin, Set::Assignment { key, value });
                Ok(self)
            }
            _ => {
                let problem = "must be KEY=VALUE, such as sinks.file.path=run.jsonl";
                let error = ConfigError::new(ConfigErrorKind::BadValue, &origin.name, problem);
                Err(error.with_value(format!("{assignment:?}")))
            }
        }
    }

    /// Turns a source, a sink, or a configured component on or off by its name alone. A name that does not exist is an
    /// error of [`sources`](Self::sources), [`sinks`](Self::sinks) and [`components`](Self::components).
    pub fn switch(mut self, origin: impl Into<Origin>, name: impl Into<String>, on: bool) -> Self {
        self.push(origin.into(), Set::Switch { name: name.into(), on });
        self
    }

    pub(super) fn push(&mut self, origin: Origin, what: Set) {
        self.layers.push(Layer { origin, what });
        self.merged = OnceLock::new();
    }

    pub(super) fn merged(&self) -> &Merged {
        self.merged.get_or_init(|| Merged::of(&self.layers, &self.enforced, &self.registry))
    }

    /// Reads one table of the configuration into a type. Keys that the type does not have are ignored; a table that
    /// is not there counts as empty.
    ///
    /// # Errors
    /// Names the key, the value, its origin and what is allowed.
    pub fn extract<T: DeserializeOwned>(&self, table: &str) -> Result<T, ConfigError> {
        self.check_found_files(Some(table))?;
        let values = match self.value(table) {
            None => serde_json::Map::new(),
            Some(Json::Object(values)) => values,
            Some(_) => return Err(self.error(ConfigErrorKind::BadValue, table, "must be a table")),
        };
        let parse = |values: serde_json::Map<String, Json>| serde_json::from_value::<T>(values.into());
        parse(values.clone()).map_err(|error| {
            self.blame(table, &values, &self.schema_of(table), &error.to_string(), &|values| parse(values).map(drop))
        })
    }

    /// The schema of a table, if it is known.
    fn schema_of(&self, table: &str) -> Json {
        if let Some(known) = self.tables.iter().find(|known| known.name() == table) {
            return known.schema();
        }
        let named = |kind: ComponentKind| Some((kind, table.strip_prefix(kind.table())?.strip_prefix('.')?));
        let component = ComponentKind::all().find_map(named);
        let known =
            component.and_then(|(kind, name)| self.registry.of(kind).into_iter().find(|known| known.name == name));
        known.map_or(Json::Null, |known| known.schema())
    }

    /// The value of a key, if any layer has one.
    pub fn value(&self, key: &str) -> Option<Json> {
        self.merged().all.value(key)
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
        let origin = self.merged().all.origin(key)?;
        match self.files.iter().rev().find(|file| file.name == origin) {
            Some(file) => Some(file.position(key)),
            None => Some(origin.to_owned()),
        }
    }

    /// The whole configuration as one tree.
    pub fn tree(&self) -> Json {
        self.merged().all.all()
    }
}

fn check_depth(origin: &str, key: &[String]) -> Result<(), ConfigError> {
    let parts = key.len();
    if parts <= MOST_PARTS {
        return Ok(());
    }
    let beginning: String = key.join(".").chars().take(32).collect();
    let problem = format!("has {parts} parts; a key of the configuration has at most {MOST_PARTS}");
    let error = ConfigError::new(ConfigErrorKind::UnknownKey, format!("{beginning}…"), problem);
    Err(error.with_origin(origin))
}
