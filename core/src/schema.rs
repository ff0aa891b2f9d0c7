//! The JSON Schema of a sample, from the section types that there are.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use crate::registry::{Registry, SectionType};

/// The schema of the samples of `program`: the fixed members, and every section type of the registry.
pub fn sample_schema(program: &str, registry: &Registry) -> Json {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut properties = Map::new();
    let mut fixed = |name: &str, schema: Json| properties.insert(name.to_owned(), schema);
    fixed(
        "timestamp_secs",
        json!({
            "description": "When the sample was taken, since the Unix epoch.",
            "type": "integer", "minimum": 1, "unit": "seconds", "kind": "gauge",
        }),
    );
    fixed(
        "timestamp_ms",
        json!({
            "description": "The same in milliseconds, so that samples within a second can be ordered.",
            "type": "integer", "minimum": 1, "unit": "milliseconds", "kind": "gauge",
        }),
    );
    fixed(
        "elapsed_secs",
        json!({
            "description": "Time since the sample before, in which deltas were counted, by a clock that nobody sets and that stands still while the machine sleeps: what timestamp_ms jumps by beyond it is either. A rate is over the time between the two readings of its source. CLOCK_MONOTONIC",
            "type": "number", "minimum": 0, "unit": "seconds", "kind": "gauge",
        }),
    );
    fixed("job_name", json!({ "description": "The run's label, as given.", "type": ["string", "null"] }));
    fixed("pid", json!({ "description": "Root of the process tree that is tracked.", "type": ["integer", "null"] }));
    let mut loaded = Map::new();
    for section in registry.sections() {
        let schema = match &section {
            SectionType::Linked(entry) => entry.schema(&mut generator).to_value(),
            SectionType::Plugin(section) => {
                loaded.insert(section.name.to_owned(), section.schema.clone());
                json!({ "$ref": format!("#/$defs/{}", section.name) })
            }
        };
        // Sections of one name are joined into one object.
        let joined = match properties.remove(section.name()) {
            None => schema,
            Some(Json::Object(mut several)) if several.contains_key("allOf") => {
                if let Some(list) = several["allOf"].as_array_mut() {
                    list.push(schema);
                }
                several.into()
            }
            Some(first) => json!({ "allOf": [first, schema] }),
        };
        properties.insert(section.name().to_owned(), joined);
    }
    let version = format!("{program}-version");
    properties.insert(version.clone(), json!({ "description": "Version of the tracker.", "type": "string" }));
    let mut definitions = generator.take_definitions(true);
    definitions.extend(loaded);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("A sample of {program}"),
        "type": "object",
        "properties": properties,
        "required": ["timestamp_secs", "timestamp_ms", "elapsed_secs", "job_name", "pid", version],
        "$defs": definitions,
    })
}
