//! Units and kinds of figures, for the schema of a section: `#[schemars(transform = Gauge("MiB"))]` on a field.

use schemars::Schema;
use schemars::transform::Transform;

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

fn describe(schema: &mut Schema, unit: Option<&str>, kind: &str) {
    if let Some(unit) = unit {
        schema.insert("unit".into(), unit.into());
    }
    schema.insert("kind".into(), kind.into());
}
