//! The metrics that the fields of a sample are, from its schema.

use std::collections::BTreeMap;

use resource_tracker_core::registry::Registry;
use resource_tracker_core::sample_schema;
use serde_json::Value as Json;

use crate::conventions;
use crate::unit::unit;

/// What the name of a metric or attribute begins with that the conventions do not have.
const PREFIX: &str = "resource_tracker";

/// Sections about the run itself, which are no metrics.
const NO_METRICS: [&str; 2] = ["marks", "run"];

/// How deep a schema is followed, and how many parts of it: one that refers to itself has no end.
const DEPTH: u32 = 16;
const MOST_PARTS: usize = 20_000;

/// A metric.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// By OpenTelemetry's conventions, or `resource_tracker.`, the section and the field.
    pub name: String,
    /// As UCUM writes it.
    pub unit: String,
    /// What it is, in a sentence.
    pub description: String,
    /// How it behaves.
    pub instrument: Instrument,
}

/// How a metric behaves, in OpenTelemetry's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instrument {
    /// Goes up and down, and cannot be summed over its attributes.
    Gauge,
    /// Goes up and down, and can be summed over its attributes.
    UpDownCounter,
    /// Only grows, and can be summed over its attributes.
    Counter,
}

/// The metrics of samples.
#[derive(Debug)]
pub struct Names {
    metrics: Vec<Metric>,
    pub(crate) sections: BTreeMap<String, Node>,
}

/// A part of a sample.
#[derive(Debug, PartialEq)]
pub(crate) enum Node {
    Figure(Figure),
    /// A text that tells the entries of a list from one another: the name of the attribute.
    Attribute(String),
    /// Another text.
    Text,
    Object(BTreeMap<String, Node>),
    List(Box<Node>),
}

/// A field that is a figure.
#[derive(Debug, PartialEq)]
pub(crate) struct Figure {
    /// Which metric.
    pub(crate) metric: usize,
    pub(crate) attributes: Vec<(String, String)>,
    /// Of a list: the member that tells whose the figures are, and the attribute.
    pub(crate) each: Option<(String, String)>,
    pub(crate) kind: Kind,
    /// What the metric's unit is of the field's.
    pub(crate) factor: f64,
}

/// What a field says of its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its value.
    Value,
    /// A sum of which it is not known where it began.
    Counter,
    /// What was added.
    Delta,
    /// A sum of which a sample says nothing.
    Paused,
}

impl Names {
    /// Those of the sections that are known.
    pub fn new(registry: &Registry) -> Self {
        Self::of_schema(&sample_schema("", registry))
    }

    /// Those of a schema of samples.
    pub fn of_schema(schema: &Json) -> Self {
        let mut builder = Builder { root: schema, metrics: Vec::new(), parts_left: MOST_PARTS };
        let sections = schema["properties"].as_object().into_iter().flatten();
        let sections =
            sections.filter(|(name, _)| !NO_METRICS.contains(&name.as_str())).filter_map(|(name, section)| {
                let node = builder.node(&mut vec![name.clone()], section, DEPTH)?;
                matches!(node, Node::Object(_) | Node::List(_)).then(|| (name.clone(), node))
            });
        let sections = sections.collect();
        Self { metrics: builder.metrics, sections }
    }

    /// All metrics, in the order in which their numbers count.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The fields that are figures, section by section.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        for (name, section) in &self.sections {
            section.collect_fields(name, &[], &mut fields);
        }
        fields
    }
}

/// A field of a sample that is a figure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// Where it is: `disk[].mounts[].used_bytes`.
    pub path: String,
    /// The number of its metric in [`Names::metrics`].
    pub metric: usize,
    /// The attributes of its points, with the values that are fixed.
    pub attributes: Vec<(String, Option<String>)>,
}

impl Node {
    fn collect_fields(&self, path: &str, beside: &[&str], fields: &mut Vec<Field>) {
        match self {
            Self::Figure(figure) => {
                let beside = beside.iter().map(|name| ((*name).to_owned(), None));
                let of_each = figure.each.iter().map(|(_, attribute)| (attribute.clone(), None));
                let own = figure.attributes.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
                let attributes = beside.chain(of_each).chain(own).collect();
                let path = if figure.each.is_some() { format!("{path}[]") } else { path.to_owned() };
                fields.push(Field { path, metric: figure.metric, attributes });
            }
            Self::Object(members) => {
                let own = members.values().filter_map(|member| match member {
                    Self::Attribute(name) => Some(name.as_str()),
                    _ => None,
                });
                let beside: Vec<&str> = beside.iter().copied().chain(own).collect();
                members
                    .iter()
                    .for_each(|(name, member)| member.collect_fields(&format!("{path}.{name}"), &beside, fields));
            }
            Self::List(entry) => entry.collect_fields(&format!("{path}[]"), beside, fields),
            Self::Attribute(_) | Self::Text => (),
        }
    }
}

