//! An object that was recorded, for several types that share it.

use std::collections::BTreeMap;

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

/// The members of an object by their names. A type reads its own from them, where it would have to go through those of all.
#[derive(Debug)]
pub(crate) struct Members(BTreeMap<String, Box<RawValue>>);

impl Members {
    /// `None` of what is no object.
    pub(crate) fn of(text: &RawValue) -> Option<Self> {
        serde_json::from_str(text.get()).ok().map(Self)
    }

    /// The object as a `T`. `whole` is its text, which is for types that are no plain structs.
    pub(crate) fn read<T: DeserializeOwned>(&self, whole: &RawValue) -> serde_json::Result<T> {
        T::deserialize(Object { members: self, whole })
    }
}

struct Object<'a> {
    members: &'a Members,
    whole: &'a RawValue,
}

impl<'de> Deserializer<'de> for Object<'de> {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> serde_json::Result<V::Value> {
        let own = fields.iter().filter_map(|field| Some((*field, &**self.members.0.get(*field)?)));
        visitor.visit_map(MapDeserializer::new(own))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> serde_json::Result<V::Value> {
        self.whole.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> serde_json::Result<V::Value> {
        self.whole.deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> serde_json::Result<V::Value> {
        self.whole.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> serde_json::Result<V::Value> {
        self.whole.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct One {
        a: Option<u32>,
        #[serde(default)]
        list: Vec<f64>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Other {
        name: String,
        inner: Inner,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        b: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Any(BTreeMap<String, serde_json::Value>);

    #[test]
    fn each_type_reads_its_own() -> serde_json::Result<()> {
        let text = r#"{"a": 7, "na\u006de": "x\n", "more": [1], "inner": {"b": true, "c": 1}, "list": [1, 2.5]}"#;
        let text: Box<RawValue> = serde_json::from_str(text)?;
        let members = Members::of(&text).unwrap();
        assert_eq!(members.read::<One>(&text)?, One { a: Some(7), list: vec![1.0, 2.5] });
        assert_eq!(members.read::<Other>(&text)?, Other { name: "x\n".into(), inner: Inner { b: true } });
        assert_eq!(members.read::<Any>(&text)?.0.len(), 5, "all of it");
        Ok(())
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_an_error() -> serde_json::Result<()> {
        let text: Box<RawValue> = serde_json::from_str(r#"{"a": -1}"#)?;
        let members = Members::of(&text).unwrap();
        assert!(members.read::<One>(&text).is_err());
        assert!(members.read::<Other>(&text).unwrap_err().to_string().contains("missing field `name`"));
        let list: Box<RawValue> = serde_json::from_str("[1]")?;
        assert!(Members::of(&list).is_none());
        Ok(())
    }
}
