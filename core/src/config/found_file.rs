//! What a configuration file may not set if it was found in the current folder: keys that load code, or say where
//! secrets go or come from, or what is written where.

use std::path::{Component, Path};

use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::error::{ConfigError, ConfigErrorKind, shown};
use super::file::ConfigFile;
use super::settings::Settings;
use crate::registry::{ComponentKind, ComponentType};

/// The mark of a key, or of a whole table, in the schema of a configuration: `#[schemars(extend("x-needs-named-file" =
/// true))]`. A file that was merely [found](super::ConfigFile::found) may not set it, because the user may not mean
/// that file: it can have come with the sources of others.
///
/// A key that names a file to write has a list of endings instead of `true`, such as `["jsonl", "csv"]`. A found file
/// may set it to a file with such an ending, in the current folder or below, that is not hidden and behind no link.
pub const NEEDS_NAMED_FILE: &str = "x-needs-named-file";

/// The mark of a configuration whose component takes a secret from the environment by itself:
/// `#[schemars(extend("x-takes-secret" = true))]`. Keys and variables that say where the secret goes are those of the component
/// that has the name of its type, so a found file may not add one under another name. Nor may it turn one on that is off by
/// default.
pub const TAKES_SECRET: &str = "x-takes-secret";

/// Standard output, where a file is named.
const STANDARD_STREAM: &str = "-";

impl Settings {
    /// Refuses found files that set what only a named file may set. With `table`, it looks at this table alone.
    ///
    /// # Errors
    /// Names the file, the line, the key, and the way out.
    pub(super) fn check_found_files(&self, table: Option<&str>) -> Result<(), ConfigError> {
        self.files.iter().filter(|file| !file.is_named).try_for_each(|file| self.check_found_file(file, table))
    }

    fn check_found_file(&self, file: &ConfigFile, table: Option<&str>) -> Result<(), ConfigError> {
        let root = table.map(|table| table.split('.').next().unwrap_or(table));
        let is_asked = |name: &&String| root.is_none_or(|root| root == name.as_str());
        for (name, value) in file.values.iter().flatten().filter(|(name, _)| is_asked(name)) {
            let Some(members) = value.as_dict() else { continue };
            if let Some(table) = self.tables.iter().find(|table| table.name() == name) {
                check_table(file, name, members, &[table.schema()])?;
            }
            for kind in ComponentKind::all().filter(|kind| kind.table() == name) {
                let (types, merged) = (self.registry.of(kind), self.table(kind.table()).unwrap_or_default());
                for (name, members) in members.iter().filter_map(|(name, value)| Some((name, value.as_dict()?))) {
                    let key = format!("{}.{name}", kind.table());
                    // A table can be read as two types: that of the merged layers, and that of its name.
                    let merged = merged.get(name).and_then(|table| table["type"].as_str());
                    let is_read_as = |known: &&ComponentType| known.name == name || Some(known.name) == merged;
                    let schemas: Vec<Json> = types.iter().filter(is_read_as).map(ComponentType::schema).collect();
                    check_table(file, &key, members, &schemas)?;
                    let is_sender = |known: &&ComponentType| {
                        known.name == name && !known.on_by_default && known.schema()[TAKES_SECRET] == true
                    };
                    if let Some(value) = members.get("enabled").filter(|_| types.iter().any(|known| is_sender(&known)))
                    {
                        let why = "it takes a secret from the environment, which a file that merely lies here may not have sent";
                        return Err(refusal(file, &format!("{key}.enabled"), value, why));
                    }
                    let Some(value) = members.get("type") else { continue };
                    let is_other = |known: &&ComponentType| known.name != name && value.as_str() == Some(known.name);
                    if types.iter().find(is_other).is_some_and(|known| known.schema()[TAKES_SECRET] == true) {
                        let why = "it takes a token from the environment, which a file that merely lies here may not lead elsewhere";
                        return Err(refusal(file, &format!("{key}.type"), value, why));
                    }
                }
            }
        }
        Ok(())
    }
}

fn check_table(file: &ConfigFile, table: &str, members: &Dict, schemas: &[Json]) -> Result<(), ConfigError> {
    for (name, value) in members {
        let marks = schemas
            .iter()
            .flat_map(|schema| [&schema[NEEDS_NAMED_FILE], &schema["properties"][name][NEEDS_NAMED_FILE]]);
        let within = schemas.iter().any(|schema| is_marked_within(schema, name, value)).then_some(&Json::Bool(true));
        let Some(mark) = marks.into_iter().find(|mark| is_refused(mark, value)).or(within) else { continue };
        let why = match endings(mark) {
            None => {
                "it can load code, lead secrets elsewhere or destroy, so it does not count from a file that merely lies here".to_owned()
            }
            Some(endings) => format!(
                "a file that merely lies here may have files written in this folder and below alone, not hidden, behind no link, and \
                 with names that end in .{}",
                endings.collect::<Vec<_>>().join(", .")
            ),
        };
        return Err(refusal(file, &format!("{table}.{name}"), value, &why));
    }
    Ok(())
}

