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
        other_figures(sample, &mut |path, field, value| self.add_figure(path, value, secs, kinds.of(field)));
    }

    fn add_figure(&mut self, path: &str, value: f64, secs: f64, kind: Kind) {
        if kind == Kind::Info {
            return;
        }
        if !self.figures.contains_key(path) {
            if self.figures.len() == FIGURES {
                return;
            }
            self.figures.insert(path.to_owned(), (kind, Level::default(), 0.0));
        }
        if let Some((_, level, grown)) = self.figures.get_mut(path) {
            match kind {
                Kind::Delta => *grown += value,
                // One that is reset counts from zero.
                Kind::Counter => {
                    *grown += level.last().map_or(0.0, |last| if value < last { value } else { value - last })
                }
                Kind::Gauge | Kind::Info => (),
            }
            level.add(value, secs);
        }
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
    for (name, section) in sample.sections().filter(|(name, _)| !KNOWN.contains(name)) {
        if let Ok(section) = serde_json::to_value(section) {
            walk(name, name, &section, take, DEPTH);
        }
    }
}

fn walk(path: &str, field: &str, value: &Json, take: &mut dyn FnMut(&str, &str, f64), depth: u32) {
    let Some(depth) = depth.checked_sub(1).filter(|_| path.len() <= LONGEST_PATH) else { return };
    match value {
        Json::Object(members) => {
            for (name, value) in members {
                walk(&format!("{path}.{name}"), &format!("{field}.{name}"), value, take, depth);
            }
        }
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = name_of(item).unwrap_or_else(|| index.to_string());
                walk(&format!("{path}[{name}]"), &format!("{field}[]"), item, take, depth);
            }
        }
        Json::Number(number) => {
            if let Some(value) = number.as_f64() {
                take(path, field, value);
            }
        }
        Json::Null | Json::Bool(_) | Json::String(_) => (),
    }
}

/// What an item of a list calls itself: its first member that is a text.
fn name_of(item: &Json) -> Option<String> {
    item.as_object()?.values().find_map(|value| value.as_str().map(str::to_owned))
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
