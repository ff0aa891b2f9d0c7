//! A sample as points: the values of metrics with attributes.

use std::borrow::Cow;

use resource_tracker_metrics::cpu_list;
use serde_json::{Map, Value as Json};

use crate::names::{Figure, Kind, Metric, Names, Node};

/// Names and values of attributes.
pub(crate) type Attributes<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<'a> {
    /// The number of the metric in [`Names::metrics`].
    pub metric: usize,
    /// What tells it from others of the metric.
    pub attributes: Vec<(&'a str, Cow<'a, str>)>,
    pub(crate) kind: Kind,
    pub(crate) value: f64,
}

/// The points of a sample, as they are found.
#[derive(Default)]
struct Points<'a>(Vec<Point<'a>>);

impl Names {
    /// The points of a sample, which is JSON: an object of sections. What is of another type than its schema says is left out, and so is a level that is null.
    /// A sum that is null has a point without a value, for [`Sums`](crate::Sums) that know it.
    pub fn points<'a>(&'a self, sample: &'a Map<String, Json>) -> Vec<Point<'a>> {
        let mut points = Points::default();
        for (name, node) in &self.sections {
            if let Some(section) = sample.get(name) {
                points.add(node, section, &Vec::new(), None);
            }
        }
        points.0
    }

    /// The metric of a point.
    pub fn metric_of(&self, point: &Point<'_>) -> &Metric {
        &self.metrics()[point.metric]
    }
}

impl<'a> Points<'a> {
    fn add(
        &mut self,
        node: &'a Node,
        value: &'a Json,
        attributes: &Attributes<'a>,
        beside: Option<&'a Map<String, Json>>,
    ) {
        match (node, value) {
            (Node::Figure(figure), Json::Array(values)) => self.add_each(figure, values, attributes, beside),
            (Node::Figure(figure), value) => self.add_point(figure, value, attributes.clone()),
            (Node::Object(members), Json::Object(values)) => {
                let mut attributes = attributes.clone();
                for (name, member) in members {
                    if let (Node::Attribute(name), Some(value)) = (member, values.get(name).and_then(text)) {
                        attributes.push((name, value));
                    }
                }
                for (name, member) in members {
                    if let Some(value) = values.get(name) {
                        self.add(member, value, &attributes, Some(values));
                    }
                }
            }
            (Node::List(entry), Json::Array(values)) => {
                values.iter().for_each(|value| self.add(entry, value, attributes, beside));
            }
            (Node::Attribute(_) | Node::Text | Node::Object(_) | Node::List(_), _) => (),
        }
    }

    /// A list of figures. Without names they cannot be told apart.
    fn add_each(
        &mut self,
        figure: &'a Figure,
        values: &'a [Json],
        attributes: &Attributes<'a>,
        beside: Option<&'a Map<String, Json>>,
    ) {
        let Some((names, attribute)) = &figure.each else { return };
        let Some(names) = beside.and_then(|beside| beside.get(names)?.as_str()) else { return };
        for (number, value) in cpu_list::numbers(names).zip(values) {
            let mut attributes = attributes.clone();
            attributes.push((attribute, number.to_string().into()));
            self.add_point(figure, value, attributes);
        }
    }

    fn add_point(&mut self, figure: &'a Figure, value: &Json, mut attributes: Attributes<'a>) {
        let (kind, value) = match value {
            // It was not counted in this interval; what was counted before stays.
            Json::Null if figure.kind != Kind::Value => (Kind::Paused, 0.0),
            value => match value.as_f64() {
                Some(value) => (figure.kind, value),
                None => return,
            },
        };
        attributes.extend(figure.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str().into())));
        let Figure { metric, .. } = *figure;
        // The decimals of a large unit are those of whole small ones, rounded.
        let value = if figure.factor > 1.0 { (value * figure.factor).round() } else { value * figure.factor };
        self.0.push(Point { metric, attributes, kind, value });
    }
}

/// The value of an attribute.
fn text(value: &Json) -> Option<Cow<'_, str>> {
    match value {
        Json::String(text) => Some(text.as_str().into()),
        Json::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}