fn refusal(file: &ConfigFile, key: &str, value: &Value, why: &str) -> ConfigError {
    let value = serde_json::to_value(value).ok().and_then(|value| shown(key, &value));
    let problem = format!("{why}: name the file with -c {}, or set the key by a flag or a variable", file.name);
    ConfigError::new(ConfigErrorKind::NeedsNamedFile, key, problem).with_value(value).with_origin(file.position(key))
}

/// Whether a key with this mark may not have this value.
fn is_refused(mark: &Json, value: &Value) -> bool {
    match endings(mark) {
        None => *mark == true,
        // A value that is no text is no path; that is reported elsewhere.
        Some(mut endings) => value.as_str().is_some_and(|path| {
            let has_ending = |ending: &str| path.strip_suffix(ending).is_some_and(|name| name.ends_with('.'));
            path != STANDARD_STREAM && !(endings.any(has_ending) && is_plainly_below(Path::new(path)))
        }),
    }
}

/// Whether it is a table or a list in which something is marked. All of it is refused then.
fn is_marked_within(schema: &Json, name: &str, value: &Value) -> bool {
    let property = &schema["properties"][name];
    let is_nested = matches!(value, Value::Dict(..) | Value::Array(..));
    is_nested && (has(property, NEEDS_NAMED_FILE) || has(property, "$ref") && has(&schema["$defs"], NEEDS_NAMED_FILE))
}

/// Whether a key stands anywhere in a schema.
fn has(schema: &Json, key: &str) -> bool {
    match schema {
        Json::Object(members) => members.iter().any(|(name, member)| name == key || has(member, key)),
        Json::Array(items) => items.iter().any(|item| has(item, key)),
        _ => false,
    }
}

fn endings(mark: &Json) -> Option<impl Iterator<Item = &str>> {
    Some(mark.as_array()?.iter().filter_map(Json::as_str))
}

/// Whether it is in the current folder or below, through no link and under no hidden name: other programs read hidden
/// files, such as `.bashrc` and those in `.git`.
fn is_plainly_below(path: &Path) -> bool {
    let is_plain = |part: Component| match part {
        Component::CurDir => true,
        Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    path.components().all(is_plain) && !is_behind_link(path)
}

fn is_behind_link(path: &Path) -> bool {
    path.ancestors().any(Path::is_symlink)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_that_a_found_file_may_have_written() {
        let is_refused = |path: &str| is_refused(&json!(["jsonl", "csv.gz"]), &path.into());
        for path in ["-", "run.jsonl", "./run.jsonl", "logs/today/run.csv.gz", "a..b/run.jsonl", "run.1.jsonl"] {
            assert!(!is_refused(path), "{path}");
        }
        for path in [
            "",
            "jsonl",
            "run",
            "run.csv",
            "run.jsonl/",
            "run.jsonl.sh",
            "runjsonl",
            "/tmp/run.jsonl",
            "../run.jsonl",
            "logs/../../run.jsonl",
            ".run.jsonl",
            ".git/hooks/run.jsonl",
            "logs/.hidden/run.jsonl",
            "-/../run.jsonl",
            "..jsonl",
        ] {
            assert!(is_refused(path), "{path}");
        }
    }

    #[test]
    fn what_is_marked_within_a_table_or_a_list_is_found() {
        let marked = json!({ "type": "string", "x-needs-named-file": true });
        let schema = json!({
            "properties": {
                "auth": { "properties": { "token_file": marked } },
                "paths": { "type": "array", "items": marked },
                "other": { "$ref": "#/$defs/Other" },
                "labels": { "type": "object" },
                "path": marked,
            },
            "$defs": { "Other": { "properties": { "file": marked } } },
        });
        let table = || Value::from(Dict::new());
        for (name, value, is_found) in [
            ("auth", table(), true),
            ("paths", Value::from(vec!["../.bashrc"]), true),
            ("other", table(), true),
            ("labels", table(), false),
            ("nobody", table(), false),
            ("path", Value::from("run.jsonl"), false),
        ] {
            assert_eq!(is_marked_within(&schema, name, &value), is_found, "{name}");
        }
    }

    #[test]
    fn a_link_leads_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/tmp", at("logs")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at("run.jsonl")).unwrap();
        for path in ["logs/run.jsonl", "run.jsonl"] {
            assert!(is_behind_link(&at(path)), "{path}");
        }
        assert!(!is_behind_link(&folder.path().canonicalize().unwrap().join("elsewhere/run.jsonl")));
    }
}
