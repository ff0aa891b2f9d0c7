//! Everything that is wrong with a configuration, at once.

use serde_json::Value as Json;

use super::blame::Parse;
use super::components::Component;
use super::error::{ConfigError, ConfigErrorKind, suggestion};
use super::layers::Tree;
use super::settings::Settings;
use crate::registry::{ComponentKind, ComponentType, nearest};
use crate::sink::SinkConfig;
use crate::source::SourceConfig;

/// What happens to a key that does not exist, in a file and in a variable.
const IGNORED: &str = ", so it is ignored";

impl Settings {
    /// Reports every problem: a broken file, unknown keys (which a run ignores), unknown component types, and values
    /// that are not allowed. Problems of a file come before all others, and in its order.
    pub fn check(&self) -> Vec<ConfigError> {
        let files = self.files.iter().filter_map(|file| file.problem.clone());
        let mut problems = Vec::new();
        let tree = self.tree();
        for (key, value) in tree.as_object().into_iter().flatten() {
            let table = self.tables.iter().find(|table| table.name() == key);
            let errors = match (table, ComponentKind::all().find(|kind| kind.table() == key)) {
                (None, None) => vec![self.no_such_table(key, IGNORED)],
                (Some(table), _) => {
                    let schema = table.schema();
                    let known = Keys::of(&schema, &Json::Null);
                    self.check_table(key, value, &schema, &known, &|values| table.parse(values))
                }
                (None, Some(kind)) => self.check_components(kind, value),
            };
            problems.extend(errors);
        }
        problems.sort_by_cached_key(|problem| {
            let place = self.place(&problem.key);
            (place.is_none(), place)
        });
        files.chain(problems).collect()
    }

    /// In which file a key stands, and how far from its beginning.
    fn place(&self, key: &str) -> Option<(usize, usize)> {
        let origin = self.merged().all.origin(key)?;
        let number = self.files.iter().rposition(|file| origin == file.name)?;
        Some((number, self.files[number].offset(key)?))
    }

    /// Checks that all keys of [`set_assignment`](Self::set_assignment) exist.
    pub(super) fn check_assignments(&self) -> Result<(), ConfigError> {
        self.unknown_keys(&self.merged().assigned, "").into_iter().next().map_or(Ok(()), Err)
    }

    /// Variables for keys that do not exist, which are ignored.
    pub fn ignored_variables(&self) -> Vec<ConfigError> {
        self.unknown_keys(&self.merged().variables, IGNORED)
    }

