//! `config check` and `config show`.

use std::fmt::Write;

use resource_tracker_core::Settings;
use resource_tracker_core::config::{ConfigError, without_secrets};
use resource_tracker_core::registry::ComponentKind;
use serde_json::{Map, Value as Json};

use super::standard_output::print;
use crate::cli::Cli;
use crate::plan::Plan;
use crate::settings::{ConfigFiles, config_files, settings, settings_with, tables_and_files, without_effect};
use crate::tables::{JobTable, PluginsTable, TrackerTable};
use crate::tools::ConfigAction;

pub(crate) fn config(cli: &Cli, action: &ConfigAction) -> anyhow::Result<i32> {
    match action {
        ConfigAction::Check => check(cli),
        ConfigAction::Show => show(cli),
    }
}

fn check(cli: &Cli) -> anyhow::Result<i32> {
    let files = config_files(cli);
    let problems = problems(cli, &files);
    if problems.is_empty() {
        let ConfigFiles { site, user } = &files;
        let what = if user.is_missing() { "does not exist; defaults are used" } else { "is good" };
        let site = if site.is_missing() { String::new() } else { format!("{} is good\n", site.name()) };
        return print(format!("{site}{} {what}\n", user.name()).as_bytes());
    }
    print((problems.join("\n") + "\n").as_bytes())?;
    Ok(1)
}

/// Everything that is wrong. The error that a run would end with comes last, if it is not among them.
fn problems(cli: &Cli, files: &ConfigFiles) -> Vec<String> {
    let settings = settings_with(cli, files);
    // Without the plugins, their components are unknown; if they cannot be loaded, that is reported below.
    let registry = settings.as_ref().map(|settings| settings.registry().clone()).unwrap_or_default();
    let texts = |errors: Vec<ConfigError>| errors.iter().map(ConfigError::to_string).collect::<Vec<_>>();
    let mut problems = texts(tables_and_files(registry, files).check());
    let (refused, more) = match settings {
        Ok(settings) => {
            let more = texts(settings.check()).into_iter().chain(without_effect(&settings)).collect();
            (Plan::new(&settings).err(), more)
        }
        Err(error) => (Some(error), Vec::new()),
    };
    for problem in more.into_iter().chain(refused.map(|error| format!("{error:#}"))) {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

/// The merged configuration as TOML, with the origin of each value as a comment.
fn show(cli: &Cli) -> anyhow::Result<i32> {
    let settings = settings(cli, &config_files(cli))?;
    let mut text = String::new();
    let defaults = |value: serde_json::Result<Json>| match value {
        Ok(Json::Object(values)) => values,
        _ => Map::new(),
    };
    for (name, defaults) in [
        ("job", defaults(serde_json::to_value(JobTable::default()))),
        ("plugins", defaults(serde_json::to_value(PluginsTable::default()))),
        ("tracker", defaults(serde_json::to_value(TrackerTable::default()))),
    ] {
        let mut values = defaults;
        values.extend(settings.table(name).unwrap_or_default());
        table(&mut text, &settings, name, None, &values)?;
    }
    for kind in [ComponentKind::Source, ComponentKind::Sink] {
        for component in settings.components(kind)? {
            let name = format!("{}.{}", kind.table(), component.name);
            let mut values = component.values();
            let type_name = component.component_type.name;
            if type_name != component.name {
                values.insert("type".into(), type_name.into());
            }
            let state = (component.state.on, component.state.why.as_str());
            table(&mut text, &settings, &name, Some(state), &values)?;
        }
    }
    print(text.as_bytes())
}

fn table(
    text: &mut String,
    settings: &Settings,
    name: &str,
    state: Option<(bool, &str)>,
    values: &Map<String, Json>,
) -> std::fmt::Result {
    writeln!(text, "[{name}]")?;
    let mut line = |assignment: String, origin: &str| writeln!(text, "{assignment:<40} # {origin}");
    if let Some((on, why)) = state {
        line(format!("enabled = {on}"), why)?;
    }
    for (key, value) in values {
        let path = format!("{name}.{key}");
        let origin = settings.origin(&path);
        let origin = origin.as_deref().unwrap_or("default");
        match &without_secrets(key, value) {
            Json::Null => line(format!("# {key} is not set"), origin)?,
            Json::Object(members) => {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("{} = {value}", toml_key(key))).collect();
                line(format!("{key} = {{ {} }}", members.join(", ")), origin)?;
            }
            value => line(format!("{key} = {value}"), origin)?,
        }
    }
    text.push('\n');
    Ok(())
}

fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { Json::from(key).to_string() }
}
