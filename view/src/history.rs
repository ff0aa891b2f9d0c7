//! A run while it is shown: figures over all of its time, in memory that does not grow with it.

use resource_tracker_metrics::{Mark, OutcomeMetrics, RunMetrics};
use resource_tracker_report::{Span, Spans, printable};

use crate::moment::Moment;

/// So many points are kept; then older ones are joined.
const POINTS: usize = 16_384;
/// So many samples are kept whole.
const MOMENTS: usize = 1024;
/// What is nearer to one another than this, in seconds, counts as one time.
const SHORTEST: f64 = 1e-3;
const LONGEST_TITLE: usize = 500;

/// A figure over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Series {
    JobCores,
    MachineCores,
    CoreLimit,
    JobMemory,
    MachineMemory,
    MemoryLimit,
    DiskRead,
    DiskWritten,
    Received,
    Sent,
    GpuUsed,
    GpuMemory,
    WaitCpu,
    WaitMemory,
    WaitStorage,
}

const SERIES: usize = Series::WaitStorage as usize + 1;

/// The figures of one sample, or of some that followed each other; NaN where one is not known.
#[derive(Debug, Clone)]
struct Point {
    /// Their end, in seconds since the Unix epoch, and how long they are.
    at: f64,
    secs: f64,
    values: [f32; SERIES],
}

/// The highest of each figure.
#[derive(Debug)]
struct Peaks([f32; SERIES]);

/// One run.
#[derive(Debug, Default)]
pub(crate) struct History {
    points: Vec<Point>,
    moments: Vec<Moment>,
    phases: Spans,
    run: Option<RunMetrics>,
    pid: Option<i32>,
    host: Option<String>,
    outcome: Option<OutcomeMetrics>,
    peak_memory: Option<f64>,
    peaks: Peaks,
    /// Older points are joined until they are so long.
    span: f64,
    /// Older samples are kept whole only if they are so far from each other.
    distance: f64,
    /// What is added to times, so that they go on where the clock was set back.
    shift: f64,
    samples: u64,
    problem: Option<String>,
}

impl History {
    /// Whether a sample belongs to another run than those before.
    pub(crate) fn is_followed_by_another(&self, next: &Moment) -> bool {
        self.samples > 0 && (self.outcome.is_some() || next.run.is_some())
    }

    /// Adds the next sample.
    pub(crate) fn add(&mut self, mut moment: Moment) {
        moment.at += self.shift;
        if let Some(last) = self.points.last().map(|point| point.at)
            && moment.at < last
        {
            let next = last + moment.secs.max(0.001);
            self.shift += next - moment.at;
            moment.at = next;
            self.problem = Some("the clock was set back, or lines are out of order".into());
        }
        self.samples += 1;
        self.run = moment.run.take().or(self.run.take());
        self.outcome = moment.outcome.take().or(self.outcome.take());
        self.pid = moment.pid.or(self.pid);
        self.host = moment.host.take().or(self.host.take());
        self.problem = moment.problem.take().or(self.problem.take());
        for mark in std::mem::take(&mut moment.marks) {
            self.heed(&mark, moment.at - moment.secs, moment.at);
        }
        let peak = moment.job.as_ref().and_then(|job| job.peak_memory);
        self.peak_memory = [self.peak_memory, peak].into_iter().flatten().reduce(f64::max);
        let point = Point::of(&moment);
        self.peaks.add(&point.values);
        self.points.push(point);
        self.moments.push(moment);
        self.thin();
    }

    /// Adds a mark, moved into the interval of its sample.
    fn heed(&mut self, mark: &Mark, from: f64, to: f64) {
        self.phases.add(mark, (mark.at_ms as f64 / 1000.0 + self.shift).clamp(from.min(to), to));
    }

    /// Joins neighbours until there is room again. The newest quarter stays as it is.
    fn thin(&mut self) {
        while self.points.len() > POINTS {
            self.span = (2.0 * self.span).max(2.0 * self.length() / POINTS as f64).max(SHORTEST);
            let newest = self.points.split_off(POINTS - POINTS / 4);
            let mut joined: Vec<Point> = Vec::with_capacity(POINTS);
            for point in self.points.drain(..) {
                match joined.last_mut() {
                    Some(last) if point.at - last.at + last.secs <= self.span => last.join(&point),
                    _ => joined.push(point),
                }
            }
            joined.extend(newest);
            self.points = joined;
        }
        while self.moments.len() > MOMENTS {
            self.distance = (2.0 * self.distance).max(2.0 * self.length() / MOMENTS as f64).max(SHORTEST);
            let (distance, mut last, mut index) = (self.distance, f64::NEG_INFINITY, 0);
            self.moments.retain(|moment| {
                index += 1;
                let stays = index > MOMENTS - MOMENTS / 4 || moment.at - last >= distance;
                last = if stays { moment.at } else { last };
                stays
            });
        }
    }

