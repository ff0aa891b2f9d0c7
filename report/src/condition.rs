//! Conditions on the figures of a run, or on their change against other runs: `peak_memory > +10%`, `cpu_time < 60s`.

use std::fmt;
use std::str::FromStr;

use crate::figures::{FIGURES, NamedFigure, Unit};

/// A figure against a limit.
#[derive(Debug, Clone)]
pub struct Condition {
    text: String,
    /// The place of the figure among all.
    pub(crate) place: usize,
    comparison: Comparison,
    pub(crate) limit: Limit,
}

/// What the figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// In the unit of the figure.
    Value(f64),
    /// As a change against the baseline: 0.1 is 10 % more.
    Change(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    NotEqual,
}

/// Longer signs come first, because they begin with the shorter ones.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

impl Condition {
    /// The figure that it is about.
    pub fn figure(&self) -> NamedFigure {
        FIGURES[self.place]
    }

    /// Whether a value or a change meets it.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let (Limit::Value(limit) | Limit::Change(limit)) = self.limit;
        match self.comparison {
            Comparison::Less => value < limit,
            Comparison::AtMost => value <= limit,
            Comparison::More => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Equal => value == limit,
            Comparison::NotEqual => value != limit,
        }
    }

    /// Whether there must be a baseline.
    pub fn needs_baseline(&self) -> bool {
        matches!(self.limit, Limit::Change(_))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = |at: usize| {
            let column = text[..at].chars().count() + 1;
            format!(
                "column {column}: it must be FIGURE, one of < <= > >= == !=, and a limit: peak_memory > +10%, cpu_time < 60s"
            )
        };
        let at = text.find(['<', '>', '=', '!']).ok_or_else(|| form(text.len()))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let place = FIGURES.iter().position(|figure| figure.name == name).ok_or_else(|| {
            let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
            format!("{name:?} is no figure; there are {}", names.join(", "))
        })?;
        let found = COMPARISONS.iter().find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
        let (comparison, limit) = found.ok_or_else(|| form(at))?;
        let limit = limit_of(limit.trim(), FIGURES[place])?;
        Ok(Self { text: text.trim().to_owned(), place, comparison, limit })
    }
}

/// `+10%` and `-5%` are changes; `60s` and `2GiB` values; a number alone is in the unit of the figure.
fn limit_of(text: &str, figure: NamedFigure) -> Result<Limit, String> {
    let end = text.find(|char: char| !(char.is_ascii_digit() || "+-.".contains(char))).unwrap_or(text.len());
    let (number, suffix) = (&text[..end], text[end..].trim());
    let value: f64 = number.parse().map_err(|_| format!("{text:?} is no limit: it must begin with a number"))?;
    if suffix == "%" {
        return Ok(Limit::Change(value / 100.0));
    }
    if number.starts_with(['+', '-']) {
        return Err(format!("{text:?} is no limit: a change is a share, as in +10%"));
    }
    let units = units(figure.unit);
    let factor = units.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| *factor);
    let factor = factor.ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        format!(
            "{suffix:?} is no unit of {}; there are {}% (a change)",
            figure.name,
            names.iter().map(|name| format!("{name}, ")).collect::<String>()
        )
    })?;
    Ok(Limit::Value(value * factor))
}

/// The suffixes that a limit can have.
fn units(unit: Unit) -> &'static [(&'static str, f64)] {
    const MIB: f64 = 1_048_576.0;
    match unit {
        Unit::Seconds => {
            &[("", 1.0), ("ms", 0.001), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)]
        }
        Unit::Mebibytes => &[
            ("", 1.0),
            ("KiB", 1.0 / 1024.0),
            ("MiB", 1.0),
            ("GiB", 1024.0),
            ("TiB", 1_048_576.0),
            ("K", 1.0 / 1024.0),
            ("M", 1.0),
            ("G", 1024.0),
            ("T", 1_048_576.0),
            ("kB", 1e3 / MIB),
            ("MB", 1e6 / MIB),
            ("GB", 1e9 / MIB),
            ("TB", 1e12 / MIB),
        ],
        Unit::Bytes => &[
            ("", 1.0),
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("KiB", 1024.0),
            ("MiB", MIB),
            ("GiB", 1024.0 * MIB),
            ("TiB", MIB * MIB),
        ],
        Unit::Joules => &[("", 1.0), ("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("Wh", 3600.0), ("kWh", 3.6e6)],
        Unit::Count => &[("", 1.0)],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_can_be_said() {
        for (text, name, limit) in [
            ("peak_memory > +10%", "peak_memory", Limit::Change(0.1)),
            ("peak_memory>-5 %", "peak_memory", Limit::Change(-0.05)),
            ("cpu_time < 60s", "cpu_time", Limit::Value(60.0)),
            ("wall_time <= 1.5 h", "wall_time", Limit::Value(5400.0)),
            ("peak_memory < 2GiB", "peak_memory", Limit::Value(2048.0)),
            ("disk_written >= 1MB", "disk_written", Limit::Value(1e6)),
            ("oom_kills != 0", "oom_kills", Limit::Value(0.0)),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!((FIGURES[condition.place].name, condition.limit), (name, limit), "{text}");
        }
        let condition: Condition = "cpu_time < 60s".parse().unwrap();
        assert!(condition.holds(59.9) && !condition.holds(60.0));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, problem) in [
            ("", "column 1: it must be FIGURE"),
            ("peak_memory", "column 12: it must be FIGURE"),
            ("peak_memory = 5", "column 13: it must be FIGURE"),
            ("memory > 5", "\"memory\" is no figure; there are wall_time, cpu_time"),
            ("peak_memory > ", "must begin with a number"),
            ("peak_memory > much", "must begin with a number"),
            ("peak_memory > 5s", "\"s\" is no unit of peak_memory; there are KiB, MiB"),
            ("cpu_time > 5..1s", "must begin with a number"),
            ("peak_memory > +200MiB", "a change is a share"),
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}", number in any::<f64>()) {
            let _ = text.parse::<Condition>();
            let _ = format!("cpu_time < {number}").parse::<Condition>();
        }
    }
}
