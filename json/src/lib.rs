//! JSON of one line, written piece by piece into one buffer.
//!
//! Most instructions of a tick are spent here, so this crate alone is compiled for speed, and nothing in it is generic: it is
//! compiled here, and not where it is called.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Serializer, Value as Json};

/// Writes numbers with at most six decimals: finer than anything the kernel counts, and short.
struct Rounded;

impl Formatter for Rounded {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_f64(writer, round(value))
    }
}

/// Six decimals. Numbers so large that a double has no more stay as they are.
fn round(value: f64) -> f64 {
    // The sum makes a zero of a negative one.
    if value.abs() < 1e10 { (value * 1e6).round() / 1e6 + 0.0 } else { value }
}

/// Appends a value. Numbers have at most six decimals.
///
/// # Errors
/// When it cannot be serialised.
pub fn append(line: &mut Vec<u8>, value: &dyn erased_serde::Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(line, Rounded))
}

/// Appends the name of the next member of the object that has been begun.
///
/// # Errors
/// None but for want of memory.
pub fn key(line: &mut Vec<u8>, name: &str) -> serde_json::Result<()> {
    if !line.ends_with(b"{") {
        line.push(b',');
    }
    append(line, &name)?;
    line.push(b':');
    Ok(())
}

/// The same JSON with null for members of these names, at any depth.
///
/// # Errors
/// When the text is not JSON that can be read: it is nested too deep.
pub fn with_nulls(text: &RawValue, names: &[String]) -> serde_json::Result<Box<RawValue>> {
    fn clear(value: &mut Json, names: &[String]) {
        match value {
            Json::Object(members) => members.iter_mut().for_each(|(name, member)| match names.contains(name) {
                true => *member = Json::Null,
                false => clear(member, names),
            }),
            Json::Array(items) => items.iter_mut().for_each(|item| clear(item, names)),
            _ => (),
        }
    }
    let mut value = serde_json::from_str(text.get())?;
    clear(&mut value, names);
    to_raw_value(&value)
}

/// Appends values that stand under one name as one: objects and lists are joined.
///
/// # Errors
/// When one cannot be serialised; what was appended before is still there.
pub fn append_joined(
    line: &mut Vec<u8>,
    values: &mut dyn Iterator<Item = &dyn erased_serde::Serialize>,
) -> serde_json::Result<()> {
    let start = line.len();
    for value in values {
        let joint = line.len();
        append(line, value)?;
        join(line, start, joint);
    }
    Ok(())
}

/// Joins the object or list that begins at `joint` to the one that began at `start`; values of different kinds cannot
/// be joined, and the first one stays.
fn join(line: &mut Vec<u8>, start: usize, joint: usize) {
    if joint == start {
        return;
    }
    let ends = (line[start], line[joint - 1], line[joint], line[line.len() - 1]);
    match ends {
        (b'{', b'}', b'{', b'}') | (b'[', b']', b'[', b']') => {
            // A plugin's can have blanks.
            let is_empty = |part: &[u8]| part[1..part.len() - 1].iter().all(u8::is_ascii_whitespace);
            let left_is_empty = is_empty(&line[start..joint]);
            let right_is_empty = is_empty(&line[joint..]);
            match (left_is_empty, right_is_empty) {
                (_, true) => line.truncate(joint),
                (true, false) => drop(line.drain(start..joint)),
                (false, false) => {
                    line[joint - 1] = b',';
                    line.remove(joint);
                }
            }
        }
        _ => line.truncate(joint),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(parts: &[&str]) -> String {
        let mut line = b"x:".to_vec();
        for part in parts {
            let joint = line.len();
            line.extend_from_slice(part.as_bytes());
            join(&mut line, 2, joint);
        }
        String::from_utf8_lossy(&line[2..]).into_owned()
    }

    #[test]
    fn sections_of_one_name_become_one() {
        assert_eq!(joined(&[r#"{"a":1}"#, r#"{"b":2}"#]), r#"{"a":1,"b":2}"#);
        assert_eq!(joined(&["[1]", "[2,3]", "[4]"]), "[1,2,3,4]");
        assert_eq!(joined(&["[]", "[1]", "[]"]), "[1]");
        assert_eq!(joined(&["{}", "{}"]), "{}");
        assert_eq!(joined(&["{ }", r#"{"a":1}"#]), r#"{"a":1}"#);
        assert_eq!(joined(&[r#"{"a":1}"#, "{ }", r#"{ "b":2 }"#]), r#"{"a":1, "b":2 }"#);
        assert_eq!(joined(&["[ ]", "[1]", "[ ]"]), "[1]");
        assert_eq!(joined(&[r#"{"a":1}"#, "[1]"]), r#"{"a":1}"#);
    }

    #[test]
    fn numbers_have_at_most_six_decimals() {
        let text = |value: f64| {
            let mut line = Vec::new();
            append(&mut line, &value).map(|()| String::from_utf8_lossy(&line).into_owned()).ok()
        };
        assert_eq!(text(1.0 / 3.0).as_deref(), Some("0.333333"));
        assert_eq!(text(0.0).as_deref(), Some("0.0"));
        assert_eq!(text(1.23456789e-4).as_deref(), Some("0.000123"));
        assert_eq!(text(-1.5e-7).as_deref(), Some("0.0"));
        assert_eq!(text(1_234_567_890.123_456_7).as_deref(), Some("1234567890.123457"));
        assert_eq!(text(f64::NAN).as_deref(), Some("null"));
    }

    proptest! {
        #[test]
        fn no_number_has_more(mantissa in -1.0..1.0f64, exponent in -12..18i32) {
            let mut line = Vec::new();
            append(&mut line, &(mantissa * 10f64.powi(exponent)))?;
            let text = String::from_utf8_lossy(&line);
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let decimals = digits.split_once('.').map_or(0, |(_, decimals)| if decimals == "0" { 0 } else { decimals.len() });
            prop_assert!(decimals as i32 - exponent.parse::<i32>()? <= 6, "{text}");
        }

        #[test]
        fn rounding_moves_a_number_by_less_than_it_says(value in -1e12..1e12f64) {
            prop_assert!((round(value) - value).abs() <= 0.5e-6 + value.abs() * 1e-15);
        }

        #[test]
        fn joined_objects_hold_the_members_of_all(
            parts in prop::collection::vec(prop::collection::btree_map("[a-z]{1,4}", 0u32..9, 0..4), 1..5),
        ) {
            let texts: Vec<String> = parts.iter().map(|part| serde_json::to_string(part).unwrap_or_default()).collect();
            let text = joined(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            let whole: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text)?;
            let keys: std::collections::BTreeSet<&String> = parts.iter().flat_map(|part| part.keys()).collect();
            prop_assert_eq!(whole.len(), keys.len());
        }
    }
}
