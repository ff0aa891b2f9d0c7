//! Metrics as Prometheus has them: names, labels, and the text that it reads.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::names::{Instrument, Metric, Names};
use crate::points::Point;

/// What Prometheus calls units of UCUM.
const UNITS: [(&str, &str); 9] = [
    ("1", "ratio"),
    ("By", "bytes"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("J", "joules"),
    ("W", "watts"),
    ("ms", "milliseconds"),
    ("s", "seconds"),
    ("V", "volts"),
];

/// The forms of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' own, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The metrics of [`Names`] as Prometheus calls them.
#[derive(Debug)]
pub struct Families {
    /// By the number of the metric; `None` where another metric, of another kind, has the name.
    families: Vec<Option<Family>>,
    collisions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Family {
    /// Without `_total`.
    name: String,
    help: String,
    unit: Option<&'static str>,
    is_counter: bool,
}

impl Families {
    /// The families of these metrics.
    pub fn new(names: &Names) -> Self {
        let mut seen = HashSet::new();
        let mut collisions = Vec::new();
        let families = names.metrics().iter().map(|metric| {
            let family = Family::of(metric);
            if seen.insert(family.name.clone()) {
                return Some(family);
            }
            collisions.push(format!("{} is left out: another metric is {} for Prometheus", metric.name, family.name));
            None
        });
        Self { families: families.collect(), collisions }
    }

    /// What is left out, and why, in a sentence each.
    pub fn collisions(&self) -> &[String] {
        &self.collisions
    }

    /// The name of a metric, if it has one.
    pub fn name(&self, metric: usize) -> Option<String> {
        self.families.get(metric)?.as_ref().map(|family| format!("{}{}", family.name, family.suffix()))
    }

    /// Points and their values as text. Each has the labels `common` as well; `info` are those of `target_info`, if there are
    /// any.
    pub fn write(
        &self,
        points: &[(Point<'_>, f64)],
        common: &[(String, String)],
        info: &[(String, String)],
        form: Exposition,
    ) -> String {
        let mut out = String::new();
        let common = labels(common.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if !info.is_empty() {
            let info = labels(info.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let kind = if form == Exposition::Text { ("_info", "gauge") } else { ("", "info") };
            head(&mut out, &format!("target{}", kind.0), kind.1, "What the metrics are about", None);
            line(&mut out, "target_info", &[&common, &info], 1.0);
        }
        let mut by_metric: BTreeMap<usize, Vec<&(Point<'_>, f64)>> = BTreeMap::new();
        for point in points {
            by_metric.entry(point.0.metric).or_default().push(point);
        }
        for (metric, points) in by_metric {
            let Some(family) = self.families.get(metric).and_then(Option::as_ref) else { continue };
            let suffix = family.suffix();
            let (named, unit) = match form {
                Exposition::Text => (suffix, None),
                Exposition::OpenMetrics => ("", family.unit),
            };
            let kind = if family.is_counter { "counter" } else { "gauge" };
            head(&mut out, &format!("{}{named}", family.name), kind, &family.help, unit);
            let mut seen = HashSet::new();
            for (point, value) in points {
                let own = labels(point.attributes.iter().map(|(name, value)| (*name, &**value)));
                if seen.insert(own.clone()) {
                    line(&mut out, &format!("{}{suffix}", family.name), &[&common, &own], *value);
                }
            }
        }
        if form == Exposition::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

impl Family {
    fn of(metric: &Metric) -> Self {
        let is_counter = metric.instrument == Instrument::Counter;
        let mut name = name(&metric.name, ':');
        // What ends so is a part of a histogram.
        if let Some(of) = name.strip_suffix("_count") {
            name = format!("{of}_number");
        }
        let unit = metric.unit.split_once('/').map_or_else(
            || UNITS.iter().find(|(ucum, _)| *ucum == metric.unit).map(|(_, unit)| (*unit).to_owned()),
            |(of, per)| {
                let of = UNITS.iter().find(|(ucum, _)| *ucum == of).map_or("", |(_, unit)| unit);
                let per = UNITS.iter().find(|(ucum, _)| *ucum == per).and_then(|(_, unit)| unit.strip_suffix('s'))?;
                Some(format!("{of}{}per_{per}", if of.is_empty() { "" } else { "_" }))
            },
        );
        if let Some(unit) = unit.as_ref().filter(|unit| !name.ends_with(&format!("_{unit}"))) {
            let _ = write!(name, "_{unit}");
        }
        let unit = UNITS.iter().map(|(_, unit)| *unit).find(|one| unit.as_deref() == Some(one));
        Self { name: name.trim_end_matches("_total").to_owned(), help: metric.description.clone(), unit, is_counter }
    }

    fn suffix(&self) -> &'static str {
        if self.is_counter { "_total" } else { "" }
    }
}

/// A name of what Prometheus allows; `also` are characters of it beyond letters, digits and `_`.
fn name(of: &str, also: char) -> String {
    let mut name = String::with_capacity(of.len());
    if of.starts_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    for c in of.chars() {
        let c = if c.is_ascii_alphanumeric() || c == also { c } else { '_' };
        if c != '_' || !name.ends_with('_') {
            name.push(c);
        }
    }
    name
}

/// Attributes as labels, by name. Values of one label, which can come of several attributes, are put together.
pub(crate) fn label_map<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for (attribute, value) in attributes {
        let joined = by_name.entry(name(attribute, '_')).or_default();
        if !joined.is_empty() {
            joined.push(';');
        }
        joined.push_str(value);
    }
    by_name
}

/// `a="b",c="d"`.
fn labels<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let by_name = label_map(attributes);
    let each = by_name.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true)));
    each.collect::<Vec<_>>().join(",")
}

fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str, unit: Option<&str>) {
    // Writing to a String does not fail.
    let _ = writeln!(out, "# HELP {name} {}", escaped(help, false));
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = unit {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
}

fn line(out: &mut String, name: &str, labels: &[&str], value: f64) {
    let labels = labels.iter().filter(|labels| !labels.is_empty()).copied().collect::<Vec<_>>().join(",");
    let _ = match labels.is_empty() {
        true => writeln!(out, "{name} {value}"),
        false => writeln!(out, "{name}{{{labels}}} {value}"),
    };
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::Sums;

    fn text(sample: &serde_json::Value, form: Exposition) -> String {
        let names = Names::new(&Registry::new());
        let mut sums = Sums::default();
        let points = names.points(sample.as_object().unwrap());
        let points: Vec<_> = points.into_iter().map(|point| (point.clone(), sums.add(&point).unwrap())).collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Families::new(&names).write(&points, &[pair("job", "a\"b\\\n")], &[pair("host.name", "h")], form)
    }

    #[test]
    fn a_sample_is_text() {
        let sample = json!({
            "cpu": { "utime_secs": 1.5, "utilization_pct": 0.25 },
            "memory": { "used_mib": 2, "free_mib": 1 },
            "disk": [{ "device": "sda", "read_latency_ms": 2.0 }, { "device": "sda", "read_latency_ms": 3.0 }],
            "network": [{ "interface": "eth0", "rx_bytes_per_sec": 7.5, "tx_packets_per_sec": 1 }],
        });
        let expected = "\
# HELP target_info What the metrics are about
# TYPE target_info gauge
target_info{job=\"a\\\"b\\\\\\n\",host_name=\"h\"} 1
# HELP system_cpu_time_seconds_total CPU time of the machine
# TYPE system_cpu_time_seconds_total counter
system_cpu_time_seconds_total{job=\"a\\\"b\\\\\\n\",cpu_mode=\"user\"} 1.5
";
        let written = text(&sample, Exposition::Text);
        assert!(written.starts_with(&expected[..expected.find("# HELP system").unwrap()]), "{written}");
        assert!(written.contains(&expected[expected.find("# HELP system").unwrap()..]), "{written}");
        for line in [
            "system_memory_usage_bytes{job=\"a\\\"b\\\\\\n\",system_memory_state=\"used\"} 2097152",
            "resource_tracker_disk_read_latency_seconds{job=\"a\\\"b\\\\\\n\",system_device=\"sda\"} 0.002",
            "resource_tracker_network_rx_bytes_per_second{job=\"a\\\"b\\\\\\n\",network_interface_name=\"eth0\"} 7.5",
            "resource_tracker_network_tx_packets_per_second{job=\"a\\\"b\\\\\\n\",network_interface_name=\"eth0\"} 1",
        ] {
            assert!(written.contains(&format!("\n{line}\n")), "{line}: {written}");
        }
        assert!(!written.contains("0.003"), "two of one name would be refused");
        let open = text(&sample, Exposition::OpenMetrics);
        assert!(open.ends_with("\n# EOF\n") && open.contains("# TYPE target info\n"), "{open}");
        assert!(open.contains(
            "# TYPE system_cpu_time_seconds counter\n# UNIT system_cpu_time_seconds seconds\nsystem_cpu_time_seconds_total{"
        ));
    }

    #[test]
    fn names_are_those_that_prometheus_allows_and_each_is_one() {
        let names = Names::new(&Registry::new());
        let families = Families::new(&names);
        assert_eq!(families.collisions(), [""; 0]);
        for (number, metric) in names.metrics().iter().enumerate() {
            let name = families.name(number).unwrap();
            let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(
                !name.ends_with("_count")
                    && name.chars().all(is_good)
                    && !name.contains("__")
                    && !name.starts_with(char::is_numeric),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), metric.instrument == Instrument::Counter, "{name}");
        }
    }

    #[test]
    fn what_has_the_name_of_another_is_left_out_and_told() {
        let field = |unit: &str| json!({ "unit": unit, "kind": "gauge" });
        let schema = json!({ "properties": { "a": { "properties": { "b.c": field("bytes"), "b_c": field("bytes"), "1ä": field("x") } } } });
        let families = Families::new(&Names::of_schema(&schema));
        let names: Vec<_> = (0..3).map(|number| families.name(number)).collect();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(names, [name("resource_tracker_a_b_c_bytes"), None, name("resource_tracker_a_1_")]);
        assert_eq!(
            families.collisions(),
            ["resource_tracker.a.b_c is left out: another metric is resource_tracker_a_b_c_bytes for Prometheus"]
        );
        assert_eq!((name_of_label("1.x-y"), name_of_label("a__b")), ("_1_x_y".to_owned(), "a_b".to_owned()));
        assert_eq!(labels([("a.b", "x"), ("a_b", "y")].into_iter()), "a_b=\"x;y\"");
    }

    fn name_of_label(attribute: &str) -> String {
        name(attribute, '_')
    }
}
