//! A line of a recording as a sample, without figures that cannot be.
//!
//! Nobody vouches for a recording: a value below zero, or above what any machine can have, is not taken for a figure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Sample, sample_schema};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::kinds::{Kinds, MetricKind};

/// No tracker writes longer sections. Once parsed, they take up to eighty times as much memory.
const LONGEST_SECTION: usize = 4 << 20;
/// No name is longer, nor any useful word of a command.
const LONGEST_TEXT: usize = 4096;
/// The most that the kernel can count, and more than there can be of anything.
const MOST: f64 = 9_223_372_036_854_775_807.0;
/// The most that there can be of some units.
const MOST_OF: [(&str, f64); 15] = [
    ("CPUs", 1e6),
    ("GB", 1e10),
    ("GPUs", 1e6),
    ("MHz", 1e6),
    // As many bytes as the kernel can count.
    ("MiB", 1e13),
    ("bytes/second", 1e15),
    ("celsius", 1e4),
    ("cores", 1e6),
    ("joules", 1e12),
    // Times since the Unix epoch as well.
    ("milliseconds", 1e14),
    ("percent", 1e5),
    ("processes", 1e9),
    ("seconds", 1e11),
    ("threads", 1e9),
    ("watts", 1e9),
];
/// Units whose values can be below zero: an unknown speed of a network is -1.
const SIGNED: [&str; 2] = ["celsius", "Mbit/s"];
/// Figures below this need not be looked up.
const PLAIN: std::ops::RangeInclusive<f64> = 0.0..=1e4;

/// The fields of the sections that are built in. What a plugin means by its units is its own affair.
static FIELDS: LazyLock<Kinds> = LazyLock::new(|| Kinds::of_schema(|| sample_schema("", &Registry::new())));

/// A sample that was recorded.
pub struct RecordedSample {
    /// The sample, in which figures that cannot be are null.
    pub sample: Sample,
    /// The values that were replaced: `cpu.process_rss_mib is 1e308`.
    pub impossible: Vec<String>,
}

/// Reads a line of a recording. Texts that are too long are cut.
///
/// # Errors
/// What the line is instead: the rest of a sentence that begins with its number.
pub fn sample_of(line: &[u8]) -> Result<RecordedSample, String> {
    if line.starts_with(b"timestamp,") {
        return Err("is of a CSV; only JSON Lines can be read (--format json)".into());
    }
    let text = std::str::from_utf8(line).map_err(|_| "is no text")?;
    if let Some(section) = longer_section(text) {
        return Err(format!("has a section {section:?} of more than {} MiB", LONGEST_SECTION >> 20));
    }
    let mut impossible = Vec::new();
    // An error ends the look at the figures, so the line must not pass: those after the error were not checked.
    let sample = is_to_be_cleared(text).and_then(|is_to_be_cleared| match is_to_be_cleared {
        false => Sample::from_json(text),
        true => {
            let mut value = serde_json::from_str(text)?;
            clear(&mut value, &mut String::new(), &mut impossible);
            Sample::from_json(&value.to_string())
        }
    });
    let sample = sample.map_err(|error| format!("is no JSON object that can be read: {error}"))?;
    match sample.timestamp().is_zero() {
        true => Err("has no timestamp_ms".into()),
        false => Ok(RecordedSample { sample, impossible }),
    }
}

/// What was left out while a recording was read: how often, and where first.
#[derive(Debug, Default, Clone)]
pub struct LeftOut {
    lines: u64,
    first_line: String,
    figures: u64,
    first_figure: String,
}

impl LeftOut {
    /// A line that is no sample, and what it is instead.
    pub fn add_line(&mut self, number: u64, problem: &str) {
        if self.lines == 0 {
            self.first_line = format!("line {number} {problem}");
        }
        self.lines += 1;
    }

    /// The figures of a line that cannot be.
    pub fn add_figures(&mut self, number: u64, impossible: &[String]) {
        if self.figures == 0
            && let Some(first) = impossible.first()
        {
            self.first_figure = format!("in line {number} {first}");
        }
        self.figures += impossible.len() as u64;
    }

