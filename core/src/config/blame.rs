//! Which key of a table is to blame, and what its schema allows.

use serde_json::{Map, Value as Json};

use super::error::{ConfigError, ConfigErrorKind, shown};
use super::settings::Settings;

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
