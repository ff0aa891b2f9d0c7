/// Reads a type from JSON, whatever it is read from. Its derives say `#[serde(remote = "Self")]`.
///
/// A configuration that typetag reads is read from any deserializer, by way of a table of functions for each of its types
/// and keys. With this there is one such table for all: those of the components here were a thirtieth of the program.
///
/// ```
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, Serialize)]
/// #[serde(remote = "Self")]
/// struct FansConfig {
///     hwmon: String,
/// }
///
/// resource_tracker_core::from_json!(FansConfig);
///
/// let fans: FansConfig = serde_json::from_str(r#"{"hwmon": "hwmon3"}"#)?;
/// assert_eq!(fans.hwmon, "hwmon3");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! from_json {
    ($type:ty) => {
        impl<'de> $crate::reexport::serde::Deserialize<'de> for $type {
            fn deserialize<D>(deserializer: D) -> ::core::result::Result<Self, D::Error>
            where
                D: $crate::reexport::serde::Deserializer<'de>,
            {
                use $crate::reexport::serde::de::{Deserialize, Error};
                let json = $crate::reexport::serde_json::Value::deserialize(deserializer)?;
                <$type>::deserialize(json).map_err(D::Error::custom)
            }
        }

        impl $crate::reexport::serde::Serialize for $type {
            fn serialize<S>(&self, serializer: S) -> ::core::result::Result<S::Ok, S::Error>
            where
                S: $crate::reexport::serde::Serializer,
            {
                <$type>::serialize(self, serializer)
            }
        }
    };
}
