//! What only grows, as sums from the start of the run.

use std::collections::HashMap;
use std::fmt::Write;

use crate::names::Kind;
use crate::points::Point;

/// So many series are summed up. What has more, because it has an attribute with ever new values, is left out.
pub const MOST_SERIES: usize = 10_000;

/// The sums of a run.
#[derive(Debug, Default)]
pub struct Sums {
    series: HashMap<String, Series>,
    is_full: bool,
}

#[derive(Debug, Default)]
struct Series {
    sum: f64,
    /// The value of the counter when it was read last.
    counter: Option<f64>,
}

impl Sums {
    /// The value of a point, in which that of a counter is the sum from the start of the run, or from the first sample that has
    /// it where only a counter of the kernel or a driver is known. A counter that is less than before began anew. `None`
    /// beyond [`MOST_SERIES`], and for a sum that was never known. Each point of a run is added once, in order.
    pub fn add(&mut self, point: &Point<'_>) -> Option<f64> {
        if point.kind == Kind::Value {
            return Some(point.value);
        }
        let key = key(point);
        if point.kind == Kind::Paused {
            return self.series.get(&key).map(|series| series.sum);
        }
        if !self.series.contains_key(&key) && self.series.len() >= MOST_SERIES {
            self.is_full = true;
            return None;
        }
        let series = self.series.entry(key).or_default();
        let before = series.counter.replace(point.value);
        series.sum += match point.kind {
            Kind::Value | Kind::Delta | Kind::Paused => point.value,
            Kind::Counter => {
                before.map_or(0.0, |before| if point.value < before { point.value } else { point.value - before })
            }
        };
        Some(series.sum)
    }

    /// Whether some were left out.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// The metric and its attributes. A zero byte is in no name, and a value that has one may be taken for another.
pub(crate) fn key(point: &Point<'_>) -> String {
    let mut key = point.metric.to_string();
    for (name, value) in &point.attributes {
        // Writing to a String does not fail.
        let _ = write!(key, "\0{name}\0{value}");
    }
    key
}
