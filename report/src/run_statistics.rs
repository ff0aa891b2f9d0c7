//! Statistics of one run, from its samples as they come.

use std::time::Duration;

use resource_tracker_core::{Outcome, Sample};
use resource_tracker_metrics::{CloudMetrics, ProcessAccounting, RunMetrics};

use crate::cgroup::Cgroup;
use crate::conclusions::conclude;
use crate::gpu::GpuStatistics;
use crate::job::Job;
use crate::kinds::Kinds;
use crate::machine::Machine;
use crate::other_sections::OtherSections;
use crate::outcome::OutcomeSummary;
use crate::phases::Phases;
use crate::programs::Programs;
use crate::readable::Readable;
use crate::run::RunSummary;
use crate::summary::{Summary, Times};
use crate::units::time;

/// A sample that begins later than this after the one before may be of another run.
const GAP: Duration = Duration::from_secs(10);
/// A sample that begins later than this, and half of its own length, after the one before leaves a hole.
const HOLE: Duration = Duration::from_millis(100);

/// By how much two samples that follow one another can seem to overlap, because times are cut to milliseconds.
const TRUNCATED: Duration = Duration::from_millis(2);
const MIXED: &str = "runs that went on at the same time wrote to one file, and these figures are of all of them";

/// What is known of a run after the samples that were added: in one pass, in memory that does not grow with their number.
#[derive(Default)]
pub struct RunStatistics {
    run: Option<RunSummary>,
    outcome: Option<OutcomeSummary>,
    first: Duration,
    last: Duration,
    secs: f64,
    samples: u64,
    backwards: u64,
    /// Samples that begin well before the one before them ends.
    overlaps: u64,
    /// Time between samples that is in none of them.
    hole: Duration,
    job: Job,
    machine: Machine,
    gpus: GpuStatistics,
    cloud: Option<CloudMetrics>,
    cgroup: Cgroup,
    phases: Phases,
    programs: Programs,
    others: OtherSections,
    readable: Readable,
}

impl RunStatistics {
    /// Whether this sample is the first of another run. `in_other_file`: it is the first sample of a file, and so may
    /// be of another run. (The same holds for every sample of a run without a known beginning: older versions did not
    /// write it.)
    pub fn is_followed_by_another(&self, sample: &Sample, in_other_file: bool) -> bool {
        let begins = || sample.read_all::<RunMetrics>().next().is_some();
        let start = sample.timestamp().saturating_sub(sample.elapsed());
        let is_elsewhere = || in_other_file && start.abs_diff(self.last) > GAP;
        let is_later = || self.run.is_none() && start.saturating_sub(self.last) > GAP;
        self.samples > 0 && (self.outcome.is_some() || begins() || is_elsewhere() || is_later())
    }

    /// Adds the next sample.
    pub fn add(&mut self, sample: &Sample, kinds: &Kinds) {
        let secs = sample.elapsed().as_secs_f64();
        let start = sample.timestamp().saturating_sub(sample.elapsed());
        if self.samples == 0 {
            self.first = start;
        } else if sample.timestamp() < self.last {
            self.backwards += 1;
        } else if self.last.saturating_sub(start) > TRUNCATED + sample.elapsed() / 4 {
            self.overlaps += 1;
        } else if start.saturating_sub(self.last) > HOLE + sample.elapsed() / 2 {
            self.hole = self.hole.saturating_add(start.saturating_sub(self.last));
        }
        self.last = sample.timestamp();
        self.samples += 1;
        self.secs += secs;
        let Self { job, machine, gpus, cgroup, phases, programs, others, readable, .. } = self;
        job.add(sample, secs, readable);
        machine.add(sample, secs, readable);
        gpus.add(sample, secs, readable);
        cgroup.add(sample, secs, readable);
        phases.add(sample, secs, readable);
        programs.add(sample, secs, readable);
        others.add(sample, secs, kinds);
        if let Some(run) = readable.first_fields::<RunSummary>(sample) {
            self.run = Some(run);
        }
        if let Some(cloud) = readable.first::<CloudMetrics>(sample) {
            self.cloud = Some(cloud.into_owned());
        }
        if let Some(outcome) = readable.first_fields::<OutcomeSummary>(sample) {
            self.outcome = Some(outcome);
        }
    }

