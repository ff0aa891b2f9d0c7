use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Gauge, Info};

use super::shared_section;

/// At which frequency the CPUs run: `cpufreq`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpufreqMetrics {
    /// The CPUs that tell, as the kernel writes a list of them: `0-3,8`.
    #[schemars(transform = Info)]
    pub cpus: String,
    /// Frequency of each of them. `scaling_cur_freq`
    #[schemars(transform = Gauge("MHz").named("system.cpu.frequency", &[]).of_each("cpus", "cpu.logical_number"))]
    pub per_core_mhz: Vec<f64>,
    /// The lowest.
    #[schemars(transform = Gauge("MHz"))]
    pub min_mhz: Option<f64>,
    /// The mean.
    #[schemars(transform = Gauge("MHz"))]
    pub mean_mhz: Option<f64>,
    /// The highest.
    #[schemars(transform = Gauge("MHz"))]
    pub max_mhz: Option<f64>,
}

impl Section for CpufreqMetrics {
    const NAME: &'static str = "cpufreq";
}

shared_section!(CpufreqMetrics);
