//! What the job used in each of the phases that it named.

use resource_tracker_core::Sample;
use resource_tracker_metrics::{Mark, Marks, ProcessMetrics};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::readable::Readable;
use crate::spans::{OPEN, Open, shortened};

/// Phases with further names are left out.
const PHASES: usize = 1000;
/// Tolerance in seconds: between the end of a sample and the start of the next, and for marks made after their sample's
/// time.
const MOMENT: f64 = 0.1;

/// Sums over the phases.
#[derive(Default)]
pub(crate) struct Phases {
    phases: Vec<PhaseSummary>,
    open: Open<usize>,
    /// Up to this time, in seconds since the Unix epoch, usage is shared out.
    until: f64,
}

impl Phases {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        let marks = readable.first::<Marks>(sample);
        let is_between = self.open.all().next().is_none();
        if marks.is_none() && is_between {
            return;
        }
        let job = readable.first::<ProcessMetrics>(sample).map(|job| job.into_owned()).unwrap_or_default();
        let end = sample.timestamp().as_millis() as f64 / 1000.0;
        let start = end - secs;
        if is_between || (start - self.until).abs() > MOMENT {
            self.until = start;
        }
        let marks = || marks.iter().flat_map(|marks| &marks.0).map(|mark| (mark, mark.at_ms as f64 / 1000.0));
        let last = marks().map(|(_, at)| at.min(end + MOMENT)).fold(end.max(self.until), f64::max);
        let whole = last - self.until;
        // A sample of no length, or whose time was set back by a moment.
        if whole <= 0.0 {
            self.spend(0.0, 1.0, &job);
        }
        for (mark, at) in marks() {
            // Never backwards.
            self.spend_until(at.min(last), whole, &job);
            self.heed(mark);
        }
        self.spend_until(last, whole, &job);
        for phase in self.active() {
            let peak = &mut self.phases[phase].peak_memory_mib;
            *peak = [*peak, job.process_memory_mib].into_iter().flatten().reduce(f64::max);
        }
    }

    fn heed(&mut self, mark: &Mark) {
        let Self { phases, open, .. } = self;
        open.heed(mark, || begin(phases, mark));
    }

    fn active(&self) -> Vec<usize> {
        let mut active: Vec<usize> = self.open.all().copied().collect();
        // A phase that began twice counts once.
        active.sort_unstable();
        active.dedup();
        active
    }

    /// Adds the time up to `at` to the open phases, and its share of what the job used in `whole` seconds.
    fn spend_until(&mut self, at: f64, whole: f64, job: &ProcessMetrics) {
        let secs = (at - self.until).max(0.0);
        self.until = self.until.max(at);
        if secs > 0.0 {
            self.spend(secs, secs / whole, job);
        }
    }

    /// Adds time, and a share of what the job used.
    fn spend(&mut self, secs: f64, share: f64, job: &ProcessMetrics) {
        for phase in self.active() {
            let phase = &mut self.phases[phase];
            phase.secs += secs;
            let cpu = job.process_utime_secs.zip(job.process_stime_secs).map(|(user, system)| user + system);
            let sums = [
                (&mut phase.cpu_secs, cpu),
                (&mut phase.disk_read_bytes, job.process_disk_read_bytes.map(|bytes| bytes as f64)),
                (&mut phase.disk_write_bytes, job.process_disk_write_bytes.map(|bytes| bytes as f64)),
            ];
            // What is not known of no time at all is nothing.
            let counts = sums.into_iter().filter(|(_, value)| value.is_some() || secs > 0.0);
            counts.for_each(|(sum, value)| add(sum, share, value));
        }
    }

    /// Sentences on phases that were left out, or that ended without a beginning.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let left_out = self.open.left_out();
        let times = if left_out == 1 { "once".to_owned() } else { format!("{left_out} times") };
        let left_out = (left_out > 0)
            .then(|| format!("a phase was left out {times}: there are more than {PHASES} names, or {OPEN} at once"));
        let never_begun = self.open.never_begun().map(|(name, count)| {
            let more = if count > 1 { format!(" (and {} more times such a one)", count - 1) } else { String::new() };
            format!("phase {name} was ended, and had not begun{more}")
        });
        left_out.into_iter().chain(never_begun)
    }

    pub(crate) fn summary(&self) -> Vec<PhaseSummary> {
        self.phases.clone()
    }
}

