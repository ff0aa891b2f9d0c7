use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Delta, Gauge};

use super::shared_section;

/// What the CPUs ran, and who waited for them: `run_queue`. Null when a counter began anew meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunQueueMetrics {
    /// Time that tasks waited for a CPU, added up over the tasks. `/proc/schedstat`, field 8 of each `cpu` line
    #[schemars(transform = Delta("seconds"))]
    pub wait_secs: Option<f64>,
    /// Times that a task was given a CPU. Field 9
    #[schemars(transform = Delta("turns"))]
    pub turns: Option<u64>,
    /// How long a task waited for its turn, on average; null when none had one.
    #[schemars(transform = Gauge("milliseconds"))]
    pub wait_ms_per_turn: Option<f64>,
}

impl Section for RunQueueMetrics {
    const NAME: &'static str = "run_queue";
}

shared_section!(RunQueueMetrics);
