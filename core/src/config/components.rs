//! Which components run, why, and with which configuration.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::error::{ConfigError, ConfigErrorKind, suggestion};
use super::settings::Settings;
use crate::registry::{ComponentKind, ComponentType, Implementation};
use crate::sink::SinkConfig;
use crate::source::SourceConfig;

/// Why a component of which nothing was configured is on or off.
const BY_DEFAULT: &str = "by default";

/// One component as it is configured.
#[non_exhaustive]
pub struct Component {
    /// Its name in the configuration; several sinks can be of one type.
    pub name: String,
    /// Its type.
    pub component_type: ComponentType,
    /// Whether it runs.
    pub state: State,
    values: Map<String, Json>,
}

/// Whether a component runs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// Whether it runs.
    pub on: bool,
    /// Who decided: `by default`, a flag, a variable, a place in a file.
    pub why: String,
}

impl Component {
    /// Its keys with their values: the defaults, and over them what was configured.
    pub fn values(&self) -> Map<String, Json> {
        let mut values = match self.component_type.defaults() {
            Json::Object(defaults) => defaults,
            _ => Map::new(),
        };
        values.extend(self.values.clone());
        values
    }

    /// What was configured.
    pub(super) fn configured(&self) -> &Map<String, Json> {
        &self.values
    }

    pub(super) fn key(kind: ComponentKind, name: &str) -> String {
        format!("{}.{name}", kind.table())
    }

    /// Reads `values` as the configuration of this component's type: by way of typetag, or the plugin.
    pub(super) fn parse<T: Configuration>(&self, values: Map<String, Json>) -> serde_json::Result<T> {
        if let Some(config) = T::from_plugin(self.component_type.implementation, &values) {
            return config;
        }
        let mut tagged = Map::from_iter([("type".to_owned(), Json::from(self.component_type.name))]);
        tagged.extend(values);
        serde_json::from_value(tagged.into())
    }
}

/// Things that are configured under names, in the order in which they are used.
pub type ByName<T> = Vec<(String, T)>;

/// A configuration of either kind.
pub(super) trait Configuration: DeserializeOwned {
    /// `None` when the component is not a plugin's.
    fn from_plugin(implementation: Implementation, values: &Map<String, Json>) -> Option<serde_json::Result<Self>>;
}

impl Configuration for Box<dyn SourceConfig> {
    fn from_plugin(implementation: Implementation, values: &Map<String, Json>) -> Option<serde_json::Result<Self>> {
        if let Implementation::PluginSource(source) = implementation {
            Some(source.configure(values.clone()))
        } else {
            None
        }
    }
}

impl Configuration for Box<dyn SinkConfig> {
    fn from_plugin(implementation: Implementation, values: &Map<String, Json>) -> Option<serde_json::Result<Self>> {
        if let Implementation::PluginSink(sink) = implementation { Some(sink.configure(values.clone())) } else { None }
    }
}

impl Settings {
    /// Every component of a kind: all that is linked in, and what the configuration adds under other names.
    ///
    /// # Errors
    /// When a table is no table, `type` is no text or no type that there is, or `enabled` is neither true nor false;
    /// when an assigned key, or a switched component, does not exist; when a file that was found sets what it may not.
    pub fn components(&self, kind: ComponentKind) -> Result<Vec<Component>, ConfigError> {
        self.check_found_files(None)?;
        self.check_assignments()?;
        self.merged().unknown.clone().map_or(Ok(()), Err)?;
        let configured = match self.value(kind.table()) {
            None => Map::new(),
            Some(Json::Object(tables)) => tables,
            Some(_) => return Err(self.error(ConfigErrorKind::BadValue, kind.table(), "must be a table")),
        };
        self.each_component(kind, &configured).into_iter().map(|(_, component)| component).collect()
    }

    /// The components with a name or a type that is known, whatever else is wrong with the configuration: to offer
    /// their names.
    pub fn named_components(&self, kind: ComponentKind) -> Vec<Component> {
        let configured = match self.value(kind.table()) {
            Some(Json::Object(tables)) => tables,
            _ => Map::new(),
        };
        let types = self.registry.of(kind);
        // A component with a wrong table is there all the same.
        let as_it_is = |name: &str| self.component(kind, name, None, &types);
        let all = self.each_component(kind, &configured).into_iter();
        all.filter_map(|(name, component)| component.or_else(|_| as_it_is(&name)).ok()).collect()
    }

