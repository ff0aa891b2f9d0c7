//! What is linked in, by name.

use std::cmp::Reverse;

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};

use crate::sample::SectionEntry;
use crate::sink::SinkEntry;
use crate::source::SourceEntry;

/// The components that are linked in.
pub struct Registry;

/// Whether a component reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Source,
    /// It writes.
    Sink,
}

impl Kind {
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
    schema: fn(&mut SchemaGenerator) -> Schema,
    defaults: fn() -> serde_json::Result<serde_json::Value>,
}

impl ComponentType {
    /// The JSON Schema of its configuration, with nothing left to look up elsewhere.
    pub fn schema(&self) -> serde_json::Value {
        (self.schema)(&mut inline_generator()).to_value()
    }

    /// Its configuration when the user says nothing: a JSON object.
    pub fn defaults(&self) -> serde_json::Value {
        (self.defaults)().unwrap_or_default()
    }
}

impl Registry {
    /// All sources, in the order in which they are read.
    pub fn sources() -> Vec<ComponentType> {
        let entries = sorted_by_key(inventory::iter::<SourceEntry>(), |entry| (entry.order, entry.name));
        let describe = |entry: &SourceEntry| ComponentType {
            kind: Kind::Source,
            name: entry.name,
            description: entry.description,
            on_by_default: entry.on_by_default,
            schema: entry.schema,
            defaults: entry.defaults,
        };
        entries.into_iter().map(describe).collect()
    }

    /// All sinks, by name.
    pub fn sinks() -> Vec<ComponentType> {
        let entries = sorted_by_key(inventory::iter::<SinkEntry>(), |entry| entry.name);
        let describe = |entry: &SinkEntry| ComponentType {
            kind: Kind::Sink,
            name: entry.name,
            description: entry.description,
            on_by_default: false,
            schema: entry.schema,
            defaults: entry.defaults,
        };
        entries.into_iter().map(describe).collect()
    }

    /// All components of a kind.
    pub fn of(kind: Kind) -> Vec<ComponentType> {
        match kind {
            Kind::Source => Self::sources(),
            Kind::Sink => Self::sinks(),
        }
    }

    /// All section types, by name.
    pub fn sections() -> Vec<&'static SectionEntry> {
        sorted_by_key(inventory::iter::<SectionEntry>(), |entry| (entry.name, (entry.type_name)()))
    }
}

/// The few entries that there are, each put into its place: the sort of the standard library is 4 KB for every type.
fn sorted_by_key<T, K: Ord>(entries: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut sorted = Vec::new();
    for entry in entries {
        let place = sorted.partition_point(|other| key(other) <= key(&entry));
        sorted.insert(place, entry);
    }
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
