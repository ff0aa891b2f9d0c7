//! Figures over the time of a run, in memory that does not grow with it.
//!
//! A bucket covers a number of samples, and keeps their least, highest and mean value. When there are too many buckets,
//! each two become one.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::rounded::Rounded;

/// Buckets of a figure, where there are not too many figures.
const MOST_BUCKETS: usize = 1024;
/// Buckets of all figures.
const ALL_BUCKETS: usize = 96 << 10;
/// Further figures are left out.
const MOST_SERIES: usize = 192;
/// Further figures of one chart are left out as well: nobody could tell so many lines apart.
const MOST_OF_CHART: usize = 16;

/// What a chart is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    /// Charts come in this order.
    pub(crate) rank: u8,
    pub(crate) title: &'a str,
    pub(crate) unit: &'a str,
    /// Where its axis ends, if that is known beforehand.
    pub(crate) top: Option<f32>,
}

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Job,
    Machine,
    Limit,
    Other,
}

/// Charts on one time axis.
#[derive(Debug)]
pub(crate) struct Timeline {
    charts: Vec<Chart>,
    series: usize,
    /// Seconds since the run's start at the end of each bucket.
    ends: Vec<f64>,
    now: f64,
    /// Samples of a bucket.
    width: u64,
    /// Samples of the bucket that is not full yet.
    filled: u64,
    /// How many figures of this sample have no line, and the most that had none in any sample.
    without_line: u64,
    left_out: u64,
}

#[derive(Debug)]
struct Chart {
    rank: u8,
    title: String,
    unit: String,
    top: Option<f32>,
    has_more: bool,
    series: Vec<Series>,
    /// For a list that leaves out zeros: the zeros so far, with which a new line begins.
    idle: Option<Series>,
}

/// Which line of which chart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    chart: usize,
    series: usize,
}

#[derive(Debug, Clone)]
struct Series {
    label: String,
    role: Role,
    buckets: Vec<Bucket>,
    open: OpenBucket,
}

/// NaN where the figure was not known. Packed, because there are a hundred thousand.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(2))]
struct Bucket {
    low: f32,
    high: f32,
    mean: f32,
    /// In how many samples it was known. At the largest count that fits, buckets weigh the same.
    count: u16,
}

impl Bucket {
    const UNKNOWN: Self = Self { low: f32::NAN, high: f32::NAN, mean: f32::NAN, count: 0 };

    fn with(self, other: Self) -> Self {
        let sum = |bucket: Self| match bucket.count {
            0 => 0.0,
            count => f64::from(bucket.mean) * f64::from(count),
        };
        let count = f64::from(self.count) + f64::from(other.count);
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            // NaN where neither is known.
            mean: ((sum(self) + sum(other)) / count) as f32,
            count: self.count.saturating_add(other.count),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OpenBucket {
    low: f64,
    high: f64,
    sum: f64,
    count: u64,
}

impl Default for OpenBucket {
    fn default() -> Self {
        Self { low: f64::INFINITY, high: f64::NEG_INFINITY, sum: 0.0, count: 0 }
    }
}

impl Chart {
    fn is_of(&self, about: About) -> bool {
        self.rank == about.rank && self.title == about.title && self.unit == about.unit
    }
}

impl Series {
    fn of(role: Role) -> Self {
        Self { label: String::new(), role, buckets: Vec::new(), open: OpenBucket::default() }
    }
}

impl OpenBucket {
    fn add(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        self.sum += value;
        self.count += 1;
    }

    fn bucket(self) -> Bucket {
        if self.count == 0 {
            return Bucket::UNKNOWN;
        }
        Bucket {
            low: self.low as f32,
            high: self.high as f32,
            mean: (self.sum / self.count as f64) as f32,
            count: self.count.try_into().unwrap_or(u16::MAX),
        }
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            charts: Vec::new(),
            series: 0,
            ends: Vec::new(),
            now: 0.0,
            width: 1,
            filled: 0,
            without_line: 0,
            left_out: 0,
        }
    }
}

impl Timeline {
    /// Seconds from the start to the end of the last sample.
    pub(crate) fn now(&self) -> f64 {
        self.now
    }