    /// Components by name: those that there are, and those that the configuration adds.
    fn each_component(
        &self,
        kind: ComponentKind,
        configured: &Map<String, Json>,
    ) -> Vec<(String, Result<Component, ConfigError>)> {
        let types = self.registry.of(kind);
        let added = configured.keys().filter(|name| types.iter().all(|component| component.name != **name));
        let names = types.iter().map(|component| component.name).chain(added.map(String::as_str));
        names.map(|name| (name.to_owned(), self.component(kind, name, configured.get(name), &types))).collect()
    }

    pub(super) fn component(
        &self,
        kind: ComponentKind,
        name: &str,
        table: Option<&Json>,
        types: &[ComponentType],
    ) -> Result<Component, ConfigError> {
        let known = || types.iter().find(|component| component.name == name).copied();
        if let (None, Some(component_type)) = (table, known()) {
            let state = State { on: component_type.on_by_default, why: BY_DEFAULT.into() };
            return Ok(Component { name: name.to_owned(), component_type, state, values: Map::new() });
        }
        let key = Component::key(kind, name);
        if name.contains(char::is_control) {
            // The name becomes that of a thread, and is in messages.
            let (shown, problem) = (format!("{}.{name:?}", kind.table()), "a name has no control characters");
            let error = ConfigError::new(ConfigErrorKind::BadValue, shown, problem);
            return Err(ConfigError { origin: self.origin(&key), ..error });
        }
        let mut values = match table {
            None => Map::new(),
            Some(Json::Object(values)) => values.clone(),
            Some(_) => return Err(self.error(ConfigErrorKind::BadValue, &key, "must be a table")),
        };
        let type_name = match values.remove("type") {
            None => name.to_owned(),
            Some(Json::String(type_name)) => type_name,
            Some(_) => return Err(self.error(ConfigErrorKind::BadValue, &format!("{key}.type"), "must be a text")),
        };
        let enabled_key = format!("{key}.enabled");
        let enabled = match values.remove("enabled") {
            None => None,
            Some(value) => {
                let wrong = || self.error(ConfigErrorKind::BadValue, &enabled_key, "must be true or false");
                Some(as_bool(&value).ok_or_else(wrong)?)
            }
        };
        let Some(component_type) = types.iter().find(|component| component.name == type_name).copied() else {
            // Also when it is off: its name is a mistake all the same.
            let type_key = format!("{key}.type");
            let key = if self.value(&type_key).is_some() { type_key } else { key };
            return Err(self.error(ConfigErrorKind::UnknownComponent, &key, unknown(kind, &type_name, types)));
        };
        let by_default = component_type.on_by_default;
        let origin = |key: &str| self.origin(key).unwrap_or_else(|| "configured".into());
        let state = match (enabled, table) {
            (Some(on), _) => State { on, why: origin(&enabled_key) },
            (None, Some(_)) if !by_default => State { on: true, why: origin(&key) },
            (None, _) => State { on: by_default, why: BY_DEFAULT.into() },
        };
        Ok(Component { name: name.to_owned(), component_type, state, values })
    }

    /// The names and configurations of the sources that are on, in the order in which they are read.
    ///
    /// # Errors
    /// Names the key, the value, its origin and what is allowed.
    pub fn sources(&self) -> Result<ByName<Box<dyn SourceConfig>>, ConfigError> {
        self.configurations(ComponentKind::Source)
    }

    /// The names and configurations of the sinks that are on.
    ///
    /// # Errors
    /// Names the key, the value, its origin and what is allowed.
    pub fn sinks(&self) -> Result<ByName<Box<dyn SinkConfig>>, ConfigError> {
        self.configurations(ComponentKind::Sink)
    }

    fn configurations<T: Configuration>(&self, kind: ComponentKind) -> Result<Vec<(String, T)>, ConfigError> {
        let components = self.components(kind)?.into_iter().filter(|component| component.state.on);
        components
            .map(|component| match component.parse::<T>(component.values.clone()) {
                Ok(config) => Ok((component.name, config)),
                Err(error) => {
                    let schema = component.component_type.schema();
                    let key = Component::key(kind, &component.name);
                    let parse = |values| component.parse::<T>(values).map(drop);
                    Err(self.blame(&key, &component.values, &schema, &error.to_string(), &parse))
                }
            })
            .collect()
    }
}

fn unknown(kind: ComponentKind, name: &str, types: &[ComponentType]) -> String {
    let names: Vec<&str> = types.iter().map(|component| component.name).collect();
    suggestion(&format!("there is no {} of type {name}", kind.noun()), name, &names)
}

/// A truth value, also as the text that an environment variable holds.
fn as_bool(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(value) => Some(*value),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
}
