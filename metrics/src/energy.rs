use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::{Attribute, Delta, Gauge};

use super::shared_section;

/// Energy that the machine used, by domain (RAPL). A package contains its cores; `psys`, where there is one, contains
/// all; so they are not to be added up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Energy(pub Vec<EnergyMetrics>);

impl Section for Energy {
    const NAME: &'static str = "energy";

    fn without_deltas(&self) -> Option<Self> {
        let mut copy = self.clone();
        copy.0.iter_mut().for_each(|domain| domain.joules = None);
        Some(copy)
    }
}

shared_section!(Energy);

/// One domain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyMetrics {
    /// Name in `/sys/class/powercap`, such as `intel-rapl:0:1`.
    #[schemars(transform = Attribute("hw.id"))]
    pub domain: String,
    /// What it measures, such as `package-0`, `core`, `dram`. `name`
    #[schemars(transform = Attribute("hw.name"))]
    pub name: String,
    /// Energy used. Null when the counter fell and no wrap can be the reason, because that would be more than 2000 W: it
    /// began anew. `energy_uj`, with its wrap at `max_energy_range_uj`
    #[schemars(transform = Delta("joules").named("hw.energy", &[("hw.type", "cpu")]))]
    pub joules: Option<f64>,
    /// Power on average; null as above.
    #[schemars(transform = Gauge("watts").named("hw.power", &[("hw.type", "cpu")]))]
    pub watts: Option<f64>,
}