    /// The highest of a figure in each of so many equal parts of a time; NaN where it is not known.
    pub(crate) fn columns(&self, series: Series, (from, to): (f64, f64), count: usize) -> Vec<f32> {
        let mut columns = vec![f32::NAN; count];
        let width = (to - from) / count as f64;
        if width.is_nan() || width <= 0.0 {
            return columns;
        }
        let first = self.points.partition_point(|point| point.at <= from);
        for point in self.points[first..].iter().take_while(|point| point.at - point.secs < to) {
            let place = |time: f64| (time - from) / width;
            // The columns whose middle is in the point, or else the column that the middle of the point is in.
            let [begin, end] =
                [point.at - point.secs, point.at].map(|edge| (place(edge) - 0.5).ceil().max(0.0) as usize);
            let middle = place(point.at - point.secs / 2.0).max(0.0) as usize;
            let (begin, end) = if begin < end { (begin, end) } else { (middle, middle + 1) };
            for column in columns.iter_mut().take(end).skip(begin) {
                *column = column.max(point.values[series as usize]);
            }
        }
        columns
    }

    /// The sample in whose interval that time is, or the next one that was kept whole; without a time the last one.
    pub(crate) fn at(&self, time: Option<f64>) -> Option<&Moment> {
        match time {
            None => self.moments.last(),
            Some(time) => {
                let after = self.moments.partition_point(|moment| moment.at < time - 1e-6);
                self.moments.get(after).or(self.moments.last())
            }
        }
    }

    /// Whether a figure was ever known.
    pub(crate) fn has(&self, series: Series) -> bool {
        !self.peak(series).is_nan()
    }

    /// The highest that a figure ever was; NaN where it was never known.
    pub(crate) fn peak(&self, series: Series) -> f32 {
        self.peaks.0[series as usize]
    }

    /// When the first sample began.
    pub(crate) fn first(&self) -> f64 {
        self.points.first().map_or(0.0, |point| point.at - point.secs)
    }

