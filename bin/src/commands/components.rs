//! `components`: every source and sink, whether it is on and why, and its keys.

use std::fmt::Write;
use std::path::Path;

use resource_tracker_core::config::{Component, without_secrets};
use resource_tracker_core::registry::ComponentKind;

use super::standard_output::print;
use crate::cli::Cli;
use crate::settings::{config_files, settings};

pub(crate) fn components(cli: &Cli) -> anyhow::Result<i32> {
    let settings = settings(cli, &config_files(cli))?;
    let mut text = String::new();
    for kind in [ComponentKind::Source, ComponentKind::Sink] {
        for component in settings.components(kind)? {
            describe(&mut text, kind, &component)?;
        }
    }
    for derivation in settings.registry().derivations() {
        writeln!(text, "{:<12} derivation  on, {}", derivation.name(), from(derivation.plugin()))?;
        writeln!(text, "    {}", derivation.description())?;
    }
    print(text.as_bytes())
}

fn from(plugin: Option<&Path>) -> String {
    plugin.map_or("built in".to_owned(), |file| format!("from {}", file.display()))
}

fn describe(text: &mut String, kind: ComponentKind, component: &Component) -> std::fmt::Result {
    let on = if component.state.on { "on" } else { "off" };
    let component_type = component.component_type;
    let of_type = match component.name == component_type.name {
        true => String::new(),
        false => format!(", of type {}", component_type.name),
    };
    let from = from(component_type.plugin());
    writeln!(text, "{:<12} {:<7} {on} ({}), {from}{of_type}", component.name, kind.noun(), component.state.why)?;
    writeln!(text, "    {}", component_type.description)?;
    let schema = component_type.schema();
    for (key, value) in component.values() {
        let description = schema["properties"][&key]["description"].as_str().unwrap_or_default();
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        let value = if value.is_null() { "(not set)".to_owned() } else { without_secrets(&key, &value).to_string() };
        writeln!(text, "    {:<32} {description}", format!("{key} = {value}"))?;
    }
    Ok(())
}