    /// The next sample begins, so many seconds after the one before.
    pub(crate) fn begin_sample(&mut self, secs: f64) {
        self.now += secs;
        self.filled += 1;
        self.without_line = 0;
    }

    /// Skips so many seconds, of which nothing is known.
    pub(crate) fn skip(&mut self, secs: f64) {
        if self.filled > 0 {
            self.close_bucket();
        }
        self.now += secs;
        self.close_bucket();
    }

    /// Adds a figure of the sample. A value that is unknown, or not finite, is left out.
    pub(crate) fn add(&mut self, about: About, label: &str, role: Role, value: impl Into<Option<f64>>) {
        let Some(value) = value.into().filter(|value: &f64| value.is_finite()) else { return };
        match self.line(about, label, role) {
            Some(line) => self.add_to(line, value),
            None => self.leave_out(),
        }
    }

    /// Adds a value to the line.
    pub(crate) fn add_to(&mut self, line: Line, value: f64) {
        self.charts[line.chart].series[line.series].open.add(value);
    }

    /// The line of a figure. `None` when there are too many other lines.
    pub(crate) fn line(&mut self, about: About, label: &str, role: Role) -> Option<Line> {
        let About { rank, title, unit, top } = about;
        let known = self.charts.iter().position(|chart| chart.is_of(about));
        if let Some(chart) = known {
            let chart_lines = &self.charts[chart].series;
            if let Some(series) = chart_lines.iter().position(|series| series.label == label) {
                return Some(Line { chart, series });
            }
            if self.series == MOST_SERIES || chart_lines.len() == MOST_OF_CHART {
                self.charts[chart].has_more = true;
                return None;
            }
        } else if self.series == MOST_SERIES {
            return None;
        }
        let chart = known.unwrap_or_else(|| {
            let (title, unit) = (title.to_owned(), unit.to_owned());
            self.charts.push(Chart { rank, title, unit, top, has_more: false, series: Vec::new(), idle: None });
            self.charts.len() - 1
        });
        let Chart { series: lines, idle, .. } = &mut self.charts[chart];
        let before = idle.clone().unwrap_or_else(|| Series::of(role));
        lines.push(Series { label: label.to_owned(), ..before });
        let series = lines.len() - 1;
        self.series += 1;
        self.keep_at_most(self.capacity());
        Some(Line { chart, series })
    }

    /// How many points all lines have.
    pub(crate) fn points(&self) -> usize {
        self.series * self.ends.len()
    }

    /// Counts a figure of the sample that has no line.
    pub(crate) fn leave_out(&mut self) {
        self.without_line += 1;
        self.left_out = self.left_out.max(self.without_line);
    }

    /// The most figures of one sample that have no line.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds the figures of a list that leaves out those that are 0 or small.
    pub(crate) fn add_list(&mut self, about: About, role: Role, figures: &BTreeMap<&str, f64>) {
        figures.iter().for_each(|(label, value)| self.add(about, label, role, *value));
        let Some(chart) = self.charts.iter_mut().find(|chart| chart.is_of(about)) else { return };
        let idle = chart.idle.get_or_insert_with(|| Series::of(role));
        let left_out = chart.series.iter_mut().filter(|series| !figures.contains_key(series.label.as_str()));
        left_out.chain([idle]).for_each(|series| series.open.add(0.0));
    }

    /// Ends the sample: all its figures have been added.
    pub(crate) fn end_sample(&mut self) {
        if self.filled >= self.width {
            self.close_bucket();
        }
    }

    /// Joins buckets until there are fewer than `most`.
    pub(crate) fn keep_at_most(&mut self, most: usize) {
        while self.ends.len() >= most.max(2) {
            self.width *= 2;
            let later = |ends: &[f64]| ends[ends.len() - 1];
            self.ends = self.ends.chunks(2).map(later).collect();
            for series in all_series(&mut self.charts) {
                let merged =
                    series.buckets.chunks(2).map(|two| two.iter().copied().fold(Bucket::UNKNOWN, Bucket::with));
                series.buckets = merged.collect();
            }
        }
    }

