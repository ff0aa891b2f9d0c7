//! How a run ended.

use resource_tracker_core::Outcome;
use resource_tracker_metrics::OutcomeMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ended, as far as it is known. All but the code and the signal is null where the last sample could not be taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct OutcomeSummary {
    /// Code that the command exited with. `outcome`, `exit_code`
    pub exit_code: Option<i32>,
    /// Number of the signal that ended it. `outcome`, `signal`
    pub signal: Option<i32>,
    /// Time from the start of the command, or of the tracker, to its end. `outcome`, `wall_secs`
    pub wall_secs: Option<f64>,
    /// Samples that were taken. `outcome`, `samples`
    pub samples: Option<u64>,
    /// Samples that were due and were not taken. `outcome`, `missed_samples`
    pub missed_samples: Option<u64>,
}

impl OutcomeSummary {
    /// From the outcome that the tracker gives to its sinks. `None` without a command.
    pub(crate) fn of_command(outcome: &Outcome) -> Option<Self> {
        let (exit_code, signal) = (outcome.exit_code, outcome.signal);
        (exit_code.is_some() || signal.is_some()).then(|| Self { exit_code, signal, ..Self::default() })
    }
}

impl From<&OutcomeMetrics> for OutcomeSummary {
    fn from(outcome: &OutcomeMetrics) -> Self {
        Self {
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            wall_secs: Some(outcome.wall_secs),
            samples: Some(outcome.samples),
            missed_samples: Some(outcome.missed_samples),
        }
    }
}
