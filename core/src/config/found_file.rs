//! What a configuration file may not set that was found in the current folder: what loads code, or says where secrets go
//! or come from.

use figment::value::Dict;
use serde_json::Value as Json;

use super::error::{ConfigError, ConfigErrorKind, shown};
use super::file::ConfigFile;
use super::settings::Settings;
use crate::registry::{ComponentType, Kind};

/// The mark of a key, or of a whole table, in the schema of a configuration:
/// `#[schemars(extend("x-needs-named-file" = true))]`. A file that was merely [found](super::ConfigFile::found) may not
/// set it, because nobody may have meant that file.
pub const NEEDS_NAMED_FILE: &str = "x-needs-named-file";

impl Settings {
    /// Refuses files that were found and set what only a file may set that the user named. With `table`, in this table
    /// alone.
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
            for kind in Kind::all().filter(|kind| kind.table() == name) {
                let (types, merged) = (self.registry.of(kind), self.table(kind.table()).unwrap_or_default());
                for (name, members) in members.iter().filter_map(|(name, value)| Some((name, value.as_dict()?))) {
                    let key = format!("{}.{name}", kind.table());
                    // A table can be read as more than one type: what the layers say, and what its name says.
                    let merged = merged.get(name).and_then(|table| table["type"].as_str());
                    let is_read_as = |known: &&ComponentType| known.name == name || Some(known.name) == merged;
                    let schemas: Vec<Json> = types.iter().filter(is_read_as).map(ComponentType::schema).collect();
                    check_table(file, &key, members, &schemas)?;
                }
            }
        }
        Ok(())
    }
}

fn check_table(file: &ConfigFile, table: &str, members: &Dict, schemas: &[Json]) -> Result<(), ConfigError> {
    let is_marked = |schema: &Json| schema[NEEDS_NAMED_FILE] == true;
    let needs = |key: &str| schemas.iter().any(|schema| is_marked(schema) || is_marked(&schema["properties"][key]));
    let Some((name, value)) = members.iter().find(|(key, _)| needs(key)) else { return Ok(()) };
    let key = format!("{table}.{name}");
    let value = serde_json::to_value(value).ok().and_then(|value| shown(&key, &value));
    let problem = format!(
        "it can load code, lead secrets elsewhere or destroy, so it does not count from a file that merely lies here: name \
         the file with -c {}, or set the key by a flag or a variable",
        file.name
    );
    let origin = file.position(&key);
    Err(ConfigError::new(ConfigErrorKind::NeedsNamedFile, key, problem).with_value(value).with_origin(origin))
}
