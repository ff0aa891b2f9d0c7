//! A span of time as people write it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Time between two samples: seconds, whole or fractional (`0.05`), or with a unit (`50ms`, `2s`, `1m`, `1h`).
/// At least 1 ms, at most 366 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(Duration);

/// What is no [`Interval`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoInterval;

impl fmt::Display for NoInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be 1ms to 366d, as seconds (0.05) or with a unit (50ms, 2s, 1m, 1h, 1d)")
    }
}

impl std::error::Error for NoInterval {}

impl Default for Interval {
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl From<Interval> for Duration {
    fn from(interval: Interval) -> Self {
        interval.0
    }
}

const LONGEST_SECS: f64 = 366.0 * 86_400.0;

impl Interval {
    /// The interval that is nearest to this time.
    pub fn nearest(time: Duration) -> Self {
        Self(time.clamp(Duration::from_millis(1), Duration::from_secs_f64(LONGEST_SECS)))
    }

    fn from_secs(secs: f64) -> Result<Self, NoInterval> {
        // NaN is in no range.
        if (0.001..=LONGEST_SECS).contains(&secs) { Ok(Self(Duration::from_secs_f64(secs))) } else { Err(NoInterval) }
    }
}

impl FromStr for Interval {
    type Err = NoInterval;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
        let with_unit = units.iter().find_map(|(unit, secs)| Some((text.strip_suffix(unit)?, secs)));
        let (number, unit) = with_unit.unwrap_or((text, &1.0));
        // `parse` would also take "inf" and "1e3". Only plain decimals are meant.
        if number.contains(|c: char| !c.is_ascii_digit() && c != '.') {
            return Err(NoInterval);
        }
        Self::from_secs(number.parse::<f64>().map_err(|_| NoInterval)? * unit)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let interval = match Value::deserialize(deserializer)? {
            Value::Number(secs) => secs.as_f64().ok_or(NoInterval).and_then(Self::from_secs),
            Value::String(text) => text.parse(),
            _ => Err(NoInterval),
        };
        interval.map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Interval {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"] })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_and_plain_seconds() {
        for (text, millis) in
            [("1", 1000), ("0.05", 50), (".5", 500), ("50ms", 50), ("2s", 2000), ("1m", 60_000), ("1h", 3_600_000)]
        {
            assert_eq!(text.parse(), Ok(Interval(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn what_is_no_interval_is_refused() {
        for text in [
            "0", "-1", "nan", "NaN", "inf", "-inf", "", "x", "1x", "1 2", "0.0001", "1e300", "1e3", "1e-2s", "400d",
            "ms", "+1", "--",
        ] {
            assert!(text.parse::<Interval>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,12}") {
            if let Ok(interval) = text.parse::<Interval>() {
                prop_assert!(interval.0 >= Duration::from_millis(1));
            }
        }
    }
}
