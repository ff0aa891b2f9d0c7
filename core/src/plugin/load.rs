//! Loads a plugin, and checks what it says of itself.

use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use libloading::Library;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::abi::{
    DerivationTable, Entry, PluginTable, RT_ABI_MAJOR, RT_ABI_MINOR, RT_SOURCE_ON_BY_DEFAULT, SinkTable, SourceTable,
    Text,
};
use super::layout::LEAST_SIZES;
use super::prefix::{SizePrefixed, known_part, size_of_table};
use super::sections::PluginSection;
use super::types::{
    ComponentInfo, DerivationInfo, DerivationType, Hosting, SinkInfo, SinkType, SourceInfo, SourceType,
};
use crate::trust::TrustedFile;

/// More components or sections than this is no plugin but noise.
const MOST: usize = 256;

/// A plugin that is loaded. It is never unloaded.
pub(crate) struct Plugin {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) sources: Vec<&'static SourceType>,
    pub(crate) sinks: Vec<&'static SinkType>,
    pub(crate) derivations: Vec<&'static DerivationType>,
    pub(crate) sections: &'static [PluginSection],
}

/// What a plugin says of itself, copied out of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) sections: serde_json::Map<String, Json>,
    pub(super) sources: Vec<SourceInfo>,
    pub(super) sinks: Vec<SinkInfo>,
    pub(super) derivations: Vec<DerivationInfo>,
}

/// A description, and the tables that it describes.
pub(super) struct Loaded {
    pub(super) description: Description,
    pub(super) sources: Vec<Hosting<SourceTable>>,
    pub(super) sinks: Vec<Hosting<SinkTable>>,
    pub(super) derivations: Vec<Hosting<DerivationTable>>,
}

/// Keeps a plugin until the process ends.
pub(super) fn keep(file: &Path, loaded: Loaded) -> &'static Plugin {
    let Description { name, version, sections, sources, sinks, derivations } = loaded.description;
    let sections = sections.into_iter().map(|(name, schema)| PluginSection::new(name, schema));
    let sections: &'static [PluginSection] = sections.collect::<Vec<_>>().leak();
    let source = |(info, hosting)| {
        let source = SourceType { info, file: file.to_owned(), sections, hosting };
        &*Box::leak(Box::new(source))
    };
    let sink = |(info, hosting)| &*Box::leak(Box::new(SinkType { info, file: file.to_owned(), hosting }));
    let derivation = |(info, hosting)| {
        let derivation = DerivationType { info, file: file.to_owned(), sections, hosting };
        &*Box::leak(Box::new(derivation))
    };
    let plugin = Plugin {
        name,
        version,
        sources: sources.into_iter().zip(loaded.sources).map(source).collect(),
        sinks: sinks.into_iter().zip(loaded.sinks).map(sink).collect(),
        derivations: derivations.into_iter().zip(loaded.derivations).map(derivation).collect(),
        sections,
    };
    Box::leak(Box::new(plugin))
}

/// Loads the library into this process.
pub(super) fn open(file: &Path) -> anyhow::Result<Loaded> {
    let TrustedFile { folder, name } = TrustedFile::open(file)?;
    // The path leads through the folder's descriptor, in which the name is still that of the file that was checked.
    // Through the file's own descriptor, `$ORIGIN` would mean `/proc/self/fd`, and libraries beside the plugin would
    // not be found.
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    // SAFETY: the user named the file; its initialisers are code that is to run.
    let library = unsafe { Library::new(&path) }.map_err(|error| reason(&error, &path))?;
    // SAFETY: a symbol of this name is of this type, by the contract.
    let entry: Result<libloading::Symbol<'_, Entry>, _> = unsafe { library.get(b"resource_tracker_plugin\0") };
    let Ok(entry) = entry.map(|symbol| *symbol) else {
        bail!("is no plugin: it has no symbol resource_tracker_plugin");
    };
    // Never unloaded: it may have threads, and its tables and functions are used until the end.
    std::mem::forget(library);
    // Nor is the descriptor closed: the linker takes a further library of the same name for this one.
    std::mem::forget(folder);
    // SAFETY: the contract, which a symbol of that name says it keeps to.
    unsafe { inspect(entry) }
}

/// Checks what a plugin says of itself.
///
/// # Safety
/// `entry` is that of a plugin, and stays.
pub(super) unsafe fn inspect(entry: Entry) -> anyhow::Result<Loaded> {
    // SAFETY: the caller's promise.
    let table = unsafe { entry(u32::from(RT_ABI_MAJOR) << 16 | u32::from(RT_ABI_MINOR)) };
    ensure!(!table.is_null(), "does not work with version {RT_ABI_MAJOR}.{RT_ABI_MINOR} of the plugin interface");
    // SAFETY: the contract: a table that stays, of the size that it begins with.
    let table = unsafe { read::<PluginTable>(table, LEAST_SIZES.plugin, "its description") }?;
    ensure!(
        table.abi_major == RT_ABI_MAJOR,
        "was built for version {}.{} of the plugin interface, and this is {RT_ABI_MAJOR}.{RT_ABI_MINOR}",
        table.abi_major,
        table.abi_minor
    );
    ensure!(
        table.abi_minor_needed <= RT_ABI_MINOR.into(),
        "needs version {RT_ABI_MAJOR}.{} of the plugin interface, and this is {RT_ABI_MAJOR}.{RT_ABI_MINOR}",
        table.abi_minor_needed
    );
    // SAFETY: the contract: lists of pointers to tables that stay.
    let (sources, sinks, derivations) = unsafe {
        (
            tables(table.sources, table.source_count, LEAST_SIZES.source, "a source")?,
            tables(table.sinks, table.sink_count, LEAST_SIZES.sink, "a sink")?,
            tables(table.derivations, table.derivation_count, LEAST_SIZES.derivation, "a derivation")?,
        )
    };
    let of_source = |(table, _): &(SourceTable, _)| source_info(table);
    let of_sink = |(table, _): &(SinkTable, _)| sink_info(table);
    let of_derivation = |(table, _): &(DerivationTable, _)| derivation_info(table);
    let sections = match json("its sections", table.sections)? {
        Json::Object(sections) => sections,
        Json::Null => serde_json::Map::new(),
        _ => bail!("says of its sections what is no JSON object"),
    };
    ensure!(sections.len() <= MOST, "says that it has {} sections", sections.len());
    Ok(Loaded {
        description: Description {
            name: text("its name", table.name)?,
            version: text("its version", table.version)?,
            sections,
            sources: sources.iter().map(of_source).collect::<anyhow::Result<_>>()?,
            sinks: sinks.iter().map(of_sink).collect::<anyhow::Result<_>>()?,
            derivations: derivations.iter().map(of_derivation).collect::<anyhow::Result<_>>()?,
        },
        sources: in_process(sources),
        sinks: in_process(sinks),
        derivations: in_process(derivations),
    })
}

