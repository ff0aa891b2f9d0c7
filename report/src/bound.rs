//! What a job was held up by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What held the job up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Bound {
    /// What there was too little of.
    pub by: Resource,
    /// By which figures.
    pub because: String,
}

/// What a job can be held up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resource {
    /// The quota of its cgroup.
    CpuLimit,
    /// All cores that it may use.
    Cpu,
    /// One core: what it does is not done in parallel.
    OneCore,
    /// Memory.
    Memory,
    /// A CPU to run on, while others had it, or other threads of its own.
    Contention,
    /// Storage.
    Disk,
    /// The GPUs.
    Gpu,
    /// Something that the figures do not show: another machine, a lock, a person, a clock.
    Waiting,
}
