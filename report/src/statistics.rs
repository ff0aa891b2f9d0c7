//! Statistics of one figure over a run, in one pass and in constant memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sketches_ddsketch::{Config, DDSketch};

/// How far a quantile may be from the truth, relative to it.
const QUANTILE_ERROR: f64 = 0.005;
/// Enough for values from a millionth to a billion at that error.
const BINS: u32 = 4096;
/// In quantiles, values nearer to zero than this count as zero.
const SMALLEST: f64 = 1e-6;

/// A figure that goes up and down: its mean over the time, its peak and its last value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    secs: f64,
    area: f64,
    peak: f64,
    last: f64,
    count: u64,
}

impl Default for Level {
    fn default() -> Self {
        Self { secs: 0.0, area: 0.0, peak: f64::NEG_INFINITY, last: 0.0, count: 0 }
    }
}

impl Level {
    /// Adds the value of an interval of this length. A value that is unknown, or not finite, is left out.
    pub(crate) fn add(&mut self, value: impl Into<Option<f64>>, secs: f64) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.secs += secs;
            self.area += value * secs;
            self.peak = self.peak.max(value);
            self.last = value;
            self.count += 1;
        }
    }

    /// The mean over the time in which it was known. `None` when it never was.
    pub(crate) fn mean(&self) -> Option<f64> {
        match self.secs > 0.0 {
            true => Some(self.area / self.secs),
            // The only sample took no time.
            false => self.last(),
        }
    }

    /// The highest value.
    pub(crate) fn peak(&self) -> Option<f64> {
        (self.count > 0).then_some(self.peak)
    }

    /// The last value.
    pub(crate) fn last(&self) -> Option<f64> {
        (self.count > 0).then_some(self.last)
    }
}

/// A [`Level`] with its quantiles, which are most of its cost: only figures that are shown with quantiles use it.
pub(crate) struct Series {
    level: Level,
    sketch: DDSketch,
}

impl Default for Series {
    fn default() -> Self {
        Self { level: Level::default(), sketch: DDSketch::new(Config::new(QUANTILE_ERROR, BINS, SMALLEST)) }
    }
}

impl Series {
    /// Adds the value of an interval of this length. A value that is unknown, or not finite, is left out.
    pub(crate) fn add(&mut self, value: impl Into<Option<f64>>, secs: f64) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.level.add(value, secs);
            self.sketch.add(value);
        }
    }

    /// The mean over the time in which it was known. `None` when it never was.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.level.mean()
    }

    /// The highest value.
    pub(crate) fn peak(&self) -> Option<f64> {
        self.level.peak()
    }

    /// The least value that this share of the samples does not exceed, to half a percent.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        // The sketch multiplies the share by the last rank and rounds down: this share gives the first value that so
        // many samples do not exceed.
        let count = self.level.count;
        let rank = ((share * count as f64).ceil() - 1.0).max(0.0);
        let share = if count > 1 { ((rank + 1e-6) / (count - 1) as f64).min(1.0) } else { 0.0 };
        let value = self.sketch.quantile(share).ok().flatten()?;
        // The sketch can be half a percent above the highest.
        Some(value.min(self.level.peak))
    }

    /// The mean, the quantiles and the peak. `None` when the figure was never known.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Some(Spread {
            mean: self.mean()?,
            p50: self.quantile(0.5)?,
            p95: self.quantile(0.95)?,
            p99: self.quantile(0.99)?,
            peak: self.peak()?,
        })
    }
}

/// How a figure was spread over the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Spread {
    /// Mean over the time.
    pub mean: f64,
    /// Half of the samples are not above it, to half a percent, as the next two.
    pub p50: f64,
    /// 95 % of the samples are not above it.
    pub p95: f64,
    /// 99 % of the samples are not above it.
    pub p99: f64,
    /// The highest value of a sample.
    pub peak: f64,
}

/// A sum of counts, one for each interval. It is unknown if a count is unknown after the first known one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Total<T> {
    sum: Option<T>,
    has_gap: bool,
}

/// What can be added up.
pub(crate) trait Amount: Copy {
    fn plus(self, more: Self) -> Self;
}

impl Amount for f64 {
    fn plus(self, more: Self) -> Self {
        self + more
    }
}

impl Amount for u64 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

impl<T: Amount> Total<T> {
    /// Adds what was counted in an interval.
    pub(crate) fn add(&mut self, counted: Option<T>) {
        match (self.sum, counted) {
            (Some(sum), Some(counted)) => self.sum = Some(sum.plus(counted)),
            (None, counted) => self.sum = counted,
            (Some(_), None) => self.has_gap = true,
        }
    }

    /// Adds the count of an interval. An unknown count means that there was nothing to count.
    pub(crate) fn add_if_any(&mut self, counted: Option<T>) {
        if counted.is_some() {
            self.add(counted);
        }
    }

    /// The sum. `None` if no count was known, or one was unknown after the first known one.
    pub(crate) fn sum(&self) -> Option<T> {
        self.sum.filter(|_| !self.has_gap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mean_is_over_the_time() {
        let mut series = Series::default();
        series.add(1.0, 3.0);
        series.add(5.0, 1.0);
        series.add(None, 100.0);
        series.add(f64::NAN, 100.0);
        assert_eq!((series.mean(), series.peak(), series.level.last()), (Some(2.0), Some(5.0), Some(5.0)));
    }

    #[test]
    fn nothing_is_known_of_nothing() {
        let mut series = Series::default();
        assert_eq!((series.mean(), series.peak(), series.quantile(0.5), series.spread()), (None, None, None, None));
        series.add(4.0, 0.0);
        assert_eq!(series.mean(), Some(4.0), "a sample at the very beginning");
    }

    #[test]
    fn a_sum_with_a_gap_is_not_known() {
        let sum = |counted: &[Option<u64>]| {
            let mut total = Total::default();
            counted.iter().for_each(|counted| total.add(*counted));
            total.sum()
        };
        assert_eq!(sum(&[None, Some(2), Some(3)]), Some(5), "it was not there yet");
        assert_eq!(sum(&[Some(2), None, Some(3)]), None);
        assert_eq!(sum(&[None, None]), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_that_of_the_sorted_values(values in prop::collection::vec(0.0..1e6f64, 1..300), share in 0.0..1.0f64) {
            let mut series = Series::default();
            values.iter().for_each(|value| series.add(*value, 1.0));
            let mut sorted = values;
            sorted.sort_unstable_by(f64::total_cmp);
            let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
            let (truth, found) = (sorted[rank - 1], series.quantile(share).unwrap());
            prop_assert!((found - truth).abs() <= 0.006 * truth + SMALLEST, "{found} of {truth}");
        }
    }
}
