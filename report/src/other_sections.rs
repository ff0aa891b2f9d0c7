//! Figures of sections that this crate knows nothing of, such as those of plugins, by their schema.

use std::collections::BTreeMap;
use std::io::{self, Write};

use resource_tracker_core::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::kinds::{Kinds, MetricKind};
use crate::statistics::Level;

/// Figures beyond these are left out.
const FIGURES: usize = 2000;
const LONGEST_PATH: usize = 512;
/// Longer sections are left out: once parsed, they take up to eighty times as much memory.
const LONGEST_SECTION: usize = 1 << 20;
/// How deep nested lists and objects are followed.
const DEPTH: u32 = 8;

/// Whether the summary knows the section by its type, or it has no figures.
fn is_known(section: &str) -> bool {
    matches!(
        section,
        "cgroup"
            | "cloud"
            | "cpu"
            | "disk"
            | "gpu"
            | "host"
            | "marks"
            | "memory"
            | "network"
            | "outcome"
            | "pressure"
            | "run"
            | "top_processes"
    )
}

/// Sums over the figures of the other sections.
#[derive(Default)]
pub(crate) struct OtherSections {
    figures: BTreeMap<String, (MetricKind, Level, f64)>,
    /// The most figures of one sample that were left out.
    left_out: u64,
    /// A section that no schema describes.
    unknown: Option<String>,
    /// The first section that was left out for its length, and in how many samples one was.
    too_long: Option<(&'static str, u64)>,
}

impl OtherSections {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, kinds: &Kinds) {
        let mut left_out = 0;
        let too_long = other_figures(sample, kinds, &mut |path, field, value| {
            left_out += u64::from(!self.add_figure(path, field, value, secs, kinds));
        });
        self.left_out = self.left_out.max(left_out);
        if let Some(section) = too_long {
            self.too_long.get_or_insert((section, 0)).1 += 1;
        }
    }

    /// Sentences on what was left out, and on what is not known.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let figures = (self.left_out > 0).then(|| {
            format!("{} figures of other sections, or more, are left out: there are more than {FIGURES}", self.left_out)
        });
        let sections = self.too_long.map(|(section, samples)| {
            let times = if samples == 1 { "time" } else { "times" };
            format!("section {section}, or another one, was left out {samples} {times}: it has more than 1 MiB")
        });
        let unknown = self.unknown.as_ref().map(|section| {
            format!("what counts in section {section} is not known, so all of it is taken for levels: name its plugin with --plugin")
        });
        figures.into_iter().chain(sections).chain(unknown)
    }

    /// Adds a figure. False if there is no room for it.
    fn add_figure(&mut self, path: &str, field: &str, value: f64, secs: f64, kinds: &Kinds) -> bool {
        let (kind, level, grown) = match self.figures.get_mut(path) {
            Some(figure) => figure,
            None => {
                let kind = kinds.of(field);
                if kind == MetricKind::Info {
                    return true;
                }
                let section = &field[..field.find(['.', '[']).unwrap_or(field.len())];
                if self.unknown.is_none() && !kinds.know(section) {
                    self.unknown = Some(section.to_owned());
                }
                if self.figures.len() == FIGURES {
                    return false;
                }
                self.figures.entry(path.to_owned()).or_insert((kind, Level::default(), 0.0))
            }
        };
        match kind {
            MetricKind::Delta => *grown += value,
            // A counter that was reset starts from zero.
            MetricKind::Counter => {
                *grown += level.last().map_or(0.0, |last| if value < last { value } else { value - last })
            }
            MetricKind::Gauge | MetricKind::Info => (),
        }
        level.add(value, secs);
        true
    }

    pub(crate) fn summary(&self) -> BTreeMap<String, Figure> {
        let summary = |(path, (kind, level, grown)): (&String, &(MetricKind, Level, f64))| {
            let figure = match kind {
                MetricKind::Delta | MetricKind::Counter => Figure { mean: None, peak: None, sum: Some(*grown) },
                MetricKind::Gauge | MetricKind::Info => Figure { mean: level.mean(), peak: level.peak(), sum: None },
            };
            (path.clone(), figure)
        };
        self.figures.iter().map(summary).collect()
    }
}

/// Hands over each figure of the sections that the summary does not know by their types: its path, which names the item
/// (`infiniband[mlx5_0/1].rx_bytes_total`), and its field, which names the figure (`infiniband[].rx_bytes_total`).
/// Returns a section that was left out because it is too long.
pub fn other_figures(sample: &Sample, kinds: &Kinds, take: &mut dyn FnMut(&str, &str, f64)) -> Option<&'static str> {
    let mut walk = Walk { path: String::new(), field: String::new(), kinds, take };
    let (mut text, mut too_long) = (Vec::new(), None);
    for (name, section) in sample.sections().filter(|(name, _)| !is_known(name)) {
        text.clear();
        if serde_json::to_writer(&mut Bounded(&mut text), section).is_err() {
            too_long = too_long.or(Some(name));
        } else if let Ok(section) = serde_json::from_slice(&text) {
            walk.below(&[name], &[name], &section, DEPTH);
        }
    }
    too_long
}

