//! The file of a site: what everybody on a machine gets, and what of it nobody can change.

use std::sync::OnceLock;

use figment::value::Value;

use super::error::{ConfigError, ConfigErrorKind};
use super::file::ConfigFile;
use super::layers::Set;
use super::origin::{Origin, Rank};
use super::settings::Settings;

impl Settings {
    /// Adds the file of the site, which counts less than everything that a user sets.
    pub fn site_file(mut self, file: ConfigFile) -> Self {
        if let Some(values) = &file.values {
            self.push(Origin::site(&file.name), Set::Values(values.clone()));
        }
        self.files.insert(0, file);
        self
    }

    /// Makes these keys and tables, such as `sinks.archive`, be what the site's file says of them, whatever else is set: also
    /// of a table's keys that it does not name.
    ///
    /// Returns the problems beside: keys of which the file says nothing.
    pub fn enforce(mut self, keys: &[String]) -> (Self, Vec<ConfigError>) {
        let site = self.layers.iter().find(|layer| layer.origin.rank == Rank::Site);
        let values = site.and_then(|layer| match &layer.what {
            Set::Values(values) => Some((layer.origin.name.clone(), Value::from(values.clone()))),
            _ => None,
        });
        let Some((name, values)) = values else { return (self, Vec::new()) };
        let mut problems = Vec::new();
        for key in keys {
            if !key.is_empty() && values.find_ref(key).is_some() {
                self.enforced.push(key.split('.').map(str::to_owned).collect());
            } else {
                let problem = format!("{name} is to enforce it, but does not set it");
                problems.push(ConfigError::new(ConfigErrorKind::UnknownKey, format!("{key:?}"), problem));
            }
        }
        self.merged = OnceLock::new();
        (self, problems)
    }

    /// Whether a key is enforced, or is below a table that is.
    pub fn is_enforced(&self, key: &str) -> bool {
        let key: Vec<&str> = key.split('.').collect();
        self.enforced
            .iter()
            .any(|enforced| key.len() >= enforced.len() && enforced.iter().zip(&key).all(|(a, b)| a == b))
    }

    /// What a user has set that counts for nothing, because the site enforces something else, a line each.
    pub fn overruled(&self) -> Vec<String> {
        let overruled = &self.merged().overruled;
        let site = self.layers.iter().find(|layer| layer.origin.rank == Rank::Site);
        let site = site.map(|layer| layer.origin.name.as_str()).unwrap_or_default();
        let line = |(key, origin): &(Vec<String>, String)| {
            format!("{}: {site} enforces what it says, so {origin} counts for nothing", key.join("."))
        };
        let mut lines: Vec<String> = overruled.iter().map(line).collect();
        lines.dedup();
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn settings() -> (Settings, Vec<ConfigError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        fs::write(&path, "[a]\nb = 1\nc = 2\n[a.d]\ne = true\n[sinks.s]\nenabled = true\n").unwrap();
        let site = ConfigFile::of_site(&path);
        assert!(site.problem().is_none(), "{:?}", site.problem());
        let keys = ["a.b", "a.d", "sinks.s", "a.nothing", ""].map(str::to_owned);
        Settings::new().site_file(site).enforce(&keys)
    }

    #[test]
    fn what_is_enforced_counts_and_the_rest_is_a_default() {
        let (settings, problems) = settings();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(problems.len() == 2 && problems[0].starts_with("\"a.nothing\": "), "{problems:?}");
        assert_eq!(settings.overruled(), [""; 0]);
        let settings = settings.set("--b", "a.b", 7).set("--c", "a.c", 7).set("--e", "a.d.e", false);
        let settings = settings.set("--f", "a.d.f", "new").set("--s", "sinks.s", 1).switch("--disable", "s", false);
        assert_eq!(settings.value("a"), Some(json!({"b": 1, "c": 7, "d": {"e": true}})));
        let overruled = settings.overruled();
        let said: Vec<_> = overruled.iter().map(|line| line.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(said, ["a.b", "a.d", "a.d", "sinks.s", "sinks.s"]);
        assert_eq!(
            settings.value("sinks"),
            Some(json!({"s": {"enabled": true}})),
            "a table is what the site says of it"
        );
        assert!(settings.is_enforced("a.d.e") && settings.is_enforced("a.b") && !settings.is_enforced("a.c"));
        assert!(overruled[0].ends_with("site.toml enforces what it says, so --b counts for nothing"), "{overruled:?}");
    }
}