    fn capacity(&self) -> usize {
        if self.series * MOST_BUCKETS <= ALL_BUCKETS { MOST_BUCKETS } else { MOST_BUCKETS / 2 }
    }

    fn close_bucket(&mut self) {
        let before = self.ends.len();
        self.ends.push(self.now);
        self.filled = 0;
        for series in all_series(&mut self.charts) {
            // A line that began late is not known before.
            series.buckets.resize(before, Bucket::UNKNOWN);
            series.buckets.push(std::mem::take(&mut series.open).bucket());
        }
        self.keep_at_most(self.capacity());
    }

    /// What the page draws.
    pub(crate) fn drawing(&mut self) -> Drawing<'_> {
        if self.filled > 0 {
            self.close_bucket();
        }
        // To the millisecond.
        let ends = self.ends.iter().map(|end| (end * 1000.0).round() / 1000.0).collect();
        let mut charts: Vec<&Chart> = self.charts.iter().collect();
        charts.sort_unstable_by_key(|chart| (chart.rank, &chart.title, &chart.unit));
        let is_coarse = self.width > 1;
        let charts = charts.into_iter().map(|chart| DrawnChart::of(chart, is_coarse)).collect();
        Drawing { ends, samples_per_point: self.width, charts }
    }
}

fn all_series(charts: &mut [Chart]) -> impl Iterator<Item = &mut Series> {
    charts.iter_mut().flat_map(|chart| chart.series.iter_mut().chain(&mut chart.idle))
}

/// Charts as the page has them.
#[derive(Serialize)]
pub(crate) struct Drawing<'a> {
    ends: Vec<f64>,
    samples_per_point: u64,
    charts: Vec<DrawnChart<'a>>,
}

#[derive(Serialize)]
struct DrawnChart<'a> {
    title: &'a str,
    unit: &'a str,
    top: Option<f32>,
    has_more: bool,
    series: Vec<DrawnSeries<'a>>,
}

#[derive(Serialize)]
struct DrawnSeries<'a> {
    label: &'a str,
    role: Role,
    mean: Vec<Rounded>,
    /// Left out where each point is one sample: low and high are the mean then.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<Vec<Rounded>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<Vec<Rounded>>,
}