/// A buffer that refuses more text than a section may have.
struct Bounded<'a>(&'a mut Vec<u8>);

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_SECTION {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A walk through a section, with the path and the field of the place where it is.
struct Walk<'a> {
    path: String,
    field: String,
    kinds: &'a Kinds,
    take: &'a mut dyn FnMut(&str, &str, f64),
}

impl Walk<'_> {
    /// Visits a value at a place below the current one: `path` and `field` lead there.
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
                // Items that share a name are told apart by their order.
                let mut times = BTreeMap::new();
                for (index, item) in items.iter().enumerate() {
                    let name = self.name_of(item).unwrap_or_else(|| index.to_string());
                    let number = *times.entry(name.clone()).and_modify(|times| *times += 1).or_insert(1_u32);
                    match number {
                        1 => self.below(&["[", &name, "]"], &["[]"], item, depth),
                        _ => self.below(&["[", &name, "#", &number.to_string(), "]"], &["[]"], item, depth),
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

    /// The name of an item of a list: its first text, and those of its numbers that are no figures, such as the number
    /// of a port.
    fn name_of(&self, item: &Json) -> Option<String> {
        let members = item.as_object()?;
        let is_number = |name: &str, value: &Json| {
            (value.is_u64() || value.is_i64()) && self.kinds.of(&format!("{}[].{name}", self.field)) == MetricKind::Info
        };
        let text = members.values().find_map(Json::as_str).map(str::to_owned);
        let numbers = members.iter().filter(|(name, value)| is_number(name, value)).map(|(_, value)| value.to_string());
        let parts: Vec<String> = text.into_iter().chain(numbers).collect();
        (!parts.is_empty()).then(|| parts.join("/"))
    }
}

/// A figure over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What `rx_bytes_total` of two ports of an adapter grew by, when the first one's grew by 5 and the other one's by 7.
    fn grown(schema: Json) -> BTreeMap<String, Option<f64>> {
        let kinds = Kinds::of_schema(|| schema);
        let mut others = OtherSections::default();
        for (first, second) in [(1e12, 5e9), (1e12 + 5.0, 5e9 + 7.0)] {
            let ports = json!([
                { "device": "mlx4_0", "port": 1, "rx_bytes_total": first },
                { "device": "mlx4_0", "port": 2, "rx_bytes_total": second },
            ]);
            let sample = json!({ "timestamp_ms": 1000, "elapsed_secs": 1, "infiniband": ports });
            others.add(&Sample::from_json(&sample.to_string()).unwrap(), 1.0, &kinds);
        }
        let figures = others.summary().into_iter().filter(|(path, _)| path.ends_with("rx_bytes_total"));
        figures.map(|(path, figure)| (path, figure.sum)).collect()
    }

    #[test]
    fn what_is_too_much_is_said() {
        let sample = |count: usize| {
            let line = json!({ "timestamp_ms": 1000, "many": vec![1; count] });
            Sample::from_json(&line.to_string()).unwrap()
        };
        let gauge = json!({ "kind": "gauge" });
        let schema = json!({ "properties": { "many": gauge, "short": gauge } });
        let kinds = Kinds::of_schema(|| schema);
        let mut others = OtherSections::default();
        others.add(&sample(FIGURES), 1.0, &kinds);
        assert_eq!(others.problems().count(), 0);
        others.add(&sample(FIGURES + 7), 1.0, &kinds);
        let too_long = json!({ "timestamp_ms": 1000, "long": "x".repeat(LONGEST_SECTION), "short": [1] });
        others.add(&Sample::from_json(&too_long.to_string()).unwrap(), 1.0, &kinds);
        assert_eq!(others.problems().count(), 1, "a text is no section");
        let too_long = json!({ "timestamp_ms": 1000, "long": ["x".repeat(LONGEST_SECTION)], "short": [1] });
        others.add(&Sample::from_json(&too_long.to_string()).unwrap(), 1.0, &kinds);
        let problems: Vec<String> = others.problems().collect();
        assert!(problems[0].starts_with("7 figures of other sections"), "{problems:?}");
        assert!(problems[1].starts_with("section long, or another one, was left out 1 time"), "{problems:?}");
        others.add(&Sample::from_json(r#"{ "timestamp_ms": 1000, "man": [1] }"#).unwrap(), 1.0, &kinds);
        assert!(others.problems().last().unwrap().starts_with("what counts in section man is not known"));
    }

    #[test]
    fn items_of_one_name_are_told_apart() {
        let mut fields = json!({ "rx_bytes_total": { "kind": "counter" } });
        let schema = |fields: &Json| json!({ "properties": { "infiniband": { "items": { "properties": fields } } } });
        let named = |ports: [&str; 2]| ports.map(|port| format!("infiniband[{port}].rx_bytes_total"));
        let expected = |ports| BTreeMap::from_iter(named(ports).into_iter().zip([Some(5.0), Some(7.0)]));
        assert_eq!(grown(schema(&fields)), expected(["mlx4_0", "mlx4_0#2"]), "nothing says what a port is");
        fields["port"] = json!({ "kind": "info" });
        assert_eq!(grown(schema(&fields)), expected(["mlx4_0/1", "mlx4_0/2"]));
    }
}
