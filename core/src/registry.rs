//! What is linked in and what was loaded, by name.

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value as Json;

use crate::build_error::BuildError;
use crate::derivation::{Derivation, DerivationEntry};
use crate::plugin::{self, DerivationType, Isolation, Plugin, PluginSection, SinkType, SourceType};
use crate::sample::SectionEntry;
use crate::sink_entry::SinkEntry;
use crate::source::{Host, SourceEntry};

/// The components that there are: those that are linked in, and those of the plugins that were loaded into it.
#[derive(Clone, Default)]
pub struct Registry {
    plugins: Vec<&'static Plugin>,
}

/// Whether a component reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComponentKind {
    /// It reads.
    Source,
    /// It writes.
    Sink,
}

impl ComponentKind {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        [ComponentKind::Source, ComponentKind::Sink].into_iter()
    }

    /// The table of the configuration that holds such components.
    pub fn table(self) -> &'static str {
        match self {
            ComponentKind::Source => "sources",
            ComponentKind::Sink => "sinks",
        }
    }

    /// What one such component is called.
    pub fn noun(self) -> &'static str {
        match self {
            ComponentKind::Source => "source",
            ComponentKind::Sink => "sink",
        }
    }
}

/// What is known of a type of component.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ComponentType {
    /// Whether it reads or writes.
    pub kind: ComponentKind,
    /// Its name, unique among all components.
    pub name: &'static str,
    /// What it does, in one line.
    pub description: &'static str,
    /// Whether it is on unless the user turns it off.
    pub on_by_default: bool,
    pub(crate) implementation: Implementation,
}

/// What stands behind a type of component.
#[derive(Clone, Copy)]
pub(crate) enum Implementation {
    Linked { schema: fn(&mut SchemaGenerator) -> Schema, defaults: fn() -> serde_json::Result<Json> },
    PluginSource(&'static SourceType),
    PluginSink(&'static SinkType),
}

impl ComponentType {
    /// The JSON Schema of its configuration, with nothing left to look up elsewhere.
    pub fn schema(&self) -> Json {
        match self.implementation {
            Implementation::Linked { schema, .. } => schema(&mut inline_generator()).to_value(),
            Implementation::PluginSource(source) => source.info.component.schema.clone(),
            Implementation::PluginSink(sink) => sink.info.component.schema.clone(),
        }
    }

    /// Its configuration when the user says nothing: a JSON object.
    pub fn defaults(&self) -> Json {
        match self.implementation {
            Implementation::Linked { defaults, .. } => defaults().unwrap_or_default(),
            Implementation::PluginSource(source) => source.info.component.defaults.clone(),
            Implementation::PluginSink(sink) => sink.info.component.defaults.clone(),
        }
    }

    /// The plugin that it is from; `None` for one that is linked in.
    pub fn plugin(&self) -> Option<&'static Path> {
        match self.implementation {
            Implementation::Linked { .. } => None,
            Implementation::PluginSource(source) => Some(&source.file),
            Implementation::PluginSink(sink) => Some(&sink.file),
        }
    }
}

/// A derivation that there is.
#[derive(Clone, Copy)]
pub struct KnownDerivation(DerivationOrigin);

#[derive(Clone, Copy)]
enum DerivationOrigin {
    Linked(&'static DerivationEntry),
    Plugin(&'static DerivationType),
}

impl KnownDerivation {
    /// What messages call it, unique among derivations.
    pub fn name(&self) -> &'static str {
        match self.0 {
            DerivationOrigin::Linked(entry) => entry.name,
            DerivationOrigin::Plugin(derivation) => &derivation.info.name,
        }
    }

    /// What it adds, in one line.
    pub fn description(&self) -> &'static str {
        match self.0 {
            DerivationOrigin::Linked(entry) => entry.description,
            DerivationOrigin::Plugin(derivation) => &derivation.info.description,
        }
    }

    /// The plugin that it is from; `None` for one that is linked in.
    pub fn plugin(&self) -> Option<&'static Path> {
        match self.0 {
            DerivationOrigin::Linked(_) => None,
            DerivationOrigin::Plugin(derivation) => Some(&derivation.file),
        }
    }