    /// How many lines were left out.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How much was left out in all.
    pub fn count(&self) -> u64 {
        self.lines + self.figures
    }

    /// The first line that was left out, by its number, and what it is. Empty when none was.
    pub fn first_line(&self) -> &str {
        &self.first_line
    }

    /// A sentence for lines, and one for figures, if there were any. `of`: the file, as in " of run.jsonl".
    pub fn sentences<'a>(&'a self, of: &'a str) -> impl Iterator<Item = String> + 'a {
        let sentence = move |count: u64, one: &str, many: &str, first: &str| {
            let what = if count == 1 { format!("1 {one} was") } else { format!("{count} {many} were") };
            (count > 0).then(|| format!("{what} left out{of}: {first}"))
        };
        let lines = sentence(self.lines, "line", "lines", &self.first_line);
        let (one, many) = ("figure that cannot be", "figures that cannot be");
        lines.into_iter().chain(sentence(self.figures, one, many, &self.first_figure))
    }
}

/// Whether a field can have this value. `field` is its path: `disk[].read_bytes_total`.
fn is_possible(field: &str, value: f64) -> bool {
    if PLAIN.contains(&value) || FIELDS.of(field) == MetricKind::Info {
        return true;
    }
    let Some(unit) = FIELDS.unit(field) else { return true };
    let most = MOST_OF.iter().find(|(name, _)| *name == unit).map_or(MOST, |(_, most)| *most);
    let least = if SIGNED.contains(&unit) { -most } else { 0.0 };
    (least..=most).contains(&value)
}

