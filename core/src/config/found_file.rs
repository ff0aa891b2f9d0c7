//! What a configuration file may not set that was found in the current folder: what loads code, or says where secrets go
//! or come from.

use figment::value::Dict;
use serde_json::Value as Json;

use super::error::shown;
use super::{ConfigError, KnownTable, Settings};
use crate::registry::{ComponentType, Kind};

/// The mark of a key, or of a whole table, in the schema of a configuration:
/// `#[schemars(extend("x-needs-named-file" = true))]`. A file that was merely [found](super::ConfigFile::found) may not
/// set it, because nobody may have meant that file.
pub const NEEDS_NAMED_FILE: &str = "x-needs-named-file";

impl Settings {
    /// Refuses a file that was found, and sets what only a file may set that the user named.
    ///
    /// # Errors
    /// Names the file, the line, the key, and the way out.
    pub fn check_found_file(&self, tables: &[KnownTable]) -> Result<(), ConfigError> {
        let values = self.file.as_ref().filter(|file| !file.is_named).and_then(|file| file.values.as_ref());
        for (name, value) in values.into_iter().flatten() {
            let Some(members) = value.as_dict() else { continue };
            if let Some(table) = tables.iter().find(|table| table.name == name) {
                self.check_found_table(name, members, std::slice::from_ref(&table.schema))?;
            }
            for kind in Kind::ALL.into_iter().filter(|kind| kind.table() == name) {
                let (types, merged) = (self.registry.of(kind), self.table(kind.table()).unwrap_or_default());
                for (name, members) in members.iter().filter_map(|(name, value)| Some((name, value.as_dict()?))) {
                    let key = format!("{}.{name}", kind.table());
                    // A table can be read as more than one type: what the layers say, and what its name says.
                    let merged = merged.get(name).and_then(|table| table["type"].as_str());
                    let is_read_as = |known: &&ComponentType| known.name == name || Some(known.name) == merged;
                    let schemas: Vec<Json> = types.iter().filter(is_read_as).map(ComponentType::schema).collect();
                    self.check_found_table(&key, members, &schemas)?;
                }
            }
        }
        Ok(())
    }

    fn check_found_table(&self, table: &str, members: &Dict, schemas: &[Json]) -> Result<(), ConfigError> {
        let is_marked = |schema: &Json| schema[NEEDS_NAMED_FILE] == true;
        let needs = |key: &str| schemas.iter().any(|schema| is_marked(schema) || is_marked(&schema["properties"][key]));
        let Some(file) = &self.file else { return Ok(()) };
        match members.iter().find(|(key, _)| needs(key)) {
            None => Ok(()),
            Some((name, value)) => {
                let key = format!("{table}.{name}");
                Err(ConfigError {
                    value: serde_json::to_value(value).ok().and_then(|value| shown(&key, &value)),
                    origin: Some(file.position(&key)),
                    key,
                    problem: format!(
                        "it can load code, lead secrets elsewhere or destroy, so it does not count from a file that merely lies \
                         here: name the file with -c {}, or set the key by a flag or a variable",
                        file.name
                    ),
                })
            }
        }
    }
}
