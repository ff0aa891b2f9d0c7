//! `schema`: what a sample holds, for programs and for people.

use std::fmt::Write;

use resource_tracker_core::sample_schema;
use serde_json::Value as Json;

use super::standard_output::print;
use crate::cli::Cli;
use crate::settings::{config_files, settings};

pub(crate) fn schema(cli: &Cli, markdown: bool) -> anyhow::Result<i32> {
    let schema = sample_schema(crate::PROGRAM, settings(cli, &config_files(cli))?.registry());
    let mut text = String::new();
    if markdown {
        write_markdown(&mut text, &schema)?;
    } else {
        writeln!(text, "{schema:#}")?;
    }
    print(text.as_bytes())
}

/// A table for the sample and one for each section. The tables are what the docs show.
fn write_markdown(text: &mut String, schema: &Json) -> std::fmt::Result {
    let members: Vec<(&String, &Json)> = schema["properties"].as_object().into_iter().flatten().collect();
    let is_section = |member: &Json| member.get("$ref").is_some() || member.get("allOf").is_some();
    text.push_str("## The sample\n\n");
    heading(text);
    for (name, member) in members.iter().filter(|(_, member)| !is_section(member)) {
        row(text, schema, name, member)?;
    }
    for (name, member) in members.iter().filter(|(_, member)| is_section(member)) {
        writeln!(text, "\n## `{name}`\n")?;
        for part in member["allOf"].as_array().map_or_else(|| vec![*member], |parts| parts.iter().collect()) {
            write_type(text, schema, resolve(schema, part), "")?;
        }
    }
    Ok(())
}

/// The table of an object type, and after it those of the objects inside it.
fn write_type(text: &mut String, schema: &Json, definition: &Json, prefix: &str) -> std::fmt::Result {
    if let Some(description) = definition["description"].as_str() {
        writeln!(text, "{}\n", one_line(description))?;
    }
    if definition["type"] == "array" {
        return write_type(text, schema, resolve(schema, &definition["items"]), &format!("{prefix}[]."));
    }
    heading(text);
    let mut inner = Vec::new();
    for (name, member) in definition["properties"].as_object().into_iter().flatten() {
        let prefixed = format!("{prefix}{name}");
        row(text, schema, &prefixed, member)?;
        let target = referenced(schema, member);
        if target["type"] == "object" && target.get("properties").is_some() {
            let suffix = if member["type"] == "array" { "[]." } else { "." };
            inner.push((format!("{prefixed}{suffix}"), target));
        }
    }
    text.push('\n');
    for (prefix, definition) in inner {
        write_type(text, schema, definition, &prefix)?;
    }
    Ok(())
}

fn heading(text: &mut String) {
    text.push_str("| field | type | unit | kind | what it is |\n| --- | --- | --- | --- | --- |\n");
}

fn row(text: &mut String, schema: &Json, name: &str, member: &Json) -> std::fmt::Result {
    let of = |key: &str| member[key].as_str().unwrap_or_default();
    let description = one_line(of("description")).replace('|', "\\|");
    let choices = choices(referenced(schema, member));
    let end = if choices.is_empty() || description.ends_with('.') { "" } else { "." };
    writeln!(
        text,
        "| `{name}` | {} | {} | {} | {description}{end}{choices} |",
        kind(schema, member),
        of("unit"),
        of("kind")
    )
}

/// What each value of a choice means.
fn choices(definition: &Json) -> String {
    let options = definition["oneOf"].as_array().into_iter().flatten();
    let describe = |option: &Json| {
        let (value, description) = (option["const"].as_str()?, option["description"].as_str().unwrap_or_default());
        Some(format!(" `{value}`: {}", one_line(description)))
    };
    options.filter_map(describe).collect()
}

fn kind(schema: &Json, member: &Json) -> String {
    match &member["type"] {
        Json::String(name) if name == "array" => "list".into(),
        Json::String(name) => name.clone(),
        Json::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Json::as_str).collect();
            names.join(" or ")
        }
        _ => {
            let is_object = referenced(schema, member)["type"] == "object";
            let name = if is_object { "object" } else { "string" };
            if member.get("anyOf").is_some() { format!("{name} or null") } else { name.into() }
        }
    }
}

/// What a reference points to.
fn resolve<'a>(schema: &'a Json, part: &'a Json) -> &'a Json {
    let name = part["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/"));
    name.map_or(part, |name| &schema["$defs"][name])
}

/// What a member refers to, directly, as a list's items, or unless it is null.
fn referenced<'a>(schema: &'a Json, member: &'a Json) -> &'a Json {
    let inner = if member["type"] == "array" { &member["items"] } else { member };
    match inner["anyOf"].as_array().and_then(|options| options.first()) {
        Some(option) => resolve(schema, option),
        None => resolve(schema, inner),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
