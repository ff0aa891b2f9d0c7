//! What is linked in and what was loaded, by name.

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value as Json;

use crate::derivation::DerivationEntry;
use crate::plugin::{self, Isolation, Plugin, PluginSection, SinkType, SourceType};
use crate::sample::SectionEntry;
use crate::sink::SinkEntry;
use crate::source::SourceEntry;

/// The components that there are: those that are linked in, and those of the plugins that were loaded into it.
#[derive(Clone, Default)]
pub struct Registry {
    plugins: Vec<&'static Plugin>,
}

/// Whether a component reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Source,
    /// It writes.
    Sink,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Kind::Source, Kind::Sink];

    /// The table of the configuration that holds such components.
    pub fn table(self) -> &'static str {
        match self {
            Kind::Source => "sources",
            Kind::Sink => "sinks",
        }
    }

    /// What one such component is called.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::Sink => "sink",
        }
    }
}

/// What is known of a type of component.
#[derive(Clone, Copy)]
pub struct ComponentType {
    /// Whether it reads or writes.
    pub kind: Kind,
    /// Its name, unique among all components.
    pub name: &'static str,
    /// What it does, in one line.
    pub description: &'static str,
    /// Whether it is on unless the user turns it off.
    pub on_by_default: bool,
    pub(crate) origin: Origin,
}

/// Where a type of component is from.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    Linked { schema: fn(&mut SchemaGenerator) -> Schema, defaults: fn() -> serde_json::Result<Json> },
    PluginSource(&'static SourceType),
    PluginSink(&'static SinkType),
}

impl ComponentType {
    /// The JSON Schema of its configuration, with nothing left to look up elsewhere.
    pub fn schema(&self) -> Json {
        match self.origin {
            Origin::Linked { schema, .. } => schema(&mut inline_generator()).to_value(),
            Origin::PluginSource(source) => source.info.component.schema.clone(),
            Origin::PluginSink(sink) => sink.info.component.schema.clone(),
        }
    }

    /// Its configuration when the user says nothing: a JSON object.
    pub fn defaults(&self) -> Json {
        match self.origin {
            Origin::Linked { defaults, .. } => defaults().unwrap_or_default(),
            Origin::PluginSource(source) => source.info.component.defaults.clone(),
            Origin::PluginSink(sink) => sink.info.component.defaults.clone(),
        }
    }

    /// The plugin that it is from; `None` for one that is linked in.
    pub fn plugin(&self) -> Option<&'static Path> {
        match self.origin {
            Origin::Linked { .. } => None,
            Origin::PluginSource(source) => Some(&source.file),
            Origin::PluginSink(sink) => Some(&sink.file),
        }
    }
}

/// A type of section: a key of a sample.
pub(crate) enum SectionType {
    Linked(&'static SectionEntry),
    Plugin(&'static PluginSection),
}

impl SectionType {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            SectionType::Linked(entry) => entry.name,
            SectionType::Plugin(section) => section.name,
        }
    }
}

impl Registry {
    /// What is linked in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads a plugin and adds its components. It stays loaded until the process ends.
    ///
    /// # Errors
    /// Names the file and what is wrong with it: it is no plugin, is one for another version of the interface, or has a
    /// component whose name is taken.
    pub fn load(&mut self, file: &Path, isolation: Isolation) -> anyhow::Result<()> {
        let plugin = plugin::load(file, isolation).with_context(|| format!("plugin {}", file.display()))?;
        let names = plugin.sources.iter().map(|source| &source.info.component.name);
        let names: Vec<&String> = names.chain(plugin.sinks.iter().map(|sink| &sink.info.component.name)).collect();
        for (index, name) in names.iter().enumerate() {
            let taken = Kind::ALL.into_iter().flat_map(|kind| self.of(kind)).find(|known| known.name == name.as_str());
            let who = match taken {
                Some(known) => known.plugin().map_or("the built-in ones".to_owned(), |file| file.display().to_string()),
                None if names[..index].contains(name) => "itself".to_owned(),
                None => continue,
            };
            bail!("plugin {}: its component {name} has the name of one of {who}", file.display());
        }
        self.plugins.push(plugin);
        Ok(())
    }

