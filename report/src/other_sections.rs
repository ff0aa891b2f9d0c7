//! Figures of sections that this crate knows nothing of, such as those of plugins, by their schema.

use std::collections::BTreeMap;

use resource_tracker_core::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::kinds::{Kind, Kinds};
use crate::statistics::Level;

/// The sections that the summary knows by their types, and those without figures.
const KNOWN: [&str; 13] = [
    "cgroup",
    "cloud",
    "cpu",
    "disk",
    "gpu",
    "host",
    "marks",
    "memory",
    "network",
    "outcome",
    "pressure",
    "run",
    "top_processes",
];
/// Those that come after are left out.
const FIGURES: usize = 2000;
const LONGEST_PATH: usize = 512;
/// How deep lists and objects in one another are looked into.
const DEPTH: u32 = 8;

/// What is added up of them.
#[derive(Default)]
pub(crate) struct OtherSections {
    figures: BTreeMap<String, (Kind, Level, f64)>,
}

impl OtherSections {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, kinds: &Kinds) {
        other_figures(sample, &mut |path, field, value| self.add_figure(path, field, value, secs, kinds));
    }

    fn add_figure(&mut self, path: &str, field: &str, value: f64, secs: f64, kinds: &Kinds) {
        let (kind, level, grown) = match self.figures.get_mut(path) {
            Some(figure) => figure,
            None => {
                let kind = kinds.of(field);
                if kind == Kind::Info || self.figures.len() == FIGURES {
                    return;
                }
                self.figures.entry(path.to_owned()).or_insert((kind, Level::default(), 0.0))
            }
        };
        match kind {
            Kind::Delta => *grown += value,
            // One that is reset counts from zero.
            Kind::Counter => *grown += level.last().map_or(0.0, |last| if value < last { value } else { value - last }),
            Kind::Gauge | Kind::Info => (),
        }
        level.add(value, secs);
    }

    pub(crate) fn summary(&self) -> BTreeMap<String, Figure> {
        let summary = |(path, (kind, level, grown)): (&String, &(Kind, Level, f64))| {
            let figure = match kind {
                Kind::Delta | Kind::Counter => Figure { mean: None, peak: None, sum: Some(*grown) },
                Kind::Gauge | Kind::Info => Figure { mean: level.mean(), peak: level.peak(), sum: None },
            };
            (path.clone(), figure)
        };
        self.figures.iter().map(summary).collect()
    }
}

/// Hands over each figure of the sections that are not known by their types: by its path, which tells whose it is
/// (`energy[package-0].joules`), and its field, which tells what it is (`energy[].joules`).
pub fn other_figures(sample: &Sample, take: &mut dyn FnMut(&str, &str, f64)) {
    let mut walk = Walk { path: String::new(), field: String::new(), take };
    for (name, section) in sample.sections().filter(|(name, _)| !KNOWN.contains(name)) {
        if let Ok(section) = serde_json::to_value(section) {
            walk.below(&[name], &[name], &section, DEPTH);
        }
    }
}

/// A way through a section, whose names are added and taken away as it goes on.
struct Walk<'a> {
    path: String,
    field: String,
    take: &'a mut dyn FnMut(&str, &str, f64),
}

impl Walk<'_> {
    /// Looks into what stands there under this path and field.
    fn below(&mut self, path: &[&str], field: &[&str], value: &Json, depth: u32) {
        let (path_end, field_end) = (self.path.len(), self.field.len());
        self.path.extend(path.iter().copied());
        self.field.extend(field.iter().copied());
        self.visit(value, depth);
        self.path.truncate(path_end);
        self.field.truncate(field_end);
    }

    fn visit(&mut self, value: &Json, depth: u32) {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.path.len() <= LONGEST_PATH) else { return };
        match value {
            Json::Object(members) => {
                for (name, value) in members {
                    self.below(&[".", name], &[".", name], value, depth);
                }
            }
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    match name_of(item) {
                        Some(name) => self.below(&["[", name, "]"], &["[]"], item, depth),
                        None => self.below(&["[", &index.to_string(), "]"], &["[]"], item, depth),
                    }
                }
            }
            Json::Number(number) => {
                if let Some(value) = number.as_f64() {
                    (self.take)(&self.path, &self.field, value);
                }
            }
            Json::Null | Json::Bool(_) | Json::String(_) => (),
        }
    }
}

/// What an item of a list calls itself: its first member that is a text.
fn name_of(item: &Json) -> Option<&str> {
    item.as_object()?.values().find_map(Json::as_str)
}

/// A figure over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Mean over the time, of a figure that goes up and down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Its highest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// What was counted in all, of one that counts. A counter's own first value is not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<f64>,
}
