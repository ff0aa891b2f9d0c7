//! What is wrong with a value, where it is from, and what is allowed.

use std::fmt::{self, Write};

use serde_json::{Map, Value as Json};

use super::Settings;

/// A value that cannot be used. Displays as one line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfigError {
    /// What is wrong, for programs.
    pub kind: ConfigErrorKind,
    /// The key, such as `sinks.archive.format`.
    pub key: String,
    /// The value as it would be written, if there is one; `***` for a secret.
    pub value: Option<String>,
    /// Where it is from: a place in a file, a variable, a flag.
    pub origin: Option<String>,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

/// What can be wrong with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read, or is no TOML. It counts as empty.
    File,
    /// There is no such key or table.
    UnknownKey,
    /// There is no such component, or no such type of it.
    UnknownComponent,
    /// The value is not allowed.
    BadValue,
    /// The key [needs a file that the user named](super::NEEDS_NAMED_FILE), and this one was merely found.
    NeedsNamedFile,
}

impl ConfigError {
    /// An error without value and origin.
    pub fn new(kind: ConfigErrorKind, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { kind, key: key.into(), value: None, origin: None, problem: problem.into() }
    }

    /// With the value as it would be written.
    pub fn with_value(self, value: impl Into<Option<String>>) -> Self {
        Self { value: value.into(), ..self }
    }

    /// With the place that the value is from.
    pub fn with_origin(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = self.origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default();
        let value = self.value.as_ref().map(|value| format!(" = {value}")).unwrap_or_default();
        let line = format!("{origin}{}{value}: {}", self.key, self.problem);
        // Names of keys and types can be anything; a terminal must not obey them.
        line.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

/// Whether the value of a key must not be shown.
pub fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["token", "secret", "password", "credential"].iter().any(|word| name.contains(word))
}

/// Characters of a value that are shown at most.
const LONGEST: usize = 200;

/// A value as it would be written; `None` for tables and lists.
pub(super) fn shown(key: &str, value: &Json) -> Option<String> {
    match value {
        Json::Array(_) | Json::Object(_) => None,
        _ if is_secret(key) => Some("***".into()),
        value => {
            let text = value.to_string();
            let end = text.char_indices().nth(LONGEST).map(|(end, _)| end);
            Some(end.map_or(text.clone(), |end| format!("{}…", &text[..end])))
        }
    }
}

/// Whether a table can be read, tried out.
pub(super) type Parse<'a> = &'a dyn Fn(Map<String, Json>) -> serde_json::Result<()>;

impl Settings {
    pub(super) fn error(&self, kind: ConfigErrorKind, key: &str, problem: impl Into<String>) -> ConfigError {
        let (value, origin) = (self.shown(key), self.origin(key));
        ConfigError { value, origin, ..ConfigError::new(kind, key, problem) }
    }

    fn shown(&self, key: &str) -> Option<String> {
        shown(key, &self.value(key)?)
    }

    /// The error for a table that could not be read: names the key that is to blame, found by reading each alone.
    pub(super) fn blame(
        &self,
        table: &str,
        values: &Map<String, Json>,
        schema: &Json,
        error: &str,
        parse: Parse<'_>,
    ) -> ConfigError {
        let culprits = values.keys().filter_map(|name| self.blame_key(table, name, &values[name], schema, parse));
        culprits.into_iter().next().unwrap_or_else(|| self.error(ConfigErrorKind::BadValue, table, error))
    }

    /// The error of one key of a table, if it has one.
    pub(super) fn blame_key(
        &self,
        table: &str,
        name: &str,
        value: &Json,
        schema: &Json,
        parse: Parse<'_>,
    ) -> Option<ConfigError> {
        let error = parse(Map::from_iter([(name.to_owned(), value.clone())])).err()?.to_string();
        let generic = error.starts_with("invalid type") || error.starts_with("unknown variant");
        let expected = generic.then(|| expected(&schema["properties"][name])).flatten();
        let problem = expected.map_or(error, |expected| format!("must be {expected}"));
        Some(self.error(ConfigErrorKind::BadValue, &format!("{table}.{name}"), problem))
    }
}

/// What a schema allows, in words.
pub(crate) fn expected(schema: &Json) -> Option<String> {
    let own = constants(schema);
    if !own.is_empty() {
        return Some(format!("one of {}", own.join(", ")));
    }
    let types: Vec<&str> = match &schema["type"] {
        Json::String(one) => vec![one],
        Json::Array(many) => many.iter().filter_map(Json::as_str).filter(|name| *name != "null").collect(),
        _ => return None,
    };
    let items = match constants(&schema["items"]).join(", ") {
        names if names.is_empty() => "a list".to_owned(),
        names => format!("a list of {names}"),
    };
    let words = types.into_iter().map(|name| match name {
        "string" => "a text",
        "boolean" => "true or false",
        "integer" if schema["minimum"].as_f64() == Some(0.0) => "a whole number of 0 or more",
        "integer" => "a whole number",
        "number" => "a number",
        "array" => &items,
        "object" => "a table",
        other => other,
    });
    let example = schema["examples"].get(0).map(|example| format!(", such as {example}"));
    Some(words.collect::<Vec<_>>().join(" or ") + &example.unwrap_or_default())
}

/// The texts that a schema lists, however deep its alternatives are.
fn constants(schema: &Json) -> Vec<&str> {
    let list = |key: &str| schema[key].as_array().into_iter().flatten();
    let own = list("enum").chain(schema.get("const")).filter_map(Json::as_str);
    own.chain(list("oneOf").chain(list("anyOf")).flat_map(constants)).collect()
}
