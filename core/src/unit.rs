//! Units and kinds of figures, for the schema of a section: `#[schemars(transform = Gauge("MiB"))]` on a field.
//!
//! A figure that OpenTelemetry's semantic conventions have a name for says so as well:
//! `#[schemars(transform = Counter("bytes").named("system.disk.io", &[("disk.io.direction", "read")]))]`. What tells the
//! entries of a list from one another is an attribute there: `#[schemars(transform = Attribute("system.device"))]`.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Map, Value as Json, json};

/// A figure that goes up and down, in this unit.
#[derive(Debug, Clone, Copy)]
pub struct Gauge(pub &'static str);

/// A figure that only grows, in this unit.
#[derive(Debug, Clone, Copy)]
pub struct Counter(pub &'static str);

/// What was added in the interval, in this unit.
#[derive(Debug, Clone, Copy)]
pub struct Delta(pub &'static str);

/// Something that is no figure: a name, a choice.
#[derive(Debug, Clone, Copy)]
pub struct Info;

/// What tells the entries of a list from one another, under the name that OpenTelemetry has for it.
#[derive(Debug, Clone, Copy)]
pub struct Attribute(pub &'static str);

/// Attributes of a metric: names and values.
type Attributes = &'static [(&'static str, &'static str)];

/// A figure with a name of OpenTelemetry's semantic conventions.
#[derive(Debug, Clone, Copy)]
pub struct Named<Figure> {
    figure: Figure,
    name: &'static str,
    instrument: &'static str,
    attributes: Attributes,
    /// The member beside a list of figures that tells whose they are, and the attribute for these names.
    each: Option<(&'static str, &'static str)>,
}

impl Gauge {
    /// The metric and the attributes that it is there, which cannot be summed over its attributes: a share, a temperature.
    pub const fn named(self, name: &'static str, attributes: Attributes) -> Named<Self> {
        Named { figure: self, name, instrument: "gauge", attributes, each: None }
    }

    /// The metric and the attributes that it is there, which can be summed over its attributes: a size, a number of things.
    pub const fn summed(self, name: &'static str, attributes: Attributes) -> Named<Self> {
        Named { figure: self, name, instrument: "updowncounter", attributes, each: None }
    }
}

impl Counter {
    /// The metric and the attributes that it is there.
    pub const fn named(self, name: &'static str, attributes: Attributes) -> Named<Self> {
        Named { figure: self, name, instrument: "counter", attributes, each: None }
    }
}

impl Delta {
    /// The metric, which is the sum of these, and the attributes that it is there.
    pub const fn named(self, name: &'static str, attributes: Attributes) -> Named<Self> {
        Named { figure: self, name, instrument: "counter", attributes, each: None }
    }
}

impl<Figure> Named<Figure> {
    /// The figures are a list. The member `names` of the section tells whose they are, as the kernel lists numbers (`0-3,6`);
    /// each figure has its number as this attribute.
    pub fn of_each(self, names: &'static str, attribute: &'static str) -> Self {
        Self { each: Some((names, attribute)), ..self }
    }
}

impl Transform for Gauge {
    fn transform(&mut self, schema: &mut Schema) {
        describe(schema, Some(self.0), "gauge");
    }
}

impl Transform for Counter {
    fn transform(&mut self, schema: &mut Schema) {
        describe(schema, Some(self.0), "counter");
    }
}

impl Transform for Delta {
    fn transform(&mut self, schema: &mut Schema) {
        describe(schema, Some(self.0), "delta");
    }
}

impl Transform for Info {
    fn transform(&mut self, schema: &mut Schema) {
        describe(schema, None, "info");
    }
}

impl Transform for Attribute {
    fn transform(&mut self, schema: &mut Schema) {
        describe(schema, None, "info");
        attribute(schema, self.0);
    }
}

impl<Figure: Transform> Transform for Named<Figure> {
    fn transform(&mut self, schema: &mut Schema) {
        self.figure.transform(schema);
        name(schema, self.name, self.instrument, self.attributes, self.each);
    }
}

// They are called for each field, and would else be written out for each.

#[inline(never)]
fn describe(schema: &mut Schema, unit: Option<&str>, kind: &str) {
    if let Some(unit) = unit {
        schema.insert("unit".into(), unit.into());
    }
    schema.insert("kind".into(), kind.into());
}

#[inline(never)]
fn attribute(schema: &mut Schema, name: &str) {
    schema.insert("otel".into(), json!({ "attribute": name }));
}

#[inline(never)]
fn name(schema: &mut Schema, name: &str, instrument: &str, attributes: Attributes, each: Option<(&str, &str)>) {
    let mut otel = Map::new();
    otel.insert("name".into(), name.into());
    otel.insert("instrument".into(), instrument.into());
    if !attributes.is_empty() {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Json::from(*value)));
        otel.insert("attributes".into(), Json::Object(attributes.collect()));
    }
    if let Some((names, attribute)) = each {
        otel.insert("each".into(), json!({ "names": names, "attribute": attribute }));
    }
    schema.insert("otel".into(), otel.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(mut of: impl Transform) -> Json {
        let mut schema = Schema::default();
        of.transform(&mut schema);
        schema.to_value()
    }

    #[test]
    fn a_schema_has_unit_kind_and_the_name_that_others_know() {
        assert_eq!(schema(Gauge("MiB")), json!({ "unit": "MiB", "kind": "gauge" }));
        assert_eq!(
            schema(Delta("seconds").named("cpu.time", &[("cpu.mode", "user")])),
            json!({ "unit": "seconds", "kind": "delta",
                "otel": { "name": "cpu.time", "instrument": "counter", "attributes": { "cpu.mode": "user" } } })
        );
        assert_eq!(
            schema(Gauge("percent").named("cpu.utilization", &[]).of_each("cpus", "cpu.number")),
            json!({ "unit": "percent", "kind": "gauge", "otel": { "name": "cpu.utilization", "instrument": "gauge",
                "each": { "names": "cpus", "attribute": "cpu.number" } } })
        );
        assert_eq!(schema(Gauge("bytes").summed("size", &[]))["otel"]["instrument"], "updowncounter");
        assert_eq!(schema(Attribute("device")), json!({ "kind": "info", "otel": { "attribute": "device" } }));
    }
}