    /// Takes over how the command ended, from the tracker that waited for it. The last sample, which says more, may be
    /// missing.
    pub fn end(&mut self, outcome: &Outcome) {
        self.outcome = self.outcome.take().or_else(|| OutcomeSummary::of_command(outcome));
    }

    /// A sentence on samples of the run that are missing.
    fn missing(&self) -> Option<String> {
        let command = self.run.as_ref().and_then(|run| run.command.as_ref());
        let end = if self.run.is_some() { "end" } else { "beginning" };
        match self.outcome.as_ref().and_then(|outcome| outcome.samples) {
            Some(taken) if taken > self.samples => {
                Some(format!("{} of {taken} samples are here: sums are of these", self.samples))
            }
            Some(taken) if taken < self.samples => {
                Some(format!("{} samples are here, of which {taken} are of this run: {MIXED}", self.samples))
            }
            Some(_) => None,
            None if command.is_none() => Some(format!(
                "its {end} is not here, or it is of a version that tells of none: sums are of these samples"
            )),
            None if command.is_some_and(|words| !words.is_empty()) => {
                Some("its end is not here: sums are of these samples".into())
            }
            None if self.hole > Duration::ZERO => {
                let hole = time(self.hole.as_secs_f64());
                Some(format!("{hole} in between are not here, unless the clock was set: sums are of these samples"))
            }
            None => None,
        }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The summary of the samples so far.
    pub fn summary(&self) -> Summary {
        let mut problems: Vec<String> = self.readable.problems("figures").collect();
        // The clock is seldom set back twice; and a run of which all samples are here, and no more, is one.
        let is_exact = self.outcome.as_ref().is_some_and(|outcome| outcome.samples == Some(self.samples));
        let is_mixed = self.overlaps > 1 && !is_exact;
        if is_mixed {
            problems.push(format!("samples overlap, {} times: {MIXED}", self.overlaps));
        }
        let backwards = self.backwards + if is_mixed { 0 } else { self.overlaps };
        if backwards > 0 {
            let times = if backwards == 1 { "once" } else { &format!("{backwards} times") };
            problems.push(format!("the clock was set back, or lines are out of order, {times}"));
        }
        problems.extend(self.machine.problems());
        problems.extend(self.gpus.problem().into_iter().chain(self.phases.problems()));
        problems.extend(self.others.problems());
        let job = self.job.summary();
        if job.is_none() && self.run.as_ref().is_some_and(RunSummary::has_command) {
            problems.push("nothing is known of the command itself: the figures are those of the whole machine".into());
        }
        let missing = self.missing();
        let is_whole = missing.is_none() && !is_mixed;
        problems.extend(missing);
        let is_own = job.as_ref().is_some_and(|job| job.cpu_accounting == Some(ProcessAccounting::Cgroup));
        conclude(Summary {
            run: self.run.clone(),
            // It may be that of another run.
            outcome: self.outcome.clone().filter(|_| !is_mixed),
            times: Times {
                first_ms: self.first.as_millis() as u64,
                last_ms: self.last.as_millis() as u64,
                sampled_secs: self.secs,
                samples: self.samples,
            },
            is_whole,
            job,
            machine: self.machine.summary(),
            gpus: self.gpus.summary(),
            cloud: self.cloud.clone(),
            cgroup: self.cgroup.summary(is_own),
            phases: self.phases.summary(),
            programs: self.programs.summary(),
            sections: self.others.summary(),
            bound: None,
            advice: None,
            notes: Vec::new(),
            problems,
        })
    }
}