/// The phase that this mark begins. `None` when there are too many.
fn begin(phases: &mut Vec<PhaseSummary>, mark: &Mark) -> Option<usize> {
    let name = shortened(&mark.name);
    let known = phases.iter().position(|phase| phase.name == name);
    let index = known.or_else(|| {
        (phases.len() < PHASES).then(|| {
            phases.push(PhaseSummary::new(name));
            phases.len() - 1
        })
    })?;
    phases[index].times += 1;
    Some(index)
}

/// Adds a share of a count to a sum, which becomes unknown if the count is unknown.
fn add(sum: &mut Option<f64>, share: f64, counted: Option<f64>) {
    *sum = sum.zip(counted).map(|(sum, counted)| sum + share * counted);
}

/// What the job used in a phase. A sum is null where a part of it is not known. A sample in which one began or ended is shared out by time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct PhaseSummary {
    /// What the job calls it.
    pub name: String,
    /// How often it began.
    pub times: u64,
    /// How long it was, all times together.
    pub secs: f64,
    /// CPU time of the job in it.
    pub cpu_secs: Option<f64>,
    /// The most memory that the job had resident at a sample in it, with pages of files, other than its peak over the run; null when it had none there. `process_memory_mib`
    pub peak_memory_mib: Option<f64>,
    /// Bytes that the job read from storage.
    pub disk_read_bytes: Option<f64>,
    /// Bytes that it wrote for storage.
    pub disk_write_bytes: Option<f64>,
}

