//! TOML as values of figment. The parser keeps positions, which figment's own does not.

use figment::value::{Dict, Value};
use toml_edit::{ImDocument, Item, TableLike, TomlError};

/// A whole document.
pub(super) fn parse(text: &str) -> Result<Dict, TomlError> {
    ImDocument::parse(text).map(|document| dict(document.as_table()))
}

/// The TOML value that `text` is, or the text itself.
pub(super) fn literal(text: &str) -> Value {
    let parsed = text.parse::<toml_edit::Value>().ok();
    parsed.map_or_else(|| Value::from(text), |parsed| value(&parsed))
}

fn dict(table: &dyn TableLike) -> Dict {
    table.iter().filter_map(|(key, item)| Some((key.to_owned(), item_value(item)?))).collect()
}

fn item_value(item: &Item) -> Option<Value> {
    match item {
        Item::None => None,
        Item::Value(inner) => Some(value(inner)),
        Item::Table(table) => Some(dict(table).into()),
        Item::ArrayOfTables(tables) => {
            Some(tables.iter().map(|table| Value::from(dict(table))).collect::<Vec<_>>().into())
        }
    }
}

fn value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(boolean) => (*boolean.value()).into(),
        toml_edit::Value::Datetime(time) => time.value().to_string().into(),
        toml_edit::Value::Array(values) => values.iter().map(self::value).collect::<Vec<_>>().into(),
        toml_edit::Value::InlineTable(table) => dict(table).into(),
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
}
