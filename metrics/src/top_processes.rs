use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::unit::{Attribute, Gauge};

use super::list_section;

list_section! {
    /// The processes of the job that used most CPU time, the busiest first: `top_processes`. On request only.
    TopProcesses(TopProcess), "top_processes"
}

/// A process of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopProcess {
    /// Process id.
    #[schemars(transform = Attribute("process.pid"))]
    pub pid: u32,
    /// The program's name, of which the kernel keeps 15 bytes. `/proc/PID/comm`
    #[schemars(transform = Attribute("process.executable.name"))]
    pub name: String,
    /// Cores that it used itself; at the sample that finds it, since its birth if that was earlier than the sample before. Its process
    /// CPU-time clock
    #[schemars(transform = Gauge("cores"))]
    pub cores_used: f64,
    /// Its resident memory. `/proc/PID/stat`, `rss`
    #[schemars(transform = Gauge("MiB"))]
    pub rss_mib: f64,
}
