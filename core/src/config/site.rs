//! The file of a site: what everybody on a machine gets, and what of it nobody can change.

use figment::value::Value;

use super::error::{ConfigError, ConfigErrorKind};
use super::file::ConfigFile;
use super::layers::{Set, at};
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

    /// Makes what the site's file says of these keys and tables, such as `sinks.archive`, count whatever else is set.
    ///
    /// Returns the problems beside: keys of which the file says nothing.
    pub fn enforce(mut self, keys: &[String]) -> (Self, Vec<ConfigError>) {
        let site = self.layers.iter().find(|layer| layer.origin.rank == Rank::Site);
        let Some((name, Set::Values(values))) = site.map(|layer| (layer.origin.name.clone(), layer.what.clone()))
        else {
            return (self, Vec::new());
        };
        let mut problems = Vec::new();
        for key in keys {
            let parts: Vec<String> = key.split('.').map(str::to_owned).collect();
            match Value::from(values.clone()).find_ref(key) {
                Some(value) => self.push(Origin::enforced(&name), Set::Values(at(&parts, value.clone()))),
                None => {
                    let problem = format!("{name} is to enforce it, but does not set it");
                    problems.push(ConfigError::new(ConfigErrorKind::UnknownKey, key, problem));
                }
            }
        }
        (self, problems)
    }

    /// What a user has set that counts for nothing, because the site enforces something else, a line each.
    pub fn overruled(&self) -> Vec<String> {
        let enforced = self.layers.iter().filter(|layer| layer.origin.rank == Rank::Enforced);
        let keys: Vec<(Vec<String>, &Value, &str)> = enforced
            .filter_map(|layer| match &layer.what {
                Set::Values(values) => Some((values, layer.origin.name.as_str())),
                _ => None,
            })
            .flat_map(|(values, site)| {
                values.iter().flat_map(move |(key, value)| leaves(vec![key.clone()], value, site))
            })
            .collect();
        let mut overruled = Vec::new();
        for layer in &self.layers {
            if ![Rank::File, Rank::Environment, Rank::CommandLine].contains(&layer.origin.rank) {
                continue;
            }
            for (key, value, site) in &keys {
                let is_set = match &layer.what {
                    Set::Switch { name, on } => {
                        let is_switch = key.last().is_some_and(|last| last == "enabled") && key.len() == 3;
                        is_switch && key[1] == *name && value.to_bool() != Some(*on)
                    }
                    what => what.sets(key),
                };
                if is_set {
                    let (key, origin) = (key.join("."), &layer.origin.name);
                    overruled.push(format!("{key}: {site} enforces what it says, so {origin} counts for nothing"));
                }
            }
        }
        overruled
    }
}

/// The keys below a value, with the values.
fn leaves<'a>(key: Vec<String>, value: &'a Value, site: &'a str) -> Vec<(Vec<String>, &'a Value, &'a str)> {
    match value.as_dict() {
        Some(members) => {
            let deeper =
                |(name, value)| leaves(key.iter().cloned().chain([String::clone(name)]).collect(), value, site);
            members.iter().flat_map(deeper).collect()
        }
        None => vec![(key, value, site)],
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
        let keys = ["a.b", "a.d", "sinks.s", "a.nothing"].map(str::to_owned);
        Settings::new().site_file(site).enforce(&keys)
    }

    #[test]
    fn what_is_enforced_counts_and_the_rest_is_a_default() {
        let (settings, problems) = settings();
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(problems.len() == 1 && problems[0].starts_with("a.nothing: "), "{problems:?}");
        assert_eq!(settings.overruled(), [""; 0]);
        let settings = settings.set("--b", "a.b", 7).set("--c", "a.c", 7).set("--e", "a.d.e", false);
        let settings = settings.switch("--disable", "s", false);
        assert_eq!(settings.value("a"), Some(json!({"b": 1, "c": 7, "d": {"e": true}})));
        let overruled = settings.overruled();
        let said: Vec<_> = overruled.iter().map(|line| line.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(said, ["a.b", "a.d.e", "sinks.s.enabled"]);
        assert!(overruled[0].ends_with("site.toml enforces what it says, so --b counts for nothing"), "{overruled:?}");
    }
}
