use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Gauge, Info};

/// How the run ended: `outcome`. It is in the last sample, which is missing where the tracker was killed, and where one without
/// a command was told to stop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeMetrics {
    /// Code that the command exited with; null when a signal ended it, or when no command was started. `waitpid`
    #[schemars(transform = Info)]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the command. `waitpid`
    #[schemars(transform = Info)]
    pub signal: Option<i32>,
    /// Time from the start of the command, or of the tracker, to its end. `CLOCK_MONOTONIC`
    #[schemars(transform = Gauge("seconds"))]
    pub wall_secs: f64,
    /// Samples that were taken, with this one.
    #[schemars(transform = Gauge("samples"))]
    pub samples: u64,
    /// Samples that were due and were not taken, because the one before took too long.
    #[schemars(transform = Gauge("samples"))]
    pub missed_samples: u64,
}

impl Section for OutcomeMetrics {
    const NAME: &'static str = "outcome";
}

crate::shared_section!(OutcomeMetrics);
