//! Figures as people read them.

/// Memory, from MiB, in units of 1024.
pub fn memory(mib: f64) -> String {
    scaled(mib, 1024.0, &["MiB", "GiB", "TiB", "PiB"])
}

/// Bytes that went through something, in units of 1000.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A time, from seconds.
pub fn time(secs: f64) -> String {
    let whole = secs.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match whole {
        _ if secs < 0.0995 => format!("{:.0} ms", secs * 1000.0),
        _ if secs < 9.995 => format!("{secs:.2} s"),
        _ if secs < 59.95 => format!("{secs:.1} s"),
        0..3600 => format!("{minutes} min {} s", whole % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Three digits and the unit in which they are.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        // What would be shown as 1000 is shown in the next unit.
        if value < step.min(999.5) {
            break;
        }
        (value, unit) = (value / step, larger);
    }
    match value {
        _ if value.fract() == 0.0 || value >= 99.95 => format!("{value:.0} {unit}"),
        _ if value >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// A number with one decimal, or none if that is zero.
pub(crate) fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_as_people_read_them() {
        for (mib, text) in [
            (0.0, "0 MiB"),
            (0.5, "0.50 MiB"),
            (891.4, "891 MiB"),
            (1023.7, "1.00 GiB"),
            (1536.0, "1.50 GiB"),
            (3e6, "2.86 TiB"),
        ] {
            assert_eq!(memory(mib), text);
        }
        for (count, text) in
            [(0.0, "0 B"), (999.0, "999 B"), (999.7, "1.00 kB"), (123_456.0, "123 kB"), (12_345_678.0, "12.3 MB")]
        {
            assert_eq!(bytes(count), text);
        }
        for (secs, text) in [
            (0.0004, "0 ms"),
            (0.0423, "42 ms"),
            (0.1, "0.10 s"),
            (9.99, "9.99 s"),
            (42.34, "42.3 s"),
            (59.97, "1 min 0 s"),
            (133.4, "2 min 13 s"),
            (3599.6, "1 h 0 min"),
            (45_000.0, "12 h 30 min"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(time(secs), text);
        }
    }
}
