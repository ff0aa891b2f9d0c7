//! TOML as values of figment. The parser keeps positions, which figment's own does not.

use figment::value::{Dict, Value};
use toml::de::{DeTable, DeValue, Error};

/// A whole document.
pub(super) fn parse(text: &str) -> Result<Dict, Error> {
    DeTable::parse(text).map(|document| dict(document.get_ref()))
}

/// The TOML value that `text` is, or the text itself.
pub(super) fn literal(text: &str) -> Value {
    let parsed = DeValue::parse(text).ok();
    parsed.map_or_else(|| Value::from(text), |parsed| value(parsed.get_ref()))
}

fn dict(table: &DeTable<'_>) -> Dict {
    let mut values = Dict::new();
    values.extend(table.iter().map(|(key, item)| (key.get_ref().to_string(), value(item.get_ref()))));
    values
}

fn value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => number.as_str().into(),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) => number.into(),
            Err(_) => number.as_str().into(),
        },
        DeValue::Boolean(boolean) => (*boolean).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(values) => values.iter().map(|item| self::value(item.get_ref())).collect::<Vec<_>>().into(),
        DeValue::Table(table) => dict(table).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value() {
        let text = "a = 1\nb = [1.5, true]\nc.d = 'x'\ne = { f = 2026-11-21 }\n[[g]]\nh = \"y\"\n";
        let parsed = serde_json::to_value(parse(text).unwrap()).unwrap();
        let expected = serde_json::json!({
            "a": 1, "b": [1.5, true], "c": { "d": "x" }, "e": { "f": "2026-11-21" }, "g": [{ "h": "y" }],
        });
        assert_eq!(parsed, expected);
        assert!(parse("a = ").is_err() && parse("a = 1\na = 2\n").is_err());
    }

    #[test]
    fn what_is_no_value_is_text() {
        for (text, expected) in
            [("1", serde_json::json!(1)), ("run.jsonl", "run.jsonl".into()), ("[1, 2]", vec![1, 2].into())]
        {
            assert_eq!(serde_json::to_value(literal(text)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_as_toml_writes_them() {
        let text = "a = 0xFF\nb = -1_000\nc = 0b101\nd = 1_000.5e1\ne = +7\nf = 9_223_372_036_854_775_807\n";
        let parsed = serde_json::to_value(parse(text).unwrap()).unwrap();
        let expected = serde_json::json!({
            "a": 255, "b": -1000, "c": 5, "d": 10005.0, "e": 7, "f": i64::MAX,
        });
        assert_eq!(parsed, expected);
    }
}