    /// When the last sample was taken.
    pub(crate) fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.at)
    }

    /// Time from the start of the first sample to the last one.
    pub(crate) fn length(&self) -> f64 {
        (self.last() - self.first()).max(0.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Whether a process tree is tracked.
    pub(crate) fn has_job(&self) -> bool {
        self.has(Series::JobCores) || self.has(Series::JobMemory)
    }

    /// The phases that the job has marked.
    pub(crate) fn phases(&self) -> &[Span] {
        self.phases.all()
    }

    pub(crate) fn outcome(&self) -> Option<&OutcomeMetrics> {
        self.outcome.as_ref()
    }

    pub(crate) fn peak_memory(&self) -> Option<f64> {
        self.peak_memory
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid
    }

    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// A problem with reading samples, if there was one since the last call.
    pub(crate) fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Time between two samples: as asked for, or of the last one.
    pub(crate) fn interval(&self) -> f64 {
        let asked = self.run.as_ref().map(|run| run.interval_secs).filter(|secs| *secs > 0.0);
        asked.or(self.points.last().map(|point| point.secs)).unwrap_or(1.0)
    }

    /// The command, if one was started.
    pub(crate) fn command(&self) -> Option<String> {
        let words = self.run.as_ref().map(|run| run.command.join(" ")).filter(|words| !words.is_empty())?;
        Some(printable(&words).chars().take(LONGEST_TITLE).collect())
    }
}

impl Default for Peaks {
    fn default() -> Self {
        Self([f32::NAN; SERIES])
    }
}

impl Peaks {
    fn add(&mut self, values: &[f32; SERIES]) {
        for (peak, value) in self.0.iter_mut().zip(values) {
            // `max` takes the number if one of the two is NaN.
            *peak = peak.max(*value);
        }
    }
}

impl Point {
    fn of(moment: &Moment) -> Self {
        let mut point = Self { at: moment.at, secs: moment.secs, values: [f32::NAN; SERIES] };
        let mut set = |series: Series, value: Option<f64>| {
            if let Some(value) = value {
                point.values[series as usize] = value as f32;
            }
        };
        let (job, cpu, memory) = (moment.job.as_ref(), moment.cpu.as_ref(), moment.memory.as_ref());
        set(Series::JobCores, job.and_then(|job| job.cores));
        set(Series::MachineCores, cpu.map(|cpu| cpu.cores));
        let machine = cpu.map(|cpu| cpu.per_core.len() as f64);
        set(Series::CoreLimit, job.and_then(|job| job.core_limit).or(machine));
        set(Series::JobMemory, job.and_then(|job| job.memory));
        set(Series::MachineMemory, memory.map(|memory| memory.used));
        set(Series::MemoryLimit, job.and_then(|job| job.memory_limit).or(memory.map(|memory| memory.total)));
        set(Series::DiskRead, sum(moment.disks.iter().map(|disk| disk.read)));
        set(Series::DiskWritten, sum(moment.disks.iter().map(|disk| disk.written)));
        set(Series::Received, sum(moment.networks.iter().map(|network| Some(network.received))));
        set(Series::Sent, sum(moment.networks.iter().map(|network| Some(network.sent))));
        let gpus = moment.gpus.iter();
        set(Series::GpuUsed, mean(gpus.clone().map(|gpu| gpu.used)));
        set(Series::GpuMemory, mean(gpus.map(|gpu| Some(100.0 * gpu.memory? / gpu.memory_total?))));
        let waiting = moment.waiting.as_ref();
        set(Series::WaitCpu, waiting.and_then(|waiting| waiting.cpu));
        set(Series::WaitMemory, waiting.and_then(|waiting| waiting.memory));
        set(Series::WaitStorage, waiting.and_then(|waiting| waiting.storage));
        point
    }

    /// Joins the next point to this one. Of each figure the highest is shown.
    fn join(&mut self, next: &Self) {
        self.secs += next.at - self.at;
        self.at = next.at;
        for (value, next) in self.values.iter_mut().zip(next.values) {
            *value = value.max(next);
        }
    }
}

/// The sum of the known values.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|sum, value| sum + value)
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for value in values.flatten().filter(|value| value.is_finite()) {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
pub(crate) mod tests {
    use resource_tracker_core::Sample;

    use super::*;

    /// A sample at this second, of a job.
    pub(crate) fn moment(second: f64, cores: f64, more: &str) -> Moment {
        let line = format!(
            r#"{{"timestamp_ms": {}, "elapsed_secs": 1, "cpu": {{"process_cores_used": {cores}, "process_memory_mib": 100}}{more}}}"#,
            (second * 1000.0) as u64
        );
        Moment::of(&Sample::from_json(&line).unwrap(), None)
    }

    fn history(cores: &[f64]) -> History {
        let mut history = History::default();
        for (second, cores) in cores.iter().enumerate() {
            history.add(moment(second as f64 + 1.0, *cores, ""));
        }
        history
    }

    #[test]
    fn columns_hold_what_was_highest() {
        let history = history(&[1.0, 3.0, 2.0, 5.0]);
        assert_eq!((history.first(), history.last()), (0.0, 4.0));
        assert_eq!(history.columns(Series::JobCores, (0.0, 4.0), 2), [3.0, 5.0]);
        assert_eq!(history.columns(Series::JobCores, (1.0, 2.0), 3), [3.0, 3.0, 3.0]);
        let around = history.columns(Series::JobCores, (-2.0, 6.0), 8);
        assert_eq!(around[2..6], [1.0, 3.0, 2.0, 5.0]);
        assert!([0, 1, 6, 7].iter().all(|column| around[*column].is_nan()));
        assert!(history.columns(Series::GpuUsed, (0.0, 4.0), 4).iter().all(|value| value.is_nan()));
        assert!(history.columns(Series::JobCores, (4.0, 4.0), 3).iter().all(|value| value.is_nan()));
        assert!(history.columns(Series::JobCores, (0.0, 4.0), 0).is_empty());
    }

    #[test]
    fn where_time_stands_still_there_is_room_as_well() {
        for (at, secs) in [(1000.0, 1.0), (1000.0, 0.0), (1.8e16, 1.0)] {
            let mut history = History::default();
            (0..2 * POINTS).for_each(|_| history.add(Moment { at, secs, ..Moment::default() }));
            assert!(history.points.len() <= POINTS && history.moments.len() <= MOMENTS, "{at} {secs}");
        }
    }

    #[test]
    fn a_long_run_takes_no_more_memory_and_keeps_its_extremes() {
        let mut history = History::default();
        for second in 1..=200_000_u32 {
            let cores = if second == 777 { 64.0 } else { 1.0 };
            let job = crate::moment::Job { cores: Some(cores), ..Default::default() };
            history.add(Moment { at: f64::from(second), secs: 1.0, job: Some(job), ..Moment::default() });
        }
        assert!(history.points.len() <= POINTS && history.moments.len() <= MOMENTS);
        assert!(history.points.len() > POINTS / 4 && history.moments.len() > MOMENTS / 4);
        assert_eq!((history.first(), history.last()), (0.0, 200_000.0));
        assert!(history.columns(Series::JobCores, (0.0, 1000.0), 10)[7] == 64.0, "the peak is still there");
        assert!(history.points.iter().all(|point| point.secs <= history.span.max(1.0)), "and where it was");
        let wide = history.columns(Series::JobCores, (0.0, 200_000.0), 100);
        assert!(wide.iter().all(|value| *value >= 1.0), "there is no hole");
        let newest = &history.points[history.points.len() - 1000..];
        assert!(newest.iter().all(|point| point.secs == 1.0), "what is new is whole");
        assert_eq!(history.at(None).unwrap().at, 200_000.0);
        assert!((history.at(Some(50_000.0)).unwrap().at - 50_000.0).abs() <= history.distance);
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on() {
        let mut history = history(&[1.0, 1.0]);
        let mark = r#", "marks": [{"name": "late", "kind": "next", "at_ms": 500}]"#;
        history.add(moment(1.0, 2.0, mark));
        history.add(moment(2.0, 3.0, ""));
        assert_eq!(history.last(), 4.0);
        assert_eq!(history.phases()[0].from, 2.5);
        assert!(history.take_problem().unwrap().starts_with("the clock was set back"));
    }

    #[test]
    fn two_samples_of_one_millisecond_follow_each_other() {
        let mut history = history(&[1.0]);
        history.add(Moment { secs: 0.0, ..moment(1.0, 2.0, "") });
        history.add(moment(2.0, 3.0, ""));
        assert_eq!((history.samples, history.last(), history.take_problem()), (3, 2.0, None));
    }

    #[test]
    fn phases_begin_and_end() {
        let mut history = History::default();
        history.add(moment(10.0, 1.0, r#", "marks": [{"name": "load", "kind": "next", "at_ms": 9500}]"#));
        history.add(moment(11.0, 1.0, r#", "marks": [{"name": "step", "kind": "begin", "at_ms": 10250}]"#));
        history.add(moment(12.0, 1.0, r#", "marks": [{"name": "train", "kind": "next", "at_ms": 99999999}]"#));
        history.add(moment(13.0, 1.0, r#", "marks": [{"name": "step", "kind": "end", "at_ms": 12500}, {"name": "x", "kind": "end", "at_ms": 12500}]"#));
        let told: Vec<_> = history.phases().iter().map(|phase| (phase.name.as_str(), phase.from, phase.to)).collect();
        assert_eq!(told, [("load", 9.5, Some(12.0)), ("step", 10.25, Some(12.5)), ("train", 12.0, None)]);
    }

    #[test]
    fn another_run_is_told_by_its_beginning_or_the_end_before() {
        let mut history = History::default();
        let run = r#", "run": {"id": "1", "command": ["a", "b\u001b"], "started_ms": 1, "interval_secs": 0.5, "version": "1", "labels": {}, "tags": {}}"#;
        let end = r#", "outcome": {"exit_code": 3, "signal": null, "wall_secs": 2, "samples": 2, "missed_samples": 0}"#;
        assert!(!history.is_followed_by_another(&moment(1.0, 1.0, run)));
        history.add(moment(1.0, 1.0, run));
        assert_eq!((history.command().as_deref(), history.interval()), (Some("a b "), 0.5));
        assert!(history.is_followed_by_another(&moment(2.0, 1.0, run)) && history.has_job());
        assert!(!history.is_followed_by_another(&moment(2.0, 1.0, "")));
        history.add(moment(2.0, 1.0, end));
        assert_eq!(history.outcome().and_then(|outcome| outcome.exit_code), Some(3));
        assert!(history.is_followed_by_another(&moment(3.0, 1.0, "")));
    }
}