    /// Builds it for a run on this machine.
    ///
    /// # Errors
    /// When the process of a derivation in isolation cannot be made.
    pub fn build(&self, host: &Host) -> Result<Box<dyn Derivation>, BuildError> {
        match self.0 {
            DerivationOrigin::Linked(entry) => Ok(entry.build()),
            DerivationOrigin::Plugin(derivation) => derivation.build(host).map_err(|reason| BuildError::Derivation {
                file: derivation.file.clone(),
                name: derivation.info.name.clone(),
                reason: format!("{reason:#}"),
            }),
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
    /// Names the file and what is wrong with it.
    pub fn load(&mut self, file: &Path, isolation: Isolation) -> Result<(), LoadError> {
        let unusable =
            |reason: anyhow::Error| LoadError::Unusable { file: file.to_owned(), reason: format!("{reason:#}") };
        let plugin = plugin::load(file, isolation).map_err(unusable)?;
        let names = plugin.sources.iter().map(|source| &source.info.component.name);
        let names = names.chain(plugin.sinks.iter().map(|sink| &sink.info.component.name));
        let known = ComponentKind::all().flat_map(|kind| self.of(kind)).map(|known| (known.name, known.plugin()));
        let taken = name_that_is_taken(names, &known.collect::<Vec<_>>()).or_else(|| {
            let known = self.derivations().into_iter().map(|known| (known.name(), known.plugin()));
            name_that_is_taken(plugin.derivations.iter().map(|own| &own.info.name), &known.collect::<Vec<_>>())
        });
        if let Some((component, owner)) = taken {
            return Err(LoadError::NameTaken { file: file.to_owned(), component: component.to_owned(), owner });
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
            let implementation = Implementation::Linked { schema: entry.schema, defaults: entry.defaults };
            let (name, description, on_by_default) = (entry.name, entry.description, entry.on_by_default);
            (
                entry.order,
                ComponentType { kind: ComponentKind::Source, name, description, on_by_default, implementation },
            )
        });
        let loaded = self.plugins.iter().flat_map(|plugin| &plugin.sources).map(|source| {
            let (component, on_by_default) = (&source.info.component, source.info.on_by_default);
            let implementation = Implementation::PluginSource(source);
            let (name, description) = (component.name.as_str(), component.description.as_str());
            (
                source.info.order,
                ComponentType { kind: ComponentKind::Source, name, description, on_by_default, implementation },
            )
        });
        let entries = sorted_by_key(linked.chain(loaded), |(order, source)| (*order, source.name, ""));
        entries.into_iter().map(|(_, source)| source).collect()
    }

    /// All sinks, by name.
    pub fn sinks(&self) -> Vec<ComponentType> {
        let linked = inventory::iter::<SinkEntry>().map(|entry| {
            let implementation = Implementation::Linked { schema: entry.schema, defaults: entry.defaults };
            let (name, description) = (entry.name, entry.description);
            ComponentType { kind: ComponentKind::Sink, name, description, on_by_default: false, implementation }
        });
        let loaded = self.plugins.iter().flat_map(|plugin| &plugin.sinks).map(|sink| {
            let (component, implementation) = (&sink.info.component, Implementation::PluginSink(sink));
            let (name, description) = (component.name.as_str(), component.description.as_str());
            ComponentType { kind: ComponentKind::Sink, name, description, on_by_default: false, implementation }
        });
        sorted_by_key(linked.chain(loaded), |sink| (0, sink.name, ""))
    }

    /// All derivations, by name.
    pub fn derivations(&self) -> Vec<KnownDerivation> {
        let linked = inventory::iter::<DerivationEntry>().map(DerivationOrigin::Linked);
        let loaded = self.plugins.iter().flat_map(|plugin| &plugin.derivations);
        let loaded = loaded.map(|derivation| DerivationOrigin::Plugin(derivation));
        sorted_by_key(linked.chain(loaded).map(KnownDerivation), |derivation| (0, derivation.name(), ""))
    }

    /// All components of a kind.
    pub fn of(&self, kind: ComponentKind) -> Vec<ComponentType> {
        match kind {
            ComponentKind::Source => self.sources(),
            ComponentKind::Sink => self.sinks(),
        }
    }

    /// All section types, by name.
    pub(crate) fn sections(&self) -> Vec<SectionType> {
        let linked = linked_sections().into_iter().map(SectionType::Linked);
        let loaded = self.plugins.iter().flat_map(|plugin| plugin.sections);
        let loaded = loaded.map(SectionType::Plugin);
        sorted_by_key(linked.chain(loaded), |section| (0, section.name(), ""))
    }
}

/// Why a plugin could not be loaded. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not trusted, cannot be loaded, is no plugin, or is one for another version of the interface.
    Unusable {
        /// The plugin.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// One of its components has a name that is taken.
    NameTaken {
        /// The plugin.
        file: PathBuf,
        /// The name.
        component: String,
        /// Whose it is: a file, `the built-in ones`, `itself`.
        owner: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unusable { file, reason } => write!(f, "plugin {}: {reason}", file.display()),
            LoadError::NameTaken { file, component, owner } => {
                write!(f, "plugin {}: its component {component} has the name of one of {owner}", file.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The first of `names` that occurs twice or is `known` already, and the owner of that name.
fn name_that_is_taken<'a>(
    names: impl Iterator<Item = &'a String>,
    known: &[(&str, Option<&Path>)],
) -> Option<(&'a str, String)> {
    let mut own = Vec::new();
    for name in names {
        let who = match known.iter().find(|(known, _)| known == name) {
            Some((_, plugin)) => plugin.map_or("the built-in ones".to_owned(), |file| file.display().to_string()),
            None if own.contains(&name) => "itself".to_owned(),
            None => {
                own.push(name);
                continue;
            }
        };
        return Some((name, who));
    }
    None
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plugins()).finish()
    }
}

/// The section types that are linked in, by name.
pub(crate) fn linked_sections() -> Vec<&'static SectionEntry> {
    sorted_by_key(inventory::iter::<SectionEntry>(), |entry| (0, entry.name, (entry.type_name)()))
}

/// A list of the entries; equal ones stay in the order in which they came.
fn sorted_by_key<T>(entries: impl IntoIterator<Item = T>, key: impl Fn(&T) -> (u32, &str, &str)) -> Vec<T> {
    let mut entries: Vec<Option<T>> = entries.into_iter().map(Some).collect();
    // What is sorted is of one type, whatever the entries are: each further one would be 7 KB of code.
    let keyed = entries.iter().enumerate().filter_map(|(place, entry)| Some((key(entry.as_ref()?), place)));
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_unstable();
    let places: Vec<usize> = keyed.into_iter().map(|(_, place)| place).collect();
    places.into_iter().filter_map(|place| entries[place].take()).collect()
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