fn in_process<T>(tables: Vec<(T, *const T)>) -> Vec<Hosting<T>> {
    tables.into_iter().map(|(table, original)| Hosting::InProcess { table, original }).collect()
}

/// The message of `dlopen`, without the file's name, which is in the message anyway.
fn reason(error: &libloading::Error, path: &Path) -> anyhow::Error {
    let text = error.to_string();
    let text = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
    anyhow::anyhow!("cannot be loaded: {text}")
}

/// Copies a table of the plugin, of which `minimal` bytes must be there.
///
/// # Safety
/// `table` points to a struct that begins with its size, or is null.
unsafe fn read<T: SizePrefixed>(table: *const T, minimal: usize, what: &str) -> anyhow::Result<T> {
    ensure!(!table.is_null() && table.is_aligned(), "has {what} nowhere");
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_table(table) };
    ensure!((minimal..=1 << 16).contains(&size), "has {what} of {size} bytes, where {minimal} are the least");
    // SAFETY: the caller's promise.
    Ok(unsafe { known_part(table) })
}

/// # Safety
/// `list` points to `count` pointers, each to a struct that begins with its size.
unsafe fn tables<T: SizePrefixed>(
    list: *const *const T,
    count: usize,
    minimal: usize,
    what: &str,
) -> anyhow::Result<Vec<(T, *const T)>> {
    ensure!(count <= MOST && (count == 0 || !list.is_null()), "says that it has {count} times {what}");
    // SAFETY: the caller's promise.
    (0..count)
        .map(|index| unsafe {
            let table = *list.add(index);
            Ok((read(table, minimal, what)?, table))
        })
        .collect()
}

fn source_info(table: &SourceTable) -> anyhow::Result<SourceInfo> {
    let component = component_info(table.name, table.description, table.default_config, table.config_schema)?;
    ensure!(table.open.is_some() && table.collect.is_some(), "source {} has no open or collect", component.name);
    Ok(SourceInfo {
        component,
        on_by_default: table.flags & RT_SOURCE_ON_BY_DEFAULT != 0,
        order: table.order,
        cadence_ns: table.cadence_ns,
    })
}

fn sink_info(table: &SinkTable) -> anyhow::Result<SinkInfo> {
    let component = component_info(table.name, table.description, table.default_config, table.config_schema)?;
    ensure!(table.open.is_some() && table.write.is_some(), "sink {} has no open or write", component.name);
    Ok(SinkInfo { component, patience_ns: table.patience_ns })
}

fn derivation_info(table: &DerivationTable) -> anyhow::Result<DerivationInfo> {
    let info = DerivationInfo { name: name_of(table.name)?, description: line_of(table.description)? };
    ensure!(table.open.is_some() && table.derive.is_some(), "derivation {} has no open or derive", info.name);
    Ok(info)
}

fn name_of(name: Text) -> anyhow::Result<String> {
    let name = text("the name of a component", name)?;
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    ensure!(
        !name.is_empty() && name.len() <= 64 && name.chars().all(is_allowed),
        "calls a component {name:?}; lower case letters, digits, - and _ are allowed"
    );
    Ok(name)
}

fn line_of(description: Text) -> anyhow::Result<String> {
    Ok(text("a description", description)?.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn component_info(name: Text, description: Text, defaults: Text, schema: Text) -> anyhow::Result<ComponentInfo> {
    let (name, description) = (name_of(name)?, line_of(description)?);
    let defaults = match json("a default configuration", defaults)? {
        Json::Null => Json::Object(serde_json::Map::new()),
        defaults @ Json::Object(_) => defaults,
        _ => bail!("has a default configuration for {name} that is no JSON object"),
    };
    Ok(ComponentInfo { name, description, defaults, schema: json("a schema", schema)? })
}

fn text(what: &str, text: Text) -> anyhow::Result<String> {
    // SAFETY: the contract: texts of tables are there until the process ends.
    match unsafe { text.as_str() } {
        Ok(text) => Ok(text.to_owned()),
        Err(problem) => bail!("has as {what} {problem}"),
    }
}

fn json(what: &str, value: Text) -> anyhow::Result<Json> {
    match text(what, value)?.as_str() {
        "" => Ok(Json::Null),
        text => serde_json::from_str(text).with_context(|| format!("has as {what} what is no JSON")),
    }
}
