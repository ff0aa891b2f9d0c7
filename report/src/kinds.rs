//! What a schema says of the figures of a sample.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::LazyLock;

use serde_json::Value as Json;

/// Definitions that are nested deeper than this are not followed.
const DEPTH: u32 = 16;

/// How a figure behaves, as [`unit`](resource_tracker_core::unit) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It goes up and down. A figure that no schema describes counts as one.
    Gauge,
    /// It only grows.
    Counter,
    /// What was added in the interval.
    Delta,
    /// It is no figure.
    Info,
}

type ByField = BTreeMap<String, (MetricKind, Option<String>)>;

/// The kinds and units of the fields of a sample, by their paths: `energy[].joules`. The first use reads the schema.
pub struct Kinds(LazyLock<ByField, Box<dyn FnOnce() -> ByField + Send>>);

impl Kinds {
    /// Those of a [`sample_schema`](resource_tracker_core::sample_schema).
    pub fn of_schema(schema: impl FnOnce() -> Json + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(|| {
            let schema = schema();
            let mut kinds = ByField::new();
            for (name, section) in schema["properties"].as_object().into_iter().flatten() {
                walk(&mut kinds, name, section, &schema, DEPTH);
            }
            kinds
        })))
    }

    /// The kind of a field.
    pub fn of(&self, field: &str) -> MetricKind {
        self.0.get(field).map_or(MetricKind::Gauge, |(kind, _)| *kind)
    }

    /// Whether anything is known of the fields of a section.
    pub(crate) fn know(&self, section: &str) -> bool {
        let from = (Bound::Included(section), Bound::Unbounded);
        let mut longer = self.0.range::<str, _>(from).map_while(|(field, _)| field.strip_prefix(section));
        longer.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// The unit of a field, where its schema tells.
    pub fn unit(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.1.as_deref()
    }
}

fn walk(kinds: &mut ByField, field: &str, schema: &Json, root: &Json, depth: u32) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let kind = match schema["kind"].as_str() {
        Some("gauge") => Some(MetricKind::Gauge),
        Some("counter") => Some(MetricKind::Counter),
        Some("delta") => Some(MetricKind::Delta),
        Some("info") => Some(MetricKind::Info),
        _ => None,
    };
    if let Some(kind) = kind {
        kinds.insert(field.to_owned(), (kind, schema["unit"].as_str().map(str::to_owned)));
    }
    if let Some(target) = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?)) {
        walk(kinds, field, target, root, depth);
    }
    for several in ["allOf", "anyOf", "oneOf"] {
        for part in schema[several].as_array().into_iter().flatten() {
            walk(kinds, field, part, root, depth);
        }
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        walk(kinds, &format!("{field}.{name}"), member, root, depth);
    }
    if schema["items"].is_object() {
        walk(kinds, &format!("{field}[]"), &schema["items"], root, depth);
    }
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::registry::Registry;
    use resource_tracker_core::sample_schema;

    use super::*;

    #[test]
    fn kinds_of_the_built_in_sections() {
        let kinds = Kinds::of_schema(|| sample_schema("tracker", &Registry::new()));
        for (field, kind) in [
            ("cpu.utilization_pct", MetricKind::Gauge),
            ("cpu.process_utime_secs", MetricKind::Delta),
            ("disk[].read_bytes_total", MetricKind::Counter),
            ("disk[].mounts[].used_pct", MetricKind::Gauge),
            ("energy[].joules", MetricKind::Delta),
            ("perf.instructions", MetricKind::Delta),
            ("perf.user_only", MetricKind::Info),
            ("nobody.knows", MetricKind::Gauge),
        ] {
            assert_eq!(kinds.of(field), kind, "{field}");
        }
        assert_eq!((kinds.unit("energy[].watts"), kinds.unit("nobody.knows")), (Some("watts"), None));
    }

    #[test]
    fn a_schema_in_itself_ends() {
        let schema = serde_json::json!({ "properties": { "a": { "$ref": "#/properties/a" } } });
        assert_eq!(Kinds::of_schema(|| schema).of("a"), MetricKind::Gauge);
    }
}