    fn unknown_keys(&self, layers: &Tree, so: &str) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for (table, members) in layers.all().as_object().into_iter().flatten() {
            let members = members.as_object().into_iter().flatten();
            let known_table = self.tables.iter().find(|known| known.name() == table);
            match (known_table, ComponentKind::all().find(|kind| kind.table() == table)) {
                (None, None) => errors.push(self.no_such_table(table, so)),
                (Some(known), _) => {
                    let known = Keys::of(&known.schema(), &Json::Null);
                    errors.extend(members.filter_map(|(name, _)| self.no_such_key(table, name, &known, so).err()));
                }
                (None, Some(kind)) => {
                    errors.extend(members.flat_map(|(name, keys)| self.unknown_keys_of(kind, name, keys, so)));
                }
            }
        }
        errors
    }

    fn unknown_keys_of(&self, kind: ComponentKind, name: &str, keys: &Json, so: &str) -> Vec<ConfigError> {
        let tables = self.table(kind.table()).unwrap_or_default();
        let component_type = match self.component(kind, name, tables.get(name), &self.registry.of(kind)) {
            Ok(component) => component.component_type,
            Err(error) => return vec![error],
        };
        let known = Keys::of_component(&component_type);
        let (key, keys) = (Component::key(kind, name), keys.as_object().into_iter().flatten());
        keys.filter_map(|(name, _)| self.no_such_key(&key, name, &known, so).err()).collect()
    }

    fn no_such_table(&self, name: &str, so: &str) -> ConfigError {
        let tables: Vec<&str> = self
            .tables
            .iter()
            .map(|table| table.name())
            .chain(ComponentKind::all().map(ComponentKind::table))
            .collect();
        let is_table = self.value(name).is_some_and(|value| value.is_object());
        let problem = match self.key_in_a_table(name, &tables).filter(|_| !is_table) {
            Some(key) => format!("there is no such key{so}; did you mean {key}?"),
            None => suggestion(&format!("there is no such table{so}"), name, &tables),
        };
        self.error(ConfigErrorKind::UnknownKey, name, problem)
    }

    /// The key of a table that a name without one was most likely meant to be, unless that is the name of a table.
    fn key_in_a_table(&self, name: &str, tables: &[&str]) -> Option<String> {
        let known = self.tables.iter().map(|table| (table.name().to_owned(), Keys::of(&table.schema(), &Json::Null)));
        let components = ComponentKind::all().flat_map(|kind| {
            let of_kind = self.registry.of(kind).into_iter();
            of_kind.map(move |one| (Component::key(kind, one.name), Keys::of(&one.schema(), &one.defaults())))
        });
        let all: Vec<(String, Keys)> = known.chain(components).collect();
        let keys = all.iter().flat_map(|(_, keys)| &keys.names).map(String::as_str);
        let near = nearest(name, tables.iter().copied().chain(keys)).filter(|near| !tables.contains(near))?;
        let (table, _) = all.iter().find(|(_, keys)| keys.names.iter().any(|key| key == near))?;
        Some(format!("{table}.{near}"))
    }

    fn no_such_key(&self, table: &str, name: &str, known: &Keys, so: &str) -> Result<(), ConfigError> {
        if known.has(name) {
            return Ok(());
        }
        let names: Vec<&str> = known.names.iter().map(String::as_str).collect();
        let problem = suggestion(&format!("there is no such key{so}"), name, &names);
        Err(self.error(ConfigErrorKind::UnknownKey, &format!("{table}.{name}"), problem))
    }

    fn check_components(&self, kind: ComponentKind, tables: &Json) -> Vec<ConfigError> {
        let Some(tables) = tables.as_object() else {
            return vec![self.error(ConfigErrorKind::BadValue, kind.table(), "must be a table")];
        };
        let types = self.registry.of(kind);
        let one = |(name, table): (&String, &Json)| {
            let key = Component::key(kind, name);
            let component = match self.component(kind, name, Some(table), &types) {
                Ok(component) => component,
                Err(error) => return vec![error],
            };
            let component_type = component.component_type;
            let values = Json::Object(component.configured().clone());
            let parse: Parse<'_> = match kind {
                ComponentKind::Source => &|values| component.parse::<Box<dyn SourceConfig>>(values).map(drop),
                ComponentKind::Sink => &|values| component.parse::<Box<dyn SinkConfig>>(values).map(drop),
            };
            self.check_table(&key, &values, &component_type.schema(), &Keys::of_component(&component_type), parse)
        };
        tables.iter().flat_map(one).collect()
    }

    fn check_table(&self, key: &str, values: &Json, schema: &Json, known: &Keys, parse: Parse<'_>) -> Vec<ConfigError> {
        let Some(values) = values.as_object() else {
            return vec![self.error(ConfigErrorKind::BadValue, key, "must be a table")];
        };
        let one = |(name, value): (&String, &Json)| match self.no_such_key(key, name, known, IGNORED) {
            Ok(()) => self.blame_key(key, name, value, schema, parse),
            Err(error) => Some(error),
        };
        values.iter().filter_map(one).collect()
    }
}

/// The keys of a table.
struct Keys {
    names: Vec<String>,
    /// Whether these are all: a plugin need not list its keys.
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

    fn of_component(component: &ComponentType) -> Self {
        let schema = component.schema();
        let mut keys = Self::of(&schema, &component.defaults());
        // The schema of a linked component is made from its type, so it lists all keys.
        keys.are_known |= component.plugin().is_none() && schema.get("additionalProperties").is_none();
        keys.names.extend(["enabled", "type"].map(str::to_owned));
        keys
    }

    fn has(&self, name: &str) -> bool {
        !self.are_known || self.names.iter().any(|known| known == name)
    }
}
