//! What a run took, in figures and in words.

use std::collections::BTreeMap;

use resource_tracker_metrics::CloudMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::Advice;
use crate::bound::Bound;
use crate::cgroup::CgroupSummary;
use crate::gpu::GpuSummary;
use crate::job::JobSummary;
use crate::machine::MachineSummary;
use crate::other_sections::Figure;
use crate::outcome::OutcomeSummary;
use crate::phases::PhaseSummary;
use crate::programs::ProgramSummary;
use crate::run::RunSummary;

/// A run that is shorter tells too little.
const SHORTEST_SECS: f64 = 1.0;
pub(crate) const FEWEST_SAMPLES: u64 = 3;

/// All that is told of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Summary {
    /// What the first sample says of the run. Null in a recording that begins later, or is older than that section.
    pub run: Option<RunSummary>,
    /// What the last sample says of its end. Null in a recording that ends before.
    pub outcome: Option<OutcomeSummary>,
    /// When it was sampled.
    pub times: Times,
    /// Whether all of the run is in the samples, as far as can be told. Where it is not, sums are of what is, and `problems` says
    /// what is missing.
    pub is_whole: bool,
    /// What the job used. Null when none was tracked.
    pub job: Option<JobSummary>,
    /// What the machine used, with the job.
    pub machine: MachineSummary,
    /// What each GPU did.
    pub gpus: Vec<GpuSummary>,
    /// The cloud that the machine is rented from. Null when nobody asked.
    pub cloud: Option<CloudMetrics>,
    /// What the cgroup says.
    pub cgroup: Option<CgroupSummary>,
    /// What the job used in each of the phases that it named.
    pub phases: Vec<PhaseSummary>,
    /// The programs of the job that used most CPU time, the busiest first, and the one that had most memory. Empty unless the
    /// recording lists the busiest processes (`top`).
    pub programs: Vec<ProgramSummary>,
    /// Figures of other sections, such as those of plugins, by their paths: `infiniband[mlx5_0/1].rx_bytes_total`.
    pub sections: BTreeMap<String, Figure>,
    /// What held the job up, where the figures say so.
    pub bound: Option<Bound>,
    /// What to ask for the next time.
    pub advice: Option<Advice>,
    /// What somebody who looks after the job wants to know.
    pub notes: Vec<String>,
    /// What is missing in the figures, or wrong with the recording.
    pub problems: Vec<String>,
}

/// When a run was sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Times {
    /// When the interval of the first sample began, in milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// When the last sample was taken, likewise.
    pub last_ms: u64,
    /// Time that the samples cover. Sum of `elapsed_secs`
    pub sampled_secs: f64,
    /// Samples that were read.
    pub samples: u64,
}

impl Summary {
    /// Leaves out what can be long, and says so.
    pub fn leave_out_details(&mut self) {
        self.sections.clear();
        self.phases.clear();
        self.programs.clear();
        if let Some(run) = &mut self.run {
            run.shorten();
        }
        let said =
            "figures of other sections, phases, programs and what is long in a command are left out: there is too much";
        self.problems.push(said.into());
    }

    /// The words of the command, if it is known that there was one.
    pub(crate) fn command(&self) -> Option<&[String]> {
        self.run.as_ref()?.command.as_deref().filter(|words| !words.is_empty())
    }

    /// How long the run took: the command's own time, where that is known.
    pub fn wall_secs(&self) -> f64 {
        self.known_wall_secs().unwrap_or(self.times.sampled_secs)
    }

    /// The same, where it is known.
    pub(crate) fn known_wall_secs(&self) -> Option<f64> {
        self.outcome.as_ref()?.wall_secs
    }

    /// Whether it was long enough, and had enough samples, to tell what it needs.
    pub(crate) fn tells_enough(&self) -> bool {
        self.wall_secs() >= SHORTEST_SECS && self.times.samples >= FEWEST_SAMPLES
    }

    /// Whether the command is known not to have exited with 0.
    pub fn has_failed(&self) -> bool {
        self.command().is_some() && self.outcome.as_ref().is_some_and(|outcome| outcome.exit_code != Some(0))
    }

    /// Whether the command is known to have ended well.
    pub fn is_success(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.exit_code == Some(0))
    }
}