/// The name of a section that is too long. A line that is no object is reported elsewhere.
fn longer_section(text: &str) -> Option<String> {
    if text.len() <= LONGEST_SECTION {
        return None;
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    members.into_iter().find(|(_, section)| section.get().len() > LONGEST_SECTION).map(|(name, _)| name)
}

/// Replaces values that cannot be with null, and lists them. Cuts texts that are too long.
fn clear(value: &mut Json, field: &mut String, impossible: &mut Vec<String>) {
    let length = field.len();
    match value {
        Json::Object(members) => {
            for (name, member) in members {
                push(field, name);
                clear(member, field, impossible);
                field.truncate(length);
            }
        }
        Json::Array(items) => {
            field.push_str("[]");
            items.iter_mut().for_each(|item| clear(item, field, impossible));
            field.truncate(length);
        }
        Json::Number(number) => {
            if !number.as_f64().is_some_and(|value| is_possible(field, value)) {
                impossible.push(format!("{field} is {number}"));
                *value = Json::Null;
            }
        }
        Json::String(text) if text.len() > LONGEST_TEXT => {
            let end = (0..=LONGEST_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push_str("...");
        }
        Json::Null | Json::Bool(_) | Json::String(_) => (),
    }
}

fn push(field: &mut String, name: &str) {
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(name);
}

/// Whether any value in it cannot be, or a text is too long. It builds nothing, because the answer is nearly always no.
fn is_to_be_cleared(text: &str) -> serde_json::Result<bool> {
    let (mut field, mut found) = (String::new(), false);
    Walk { field: &mut field, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_str(text))?;
    Ok(found)
}

struct Walk<'a> {
    field: &'a mut String,
    found: &'a mut bool,
}

impl Walk<'_> {
    fn figure(self, value: f64) {
        *self.found |= !is_possible(self.field, value);
    }

    fn inner(&mut self) -> Walk<'_> {
        Walk { field: self.field, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.figure(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.figure(value as f64);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.figure(value as f64);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        *self.found |= text.len() > LONGEST_TEXT;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let length = self.field.len();
        self.field.push_str("[]");
        while items.next_element_seed(self.inner())?.is_some() {}
        self.field.truncate(length);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let length = self.field.len();
        while members.next_key_seed(Name(self.field))?.is_some() {
            members.next_value_seed(self.inner())?;
            self.field.truncate(length);
        }
        Ok(())
    }
}

/// Adds the name of a member to the path.
struct Name<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        push(self.0, name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use resource_tracker_metrics::{Disks, ProcessMetrics};

    use super::*;

    fn read(sections: &str) -> RecordedSample {
        sample_of(format!(r#"{{"timestamp_ms": 1700000000000, "elapsed_secs": 1, {sections}}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        for (sections, impossible) in [
            (r#""cpu": {"process_rss_mib": 1e308}"#, "cpu.process_rss_mib is 1e"),
            (r#""cpu": {"process_gpu_utilized": 4294967295}"#, "cpu.process_gpu_utilized is 4294967295"),
            (
                r#""cpu": {"process_disk_read_bytes": 18446744073709551615}"#,
                "cpu.process_disk_read_bytes is 18446744073709551615",
            ),
            (r#""disk": [{}, {"utilization_pct": -0.5}]"#, "disk[].utilization_pct is -0.5"),
            (r#""outcome": {"wall_secs": -1e300}"#, "outcome.wall_secs is -1e"),
            (r#""pressure": {"cpu": {"some": {"interval_pct": 1e9}}}"#, "pressure.cpu.some.interval_pct is 1"),
        ] {
            let found = read(sections).impossible;
            assert!(found.len() == 1 && found[0].starts_with(impossible), "{found:?}");
        }
        let sample = read(r#""cpu": {"process_rss_mib": -1, "process_memory_mib": 7}, "disk": []"#).sample;
        let job = sample.read_all::<ProcessMetrics>().next().unwrap().unwrap().into_owned();
        assert_eq!((job.process_rss_mib, job.process_memory_mib), (None, Some(7.0)), "the others are as they were");
        assert!(sample.read_all::<Disks>().next().unwrap().unwrap().0.is_empty());
    }

    #[test]
    fn what_can_be_stays() {
        for sections in [
            r#""network": [{"speed_mbps": -1, "rx_bytes_total": 9000000000000000000}]"#,
            r#""outcome": {"exit_code": -1}, "marks": [{"at_ms": 1700000000000}], "pid": 4194304"#,
            r#""cpu": {"process_memory_mib": 1e7, "process_cores_used": 4096.5, "process_minor_faults": 1e12}"#,
            r#""plugin": {"balance": -1e300}, "text": "-1e308""#,
        ] {
            assert_eq!(read(sections).impossible, [""; 0], "{sections}");
        }
    }

    #[test]
    fn what_cannot_be_read_hides_nothing_that_comes_after() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for first in ["1e400", &deep] {
            let line =
                format!(r#"{{"a": {first}, "timestamp_ms": 1700000000000, "cpu": {{"process_peak_memory_mib": -5}}}}"#);
            let Err(problem) = sample_of(line.as_bytes()) else { panic!("{line}") };
            assert!(problem.starts_with("is no JSON object that can be read: "), "{problem}");
        }
        let zeros = "0,".repeat(LONGEST_SECTION / 2);
        let Err(problem) = sample_of(format!(r#"{{"timestamp_ms": 1, "zz": [{zeros}0]}}"#).as_bytes()) else {
            panic!()
        };
        assert_eq!(problem, r#"has a section "zz" of more than 4 MiB"#);
    }

    #[test]
    fn of_a_text_without_end_there_is_the_beginning() {
        let text = "ä".repeat(10_000);
        let read = read(&format!(r#""marks": [{{"name": "{text}"}}]"#));
        assert_eq!(read.impossible, [""; 0]);
        let mut line = Vec::new();
        read.sample.write_json(&mut line).unwrap();
        assert!(line.len() < 5000 && String::from_utf8(line).unwrap().contains("ää...\""));
    }

    #[test]
    fn what_was_left_out_is_said_once() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.sentences("").count(), 0);
        left_out.add_figures(3, &["a is -1".into(), "b is -2".into()]);
        left_out.add_figures(4, &[]);
        left_out.add_line(5, "is no text");
        left_out.add_figures(6, &["c is -3".into()]);
        let said: Vec<String> = left_out.sentences(" of x").collect();
        assert_eq!(
            said,
            [
                "1 line was left out of x: line 5 is no text",
                "3 figures that cannot be were left out of x: in line 3 a is -1"
            ]
        );
    }
}