impl PhaseSummary {
    /// One that is about to begin.
    fn new(name: String) -> Self {
        let nothing = Some(0.0);
        Self { name, cpu_secs: nothing, disk_read_bytes: nothing, disk_write_bytes: nothing, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use resource_tracker_metrics::MarkKind;

    use super::*;

    fn sample(second: u64, cpu: f64, memory: f64, marks: &str) -> Sample {
        let cpu =
            serde_json::json!({ "process_utime_secs": cpu, "process_stime_secs": 0.0, "process_memory_mib": memory });
        let line = format!(r#"{{"timestamp_ms": {}, "elapsed_secs": 1, "cpu": {cpu}{marks}}}"#, second * 1000);
        Sample::from_json(&line).unwrap()
    }

    #[test]
    fn a_sample_is_shared_out_by_time() {
        let mut phases = Phases::default();
        let mut readable = Readable::default();
        let one = r#", "marks": [{"name": "load", "kind": "next", "at_ms": 100250}]"#;
        let two = r#", "marks": [{"name": "train", "kind": "next", "at_ms": 102500}, {"name": "step", "kind": "begin", "at_ms": 102750}]"#;
        let end = r#", "marks": [{"name": "step", "kind": "end", "at_ms": 103500}, {"name": "nobody", "kind": "end", "at_ms": 103600}]"#;
        for sample in [
            sample(100, 5.0, 1.0, ""),
            sample(101, 1.0, 10.0, one),
            sample(102, 2.0, 20.0, ""),
            sample(103, 2.0, 30.0, two),
            sample(104, 1.0, 5.0, end),
        ] {
            phases.add(&sample, 1.0, &mut readable);
        }
        let told: Vec<_> = phases
            .summary()
            .into_iter()
            .map(|phase| (phase.name, phase.secs, phase.cpu_secs, phase.peak_memory_mib))
            .collect();
        let expected = [("load", 2.25, 3.75, 20.0), ("train", 1.5, 2.0, 30.0), ("step", 0.75, 1.0, 30.0)];
        let expected = expected.map(|(name, secs, cpu, memory)| (name, secs, Some(cpu), Some(memory)));
        assert_eq!(told, expected.map(|(name, secs, cpu, memory)| (name.to_owned(), secs, cpu, memory)));
        assert_eq!(readable.problems("figures").count(), 0);
        assert_eq!(phases.problems().collect::<Vec<_>>(), ["phase nobody was ended, and had not begun"]);
    }

    /// A mark is read a moment after the time of its sample, and times of samples are rounded.
    #[test]
    fn a_phase_is_as_long_as_its_marks_say() {
        let (mut phases, mut readable) = (Phases::default(), Readable::default());
        let lines = [
            r#"{"timestamp_ms": 1000, "elapsed_secs": 0.0504, "marks": [{"name": "one", "kind": "next", "at_ms": 1004}]}"#,
            r#"{"timestamp_ms": 1049, "elapsed_secs": 0.0501}"#,
            r#"{"timestamp_ms": 1101, "elapsed_secs": 0.0498, "marks": [{"name": "two", "kind": "next", "at_ms": 1103}]}"#,
            r#"{"timestamp_ms": 1150, "elapsed_secs": 0.0500}"#,
        ];
        for line in lines {
            let sample = Sample::from_json(line).unwrap();
            phases.add(&sample, sample.elapsed().as_secs_f64(), &mut readable);
        }
        let told = phases.summary().into_iter().map(|phase| (phase.name, (phase.secs * 1000.0).round()));
        assert_eq!(told.collect::<Vec<_>>(), [("one".to_owned(), 99.0), ("two".to_owned(), 47.0)]);
    }

    #[test]
    fn what_was_used_while_the_clock_was_set_back_is_not_lost() {
        let (mut phases, mut readable) = (Phases::default(), Readable::default());
        let begin = r#", "marks": [{"name": "one", "kind": "begin", "at_ms": 950}]"#;
        let end = r#", "marks": [{"name": "one", "kind": "end", "at_ms": 990}]"#;
        for (ms, marks) in [(1000, begin), (1040, ""), (990, end)] {
            let line = format!(
                r#"{{"timestamp_ms": {ms}, "elapsed_secs": 0.05, "cpu": {{"process_utime_secs": 0.02, "process_stime_secs": 0}}{marks}}}"#
            );
            phases.add(&Sample::from_json(&line).unwrap(), 0.05, &mut readable);
        }
        let [phase] = &phases.summary()[..] else { panic!("one phase") };
        assert!((phase.cpu_secs.unwrap() - 0.06).abs() < 1e-9, "{phase:?}");
    }

    #[test]
    fn what_is_not_known_of_a_phase_is_no_zero() {
        let (mut phases, mut readable) = (Phases::default(), Readable::default());
        let begin = r#", "marks": [{"name": "one", "kind": "begin", "at_ms": 100000}]"#;
        let next = r#", "marks": [{"name": "two", "kind": "begin", "at_ms": 102000}]"#;
        let without_job = Sample::from_json(r#"{"timestamp_ms": 102000, "elapsed_secs": 1}"#).unwrap();
        for sample in [sample(101, 1.0, 10.0, begin), without_job, sample(103, 2.0, 20.0, next)] {
            phases.add(&sample, 1.0, &mut readable);
        }
        let told = phases.summary().into_iter().map(|phase| (phase.name, phase.cpu_secs, phase.disk_read_bytes));
        // The samples have no word about disks.
        let expected = [("one".to_owned(), None, None), ("two".to_owned(), Some(2.0), None)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let mut phases = Vec::new();
        for number in 0..5000 {
            begin(&mut phases, &Mark { name: number.to_string(), ..Mark::default() });
        }
        assert_eq!(phases.len(), PHASES);
        let mut phases = Phases::default();
        let mut heed = |name: String, kind| phases.heed(&Mark { name, kind, at_ms: 0 });
        (0..5000).for_each(|number| heed(number.to_string(), MarkKind::Begin));
        let problem = |phases: &Phases| phases.problems().next();
        assert!(problem(&phases).unwrap().starts_with("a phase was left out 4900 times"), "{:?}", problem(&phases));
        let mut phases = Phases::default();
        let mut heed = |name: String| phases.heed(&Mark { name, kind: MarkKind::Next, at_ms: 0 });
        (0..PHASES).for_each(|number| heed(number.to_string()));
        assert_eq!(problem(&phases), None);
        let mut heed = |name: String| phases.heed(&Mark { name, kind: MarkKind::Next, at_ms: 0 });
        heed("one more".into());
        assert!(problem(&phases).unwrap().starts_with("a phase was left out once"), "{:?}", problem(&phases));
    }
}
