//! The sections that a plugin wrote in one call.

use std::fmt;

use anyhow::anyhow;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::sample::Sections;

/// Reads one JSON object, the name of each section and the section, into `out`. `names` are those that the plugin said
/// it writes. Nothing of it is looked into further than that it is JSON.
pub(crate) fn read(text: &[u8], names: &[&'static str], out: &mut Sections) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut parser = serde_json::Deserializer::from_slice(text);
    let result = parser.deserialize_map(Object { names, out }).and_then(|()| parser.end());
    result.map_err(|error| anyhow!("what it wrote is not usable: {error}"))
}

struct Object<'a> {
    names: &'a [&'static str],
    out: &'a mut Sections,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of sections")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let Some(name) = self.names.iter().find(|name| **name == key) else {
                let known = self.names.join(", ");
                return Err(A::Error::custom(format!("{key:?} is no section of the plugin (there are: {known})")));
            };
            let section: &RawValue = map.next_value()?;
            if !section.get().starts_with(['{', '[']) {
                return Err(A::Error::custom(format!("section {key:?} is neither an object nor a list")));
            }
            self.out.put_json(name, section);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Sample;

    fn line(text: &str) -> anyhow::Result<String> {
        let mut out = Sections::default();
        read(text.as_bytes(), &["ib", "fans"], &mut out)?;
        let sample = Sample { parts: vec![out.into()], ..Sample::default() };
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
    fn what_is_no_object_of_sections_is_refused() {
        for wrong in
            ["[]", "1", "{\"ib\":1}", "{\"cpu\":{}}", "{\"ib\":{}} x", "{\"ib\":{", "{\"ib\":{\"a\":NaN}}", "\u{0}"]
        {
            assert!(line(wrong).is_err(), "{wrong}");
        }
        let mut out = Sections::default();
        assert!(read(b"{\"ib\":{\"a\":\"\xff\"}}", &["ib"], &mut out).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, &["ib"], &mut Sections::default());
        }

        #[test]
        fn any_text_that_looks_like_json_is_read(text in "[\\[\\]{}\",:a-c0-9.eE\\\\ \n-]{0,80}") {
            let _ = line(&format!("{{\"ib\":{text}}}"));
        }
    }
}
