//! Configurations that are read by way of JSON.

/// Implements `Deserialize` and `Serialize` for a configuration that derives both with `#[serde(remote = "Self")]`.
///
/// It is read by way of [`serde_json::Value`]. Without it typetag makes trait objects of all that the derived code
/// consists of, some 15 KiB for each configuration; it is of no other use.
#[macro_export]
macro_rules! through_json {
    ($config:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $config {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                let value = <$crate::reexport::Json as ::serde::Deserialize>::deserialize(deserializer)?;
                Self::deserialize(value).map_err(::serde::de::Error::custom)
            }
        }

        impl ::serde::Serialize for $config {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    };
}
