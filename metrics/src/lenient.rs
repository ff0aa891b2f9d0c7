//! Reading what a newer version has written.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// A choice, or `None` where the recording has one that this version does not know.
pub(crate) fn known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Choice<T> {
        Known(T),
        Other(IgnoredAny),
    }
    Ok(match Choice::deserialize(deserializer)? {
        Choice::Known(value) => Some(value),
        Choice::Other(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Paint {
        #[serde(default, deserialize_with = "known")]
        colour: Option<Colour>,
    }

    #[test]
    fn a_choice_that_is_not_known_is_none() -> serde_json::Result<()> {
        for (text, colour) in [
            (r#"{"colour": "red"}"#, Some(Colour::Red)),
            (r#"{"colour": "ultraviolet"}"#, None),
            (r#"{"colour": {"hue": 7}}"#, None),
            (r#"{"colour": null}"#, None),
            ("{}", None),
        ] {
            assert_eq!(serde_json::from_str::<Paint>(text)?, Paint { colour });
        }
        Ok(())
    }
}
