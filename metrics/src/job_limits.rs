use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Gauge, Info};

/// What the process tree that is tracked may use at most, in `cpu` beside what it uses. All fields are null when no process is
/// tracked; once nothing of it lives, they stay as they were.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobLimitMetrics {
    /// CPUs that the tree may run on, as the kernel writes a list of them: `0-3,8`. Those of the first thread of each process
    /// and of all threads of the root, which a `cpuset` or `taskset` can restrict. Looked at often at first, then every
    /// 5 s. `sched_getaffinity`
    #[schemars(transform = Info)]
    pub process_cpus_allowed: Option<String>,
    /// Cores that the tree can use at a time: the CPUs of `process_cpus_allowed`, or the quota of its cgroup where that is less.
    /// `sched_getaffinity`; `cgroup`, `cpu_limit_cores`
    #[schemars(transform = Gauge("cores"))]
    pub process_cpu_limit_cores: Option<f64>,
    /// Memory that the tree can have: the least of what its cgroup may use, of where that is slowed down, and of what the machine
    /// has. `cgroup`, `memory_limit_mib` and `memory_high_mib`; `memory`, `total_mib`
    #[schemars(transform = Gauge("MiB"))]
    pub process_memory_limit_mib: Option<f64>,
}

impl Section for JobLimitMetrics {
    const NAME: &'static str = "cpu";
}

crate::shared_section!(JobLimitMetrics);