    /// Name and version of each plugin.
    pub fn plugins(&self) -> impl Iterator<Item = (&str, &str)> {
        self.plugins.iter().map(|plugin| (plugin.name.as_str(), plugin.version.as_str()))
    }

    /// All sources, in the order in which they are read.
    pub fn sources(&self) -> Vec<ComponentType> {
        let linked = inventory::iter::<SourceEntry>().map(|entry| {
            let origin = Origin::Linked { schema: entry.schema, defaults: entry.defaults };
            let (name, description, on_by_default) = (entry.name, entry.description, entry.on_by_default);
            (entry.order, ComponentType { kind: Kind::Source, name, description, on_by_default, origin })
        });
        let loaded = self.plugins.iter().flat_map(|plugin| &plugin.sources).map(|source| {
            let (about, on_by_default) = (&source.info.component, source.info.on_by_default);
            let origin = Origin::PluginSource(source);
            let (name, description) = (about.name.as_str(), about.description.as_str());
            (source.info.order, ComponentType { kind: Kind::Source, name, description, on_by_default, origin })
        });
        let entries = sorted_by_key(linked.chain(loaded), |(order, source)| (*order, source.name));
        entries.into_iter().map(|(_, source)| source).collect()
    }

    /// All sinks, by name.
    pub fn sinks(&self) -> Vec<ComponentType> {
        let linked = inventory::iter::<SinkEntry>().map(|entry| {
            let origin = Origin::Linked { schema: entry.schema, defaults: entry.defaults };
            let (name, description) = (entry.name, entry.description);
            ComponentType { kind: Kind::Sink, name, description, on_by_default: false, origin }
        });
        let loaded = self.plugins.iter().flat_map(|plugin| &plugin.sinks).map(|sink| {
            let (about, origin) = (&sink.info.component, Origin::PluginSink(sink));
            let (name, description) = (about.name.as_str(), about.description.as_str());
            ComponentType { kind: Kind::Sink, name, description, on_by_default: false, origin }
        });
        sorted_by_key(linked.chain(loaded), |sink| sink.name)
    }

    /// All derivations that are linked in, by name.
    pub fn derivations(&self) -> Vec<&'static DerivationEntry> {
        sorted_by_key(inventory::iter::<DerivationEntry>(), |entry| entry.name)
    }

    /// All components of a kind.
    pub fn of(&self, kind: Kind) -> Vec<ComponentType> {
        match kind {
            Kind::Source => self.sources(),
            Kind::Sink => self.sinks(),
        }
    }

    /// All section types, by name.
    pub(crate) fn sections(&self) -> Vec<SectionType> {
        let linked = linked_sections().into_iter().map(SectionType::Linked);
        let loaded = self.plugins.iter().flat_map(|plugin| plugin.sections);
        let loaded = loaded.map(SectionType::Plugin);
        sorted_by_key(linked.chain(loaded), SectionType::name)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plugins()).finish()
    }
}

/// The section types that are linked in, by name.
pub(crate) fn linked_sections() -> Vec<&'static SectionEntry> {
    sorted_by_key(inventory::iter::<SectionEntry>(), |entry| (entry.name, (entry.type_name)()))
}

/// A list of the entries; equal ones stay in the order in which they came.
fn sorted_by_key<T, K: Ord>(entries: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut sorted: Vec<T> = entries.into_iter().collect();
    sorted.sort_by_key(key);
    sorted
}

/// Makes schemas with nothing left to look up elsewhere.
pub(crate) fn inline_generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator()
}

/// The name among `names` that `wrong` was most likely meant to be.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    let near = scored.filter(|(score, _)| *score > 0.75);
    near.min_by_key(|(score, _)| Reverse((score * 1000.0) as u64)).map(|(_, name)| name)
}
