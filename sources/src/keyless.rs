//! Configurations without keys.

use schemars::Schema;

/// Defines a configuration without keys: any table will do. Derived implementations would add some 15 KiB to the binary
/// for each, because typetag makes trait objects of all that they consist of.
macro_rules! keyless {
    ($(#[doc = $doc:literal])* pub struct $config:ident) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Default, serde::Serialize)]
        pub struct $config {}

        impl<'de> serde::Deserialize<'de> for $config {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self::default())
            }
        }

        impl schemars::JsonSchema for $config {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($config).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::keyless::schema(concat!($($doc,)*))
            }
        }
    };
}

pub(crate) use keyless;

pub(crate) fn schema(description: &str) -> Schema {
    let mut schema = Schema::default();
    schema.insert("type".into(), "object".into());
    schema.insert("description".into(), description.trim().into());
    schema
}