struct Builder<'a> {
    root: &'a Json,
    metrics: Vec<Metric>,
    parts_left: usize,
}

impl Builder<'_> {
    fn node(&mut self, path: &mut Vec<String>, schema: &Json, depth: u32) -> Option<Node> {
        let depth = depth.checked_sub(1)?;
        self.parts_left = self.parts_left.checked_sub(1)?;
        match schema["kind"].as_str() {
            Some("info") => {
                let attribute = schema["otel"]["attribute"].as_str();
                return Some(attribute.map_or(Node::Text, |name| Node::Attribute(name.to_owned())));
            }
            Some("gauge") => return Some(Node::Figure(self.figure(path, schema, Kind::Value))),
            Some("counter") => return Some(Node::Figure(self.figure(path, schema, Kind::Counter))),
            Some("delta") => return Some(Node::Figure(self.figure(path, schema, Kind::Delta))),
            _ => (),
        }
        if let Some(target) = schema["$ref"].as_str().and_then(|path| self.root.pointer(path.strip_prefix('#')?)) {
            return self.node(path, target, depth);
        }
        if schema["items"].is_object() {
            let entry = self.node(path, &schema["items"], depth)?;
            return Some(Node::List(Box::new(tell_apart(path, entry))));
        }
        let mut members = BTreeMap::new();
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            path.push(name.clone());
            members.extend(self.node(path, member, depth).map(|node| (name.clone(), node)));
            path.pop();
        }
        for part in ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|several| schema[several].as_array()).flatten() {
            match self.node(path, part, depth) {
                Some(Node::Object(more)) => members.extend(more),
                Some(other) => return Some(other),
                None => (),
            }
        }
        (!members.is_empty()).then_some(Node::Object(members))
    }

    fn figure(&mut self, path: &[String], schema: &Json, kind: Kind) -> Figure {
        let otel = &schema["otel"];
        let name = otel["name"].as_str().map_or_else(|| own_name(path, schema), str::to_owned);
        let own_unit = unit(schema["unit"].as_str().unwrap_or_default());
        let instrument = match (kind, otel["instrument"].as_str()) {
            (Kind::Value, Some("updowncounter")) => Instrument::UpDownCounter,
            (Kind::Value, _) => Instrument::Gauge,
            (Kind::Counter | Kind::Delta | Kind::Paused, _) => Instrument::Counter,
        };
        let metric = self.metrics.iter().position(|metric| metric.name == name).unwrap_or_else(|| {
            let known = conventions::of(&name);
            let description = known.map_or_else(|| first_sentence(schema), |known| known.description.to_owned());
            let unit = known.map_or_else(|| own_unit.ucum.clone(), |known| known.unit.to_owned());
            self.metrics.push(Metric { name, unit, description, instrument });
            self.metrics.len() - 1
        });
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let attributes = otel["attributes"].as_object().into_iter().flatten();
        let each = &otel["each"];
        Figure {
            metric,
            attributes: attributes.map(|(name, value)| (name.clone(), text(value))).collect(),
            each: each.is_object().then(|| (text(&each["names"]), text(&each["attribute"]))),
            kind,
            factor: own_unit.factor,
        }
    }
}

/// The entries of a list need an attribute. Where a schema names none, all their texts are.
fn tell_apart(path: &[String], entry: Node) -> Node {
    let Node::Object(mut members) = entry else { return entry };
    if !members.values().any(|member| matches!(member, Node::Attribute(_))) {
        for (name, member) in &mut members {
            if *member == Node::Text {
                *member = Node::Attribute(format!("{PREFIX}.{}.{name}", path.join(".")));
            }
        }
    }
    Node::Object(members)
}

/// The name of a metric that the conventions do not have. A unit is no part of it, but a share is said to be one, so that it is not
/// called as what it is a share of.
fn own_name(path: &[String], schema: &Json) -> String {
    let path = path.join(".");
    let units = ["_mib", "_gb", "_bytes", "_secs", "_ms", "_watts", "_joules", "_celsius", "_mhz", "_mbps"];
    let name = match path.strip_suffix("_pct") {
        Some(share) if schema["unit"] == "percent" => format!("{share}_ratio"),
        _ => {
            let name = path.strip_suffix("_total").unwrap_or(&path);
            let name = name.strip_suffix("_per_sec").unwrap_or(name);
            units.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name).to_owned()
        }
    };
    format!("{PREFIX}.{name}")
}

/// What a description begins with. (The source of the figure comes last in it.)
fn first_sentence(schema: &Json) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.split_inclusive(". ").next().unwrap_or_default().trim_end();
    text.strip_suffix('.').unwrap_or(text).replace('`', "")
}
