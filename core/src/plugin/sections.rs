//! The sections of a plugin: what it says of them, and what it wrote in one call.

use std::fmt;

use anyhow::anyhow;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::sample::Sections;

/// What a plugin says of one of its sections.
pub(crate) struct PluginSection {
    pub(crate) name: &'static str,
    pub(crate) schema: Json,
    /// The members, at any depth, that are counted over the interval.
    pub(crate) deltas: &'static [String],
}

impl PluginSection {
    pub(crate) fn new(name: String, schema: Json) -> Self {
        let mut deltas = Vec::new();
        find_deltas(&schema, &mut deltas);
        Self { name: name.leak(), schema, deltas: deltas.leak() }
    }
}

/// Names of properties whose `kind` is `delta`.
fn find_deltas(schema: &Json, deltas: &mut Vec<String>) {
    match schema {
        Json::Object(members) => {
            if let Some(Json::Object(properties)) = members.get("properties") {
                let found = properties.iter().filter(|(_, schema)| schema["kind"] == "delta");
                deltas.extend(found.map(|(name, _)| name.clone()));
            }
            members.values().for_each(|member| find_deltas(member, deltas));
        }
        Json::Array(items) => items.iter().for_each(|item| find_deltas(item, deltas)),
        _ => (),
    }
}

/// Reads one JSON object, the name of each section and the section, into `out`. `known` are the sections that the
/// plugin has announced. Their contents are only checked for being JSON.
pub(crate) fn read(text: &[u8], known: &[PluginSection], out: &mut Sections) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut parser = serde_json::Deserializer::from_slice(text);
    let result = parser.deserialize_map(Object { known, out }).and_then(|()| parser.end());
    result.map_err(|error| anyhow!("what it wrote is not usable: {error}"))
}

struct Object<'a> {
    known: &'a [PluginSection],
    out: &'a mut Sections,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of sections")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let Some(known) = self.known.iter().find(|known| known.name == key) else {
                let known = self.known.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
                return Err(A::Error::custom(format!("{key:?} is no section of the plugin (there are: {known})")));
            };
            let section: &RawValue = map.next_value()?;
            if !section.get().starts_with(['{', '[']) {
                return Err(A::Error::custom(format!("section {:?} is neither an object nor a list", known.name)));
            }
            self.out.put_json(known.name, section, known.deltas);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Sample;

    fn known() -> [PluginSection; 2] {
        let field = |kind: &str| serde_json::json!({ "type": "integer", "kind": kind });
        let port = serde_json::json!({ "properties": { "port": field("info"), "errors": field("delta") } });
        let schema = serde_json::json!({ "type": "array", "items": port });
        [PluginSection::new("ib".into(), schema), PluginSection::new("fans".into(), Json::Bool(true))]
    }

    fn line(text: &str) -> anyhow::Result<String> {
        let mut out = Sections::default();
        read(text.as_bytes(), &known(), &mut out)?;
        let sample = Sample::of(out);
        let mut line = Vec::new();
        sample.write_json(&mut line)?;
        let line = String::from_utf8(line)?;
        assert!(!line.contains(['\n', '\r']), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line)?;
        Ok(value.get("ib").or(value.get("fans")).map(ToString::to_string).unwrap_or_default())
    }

    #[test]
    fn sections_are_passed_through_as_they_are() -> anyhow::Result<()> {
        assert_eq!(line(r#"{"ib":[{"port":1,"rate":1.25}]}"#)?, r#"[{"port":1,"rate":1.25}]"#);
        assert_eq!(line("{\r\n  \"fans\": {\n \"a\": \"x\\ny\" }\n}")?, r#"{"a":"x\ny"}"#);
        assert_eq!(line("{}")?, "");
        assert_eq!(line("")?, "");
        Ok(())
    }

    #[test]
    fn what_was_counted_is_not_repeated() -> anyhow::Result<()> {
        let mut out = Sections::default();
        read(br#"{"fans":{"errors":3}}"#, &known(), &mut out)?;
        assert!(out.without_deltas().is_none(), "nothing of it is counted");
        read(br#"{"ib":[{"port":1,"errors":5},{"port":2,"errors":0}]}"#, &known(), &mut out)?;
        let mut line = Vec::new();
        out.without_deltas().unwrap_or_default().write_json(&mut line)?;
        let line = String::from_utf8(line)?;
        assert_eq!(line, r#"{"fans":{"errors":3},"ib":[{"port":1,"errors":null},{"port":2,"errors":null}]}"#);
        Ok(())
    }

    #[test]
    fn what_is_no_object_of_sections_is_refused() {
        for wrong in
            ["[]", "1", "{\"ib\":1}", "{\"cpu\":{}}", "{\"ib\":{}} x", "{\"ib\":{", "{\"ib\":{\"a\":NaN}}", "\u{0}"]
        {
            assert!(line(wrong).is_err(), "{wrong}");
        }
        let mut out = Sections::default();
        assert!(read(b"{\"ib\":{\"a\":\"\xff\"}}", &known(), &mut out).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, &known(), &mut Sections::default());
        }

        #[test]
        fn any_text_that_looks_like_json_is_read(text in "[\\[\\]{}\",:a-c0-9.eE\\\\ \n-]{0,80}") {
            let _ = line(&format!("{{\"ib\":{text}}}"));
        }
    }
}