impl<'a> DrawnChart<'a> {
    fn of(chart: &'a Chart, is_coarse: bool) -> Self {
        let mut series: Vec<&Series> = chart.series.iter().collect();
        // Limits come last, and many devices have one.
        series.sort_by_key(|series| series.role == Role::Limit);
        let series = series.into_iter().map(|series| {
            let of = |value: fn(&Bucket) -> f32| series.buckets.iter().map(|bucket| Rounded(value(bucket))).collect();
            DrawnSeries {
                label: &series.label,
                role: series.role,
                mean: of(|bucket| bucket.mean),
                low: is_coarse.then(|| of(|bucket| bucket.low)),
                high: is_coarse.then(|| of(|bucket| bucket.high)),
            }
        });
        Self {
            title: &chart.title,
            unit: &chart.unit,
            top: chart.top,
            has_more: chart.has_more,
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const CPU: About<'static> = About { rank: 0, title: "CPU", unit: "cores", top: None };

    fn drawn(timeline: &mut Timeline) -> Json {
        serde_json::to_value(timeline.drawing()).unwrap()
    }

    fn add(timeline: &mut Timeline, values: &[(&str, f64)]) {
        timeline.begin_sample(1.0);
        values.iter().for_each(|(label, value)| timeline.add(CPU, label, Role::Job, *value));
        timeline.end_sample();
    }

    #[test]
    fn what_is_not_known_is_a_gap() {
        let mut timeline = Timeline::default();
        add(&mut timeline, &[("job", 1.0)]);
        add(&mut timeline, &[("late", 2.5), ("job", f64::NAN)]);
        timeline.skip(10.0);
        add(&mut timeline, &[("job", 3.0), ("late", 4.0)]);
        let drawn = drawn(&mut timeline);
        assert_eq!(drawn["ends"], json!([1.0, 2.0, 12.0, 13.0]));
        let series = &drawn["charts"][0]["series"];
        assert_eq!(series[0]["mean"], json!([1, null, null, 3]));
        assert_eq!(series[1]["mean"], json!([null, 2.5, null, 4]));
        assert_eq!(series[0].get("low"), None);
    }

    #[test]
    fn each_known_sample_of_a_point_counts_alike() {
        let mut timeline = Timeline::default();
        add(&mut timeline, &[("job", 3.0)]);
        add(&mut timeline, &[("job", 0.0)]);
        add(&mut timeline, &[("job", 0.0)]);
        add(&mut timeline, &[]);
        timeline.keep_at_most(2);
        let drawn = drawn(&mut timeline);
        let job = &drawn["charts"][0]["series"][0];
        assert_eq!((&job["mean"], &job["low"], &job["high"]), (&json!([1]), &json!([0]), &json!([3])));
    }

    /// A day of samples of more figures than there can be, and one of them is an extreme.
    #[test]
    fn a_day_keeps_its_extremes_in_bounds() {
        let mut timeline = Timeline::default();
        let titles: Vec<String> = (0..15).map(|number| number.to_string()).collect();
        for tick in 1..=8640 {
            timeline.begin_sample(10.0);
            let value = if tick == 4321 { 77.0 } else { f64::from(tick % 10) };
            for about in titles.iter().map(|title| About { title, ..CPU }) {
                titles.iter().for_each(|label| timeline.add(about, label, Role::Job, value));
            }
            timeline.end_sample();
            let series = || timeline.charts.iter().flat_map(|chart| &chart.series);
            let buckets: usize = series().map(|series| series.buckets.capacity()).sum();
            assert!(buckets <= ALL_BUCKETS && series().count() == MOST_SERIES, "{buckets} at {tick}");
        }
        assert!(ALL_BUCKETS * size_of::<Bucket>() <= 1_400_000, "1.4 MB");
        let drawn = drawn(&mut timeline);
        let series = &drawn["charts"][5]["series"][0];
        let of = |name: &str| series[name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
        assert!((256..=512).contains(&of("mean").count()));
        assert_eq!((of("high").fold(0.0, f64::max), of("low").fold(9.0, f64::min)), (77.0, 0.0));
        assert!(of("mean").all(|mean| (3.0..9.0).contains(&mean)));
        assert_eq!(drawn["ends"].as_array().unwrap().last(), Some(&json!(86_400.0)));
    }

    #[test]
    fn no_chart_has_more_lines_than_can_be_told_apart() {
        let mut timeline = Timeline::default();
        let labels: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let values: Vec<(&str, f64)> = labels.iter().map(|label| (label.as_str(), 1.0)).collect();
        add(&mut timeline, &values);
        let chart = &drawn(&mut timeline)["charts"][0];
        assert_eq!((chart["series"].as_array().unwrap().len(), &chart["has_more"]), (MOST_OF_CHART, &json!(true)));
        assert_eq!(timeline.left_out(), 100 - MOST_OF_CHART as u64);
    }

    #[test]
    fn limits_come_last() {
        let mut timeline = Timeline::default();
        for (label, role) in [("gpu0", Role::Other), ("limit", Role::Limit), ("gpu1", Role::Other)] {
            timeline.add(CPU, label, role, 1.0);
        }
        let drawn = drawn(&mut timeline);
        let labels: Vec<_> =
            (0..3).map(|index| drawn["charts"][0]["series"][index]["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["gpu0", "gpu1", "limit"]);
    }

    #[test]
    fn charts_for_which_there_is_no_room_are_counted() {
        let mut timeline = Timeline::default();
        let titles: Vec<String> = (0..MOST_SERIES + 30).map(|number| number.to_string()).collect();
        for count in [5, titles.len(), 7, titles.len()] {
            timeline.begin_sample(1.0);
            for title in &titles[..count] {
                timeline.add(About { title, ..CPU }, "one", Role::Other, 1.0);
            }
            timeline.end_sample();
        }
        assert_eq!((drawn(&mut timeline)["charts"].as_array().unwrap().len(), timeline.left_out()), (MOST_SERIES, 30));
    }
}
