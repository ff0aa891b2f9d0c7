//! Units of a schema as UCUM has them.

/// A unit as OpenTelemetry writes it (UCUM), and how many of it one of the schema's unit is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    pub(crate) ucum: String,
    pub(crate) factor: f64,
}

/// Units that are not simply things that are counted: of the schema, of UCUM, and how many of the latter the former is.
const BASE: [(&str, &str, f64); 18] = [
    ("CPUs", "{cpu}", 1.0),
    ("GB", "By", 1e9),
    ("GPUs", "{gpu}", 1.0),
    ("MHz", "Hz", 1e6),
    ("Mbit/s", "By/s", 125e3),
    ("MiB", "By", 1_048_576.0),
    ("bytes", "By", 1.0),
    ("bytes/second", "By/s", 1.0),
    ("celsius", "Cel", 1.0),
    ("cores", "{cpu}", 1.0),
    ("instructions/cycle", "1", 1.0),
    ("joules", "J", 1.0),
    ("microseconds", "s", 1e-6),
    ("milliseconds", "s", 1e-3),
    ("nanoseconds", "s", 1e-9),
    ("percent", "1", 0.01),
    ("seconds", "s", 1.0),
    ("watts", "W", 1.0),
];

/// Plurals in `es`, and one that others know by two words.
const THINGS: [(&str, &str); 6] = [
    ("accesses", "access"),
    ("flushes", "flush"),
    ("indices", "index"),
    ("misses", "miss"),
    ("processes", "process"),
    ("switches", "context_switch"),
];

/// The unit that a schema has under this name.
pub(crate) fn unit(name: &str) -> Unit {
    if let Some((_, ucum, factor)) = BASE.iter().find(|(base, ..)| *base == name) {
        return Unit { ucum: (*ucum).to_owned(), factor: *factor };
    }
    let ucum = match name.split_once('/') {
        None => thing(name),
        Some((of, "second" | "s")) => format!("{}/s", thing(of)),
        Some((of, per)) => format!("{}/{}", thing(of), thing(per)),
    };
    Unit { ucum, factor: 1.0 }
}

/// What is counted, as one of it in braces. UCUM allows no braces and blanks within.
fn thing(name: &str) -> String {
    let one = THINGS.iter().find(|(several, _)| *several == name).map(|(_, one)| *one);
    let one = one.or_else(|| name.strip_suffix('s')).unwrap_or(name);
    let is_good = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
    format!("{{{}}}", one.chars().map(|c| if is_good(&c) { c } else { '_' }).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_ucum() {
        let cases = [
            ("MiB", "By", 1_048_576.0),
            ("percent", "1", 0.01),
            ("packets", "{packet}", 1.0),
            ("switches/second", "{context_switch}/s", 1.0),
            ("processes", "{process}", 1.0),
            ("words/letter", "{word}/{letter}", 1.0),
            ("a} b", "{a__b}", 1.0),
            ("", "{}", 1.0),
        ];
        for (name, ucum, factor) in cases {
            assert_eq!(unit(name), Unit { ucum: ucum.to_owned(), factor }, "{name}");
        }
    }
}
