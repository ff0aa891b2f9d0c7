//! What is wrong with a value, where it is from, and what is allowed.

use std::fmt::{self, Write};

use serde_json::Value as Json;

use crate::registry::nearest;

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
fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["token", "secret", "password", "credential"].iter().any(|word| name.contains(word))
}

/// A problem, with the name that was most likely meant and all names that there are.
pub(super) fn suggestion(problem: &str, wrong: &str, names: &[&str]) -> String {
    let hint = nearest(wrong, names.iter().copied()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    format!("{problem}{hint} (there are: {})", names.join(", "))
}

/// A value as it may be shown: without secrets, as far as they can be told by the key or in an address.
pub fn without_secrets(key: &str, value: &Json) -> Json {
    match value {
        Json::Null => Json::Null,
        _ if is_secret(key) => "***".into(),
        Json::String(text) => without_credentials(text, is_address(key)).into(),
        Json::Array(items) => items.iter().map(|item| without_secrets(key, item)).collect(),
        Json::Object(members) => {
            Json::Object(members.iter().map(|(key, value)| (key.clone(), without_secrets(key, value))).collect())
        }
        Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

/// Whether the value of a key is an address, however it is written.
fn is_address(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    ["url", "endpoint", "address"].iter().any(|word| name.contains(word))
}

/// A text without user, password and query, if it is an address: by its key, or as it looks.
fn without_credentials(text: &str, is_address: bool) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None if is_address => (String::new(), text),
        None => return text.to_owned(),
    };
    // A password may have any character in it, though it should not. The second sign is one that looks like the first.
    let (user, rest) = rest.rsplit_once(['@', '\u{ff20}']).map_or(("", rest), |(_, rest)| ("***@", rest));
    let (place, query) = rest.find(['?', '#']).map_or((rest, ""), |end| (&rest[..end], &rest[end..]));
    let query = query.get(..1).map(|sign| format!("{sign}***")).unwrap_or_default();
    format!("{scheme}{user}{place}{query}")
}

/// Characters of a value that are shown at most.
const LONGEST: usize = 200;

/// A value as it would be written; `None` for tables and lists.
pub(super) fn shown(key: &str, value: &Json) -> Option<String> {
    match value {
        Json::Array(_) | Json::Object(_) => None,
        _ if is_secret(key) => Some("***".into()),
        value => {
            let text = without_secrets(key, value).to_string();
            let end = text.char_indices().nth(LONGEST).map(|(end, _)| end);
            Some(end.map_or(text.clone(), |end| format!("{}…", &text[..end])))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_values_are_not_shown() {
        for (value, shown) in [
            (json!("https://me:pw@host/a"), json!("https://***@host/a")),
            (json!("https://me:p/w?x@host#y"), json!("https://***@host#***")),
            (json!(["http://host/a?key=x", "plain@text", 7]), json!(["http://host/a?***", "plain@text", 7])),
            (json!({ "token_file": "t", "nothing": null }), json!({ "token_file": "***", "nothing": null })),
        ] {
            assert_eq!(without_secrets("sinks.x.key", &value), shown);
        }
        for written in ["user:pw@host/x", "//user:pw@host/x", "https:\\\\user:pw@host/x", "user:pw\u{ff20}host/x"] {
            assert_eq!(without_secrets("sinks.x.api_url", &json!(written)), json!("***@host/x"));
        }
        assert_eq!(without_secrets("sinks.x.token", &json!("t")), json!("***"));
        assert_eq!(shown("api_url", &json!("http://u:p@h")).as_deref(), Some("\"http://***@h\""));
    }
}
