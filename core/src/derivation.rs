//! What follows from a whole sample.
//!
//! ```
//! use resource_tracker_core::unit::Gauge;
//! use resource_tracker_core::{
//!     Derivation, DerivationEntry, Sample, Section, Sections, Tick, register_derivation, register_section,
//! };
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// Memory beside the machine's own: `headroom`.
//! #[derive(Debug, Clone, Default, Serialize, JsonSchema)]
//! struct Headroom {
//!     /// Free for new programs, as often as the job's memory.
//!     #[schemars(transform = Gauge("jobs"))]
//!     jobs: Option<f64>,
//! }
//!
//! impl Section for Headroom {
//!     const NAME: &'static str = "headroom";
//! }
//!
//! #[derive(Deserialize)]
//! struct Memory {
//!     available_mib: f64,
//! }
//!
//! #[derive(Deserialize)]
//! struct Job {
//!     process_rss_mib: Option<f64>,
//! }
//!
//! #[derive(Default)]
//! struct HeadroomOfJob;
//!
//! impl Derivation for HeadroomOfJob {
//!     fn derive(&mut self, _: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
//!         let (memory, job) = (sample.read::<Memory>("memory"), sample.read::<Job>("cpu"));
//!         let used = job.and_then(|job| job.process_rss_mib).filter(|used| *used > 0.0);
//!         out.section::<Headroom>().jobs = memory.zip(used).map(|(memory, used)| memory.available_mib / used);
//!         Ok(())
//!     }
//! }
//!
//! register_section!(Headroom);
//! register_derivation!(DerivationEntry::new::<HeadroomOfJob>("headroom", "How often the job would fit beside itself"));
//! ```

use crate::sample::{Sample, Sections};
use crate::source::Tick;

/// A figure that follows from what several sources saw, such as what the job has of all GPUs together.
///
/// Derivations come after the sources, on the sampler's thread. They see the sample as the sources left it, and not what
/// other derivations add, so that their order has no meaning. One keeps no more than what it sums up itself, opens
/// nothing and waits for nothing.
pub trait Derivation: Send {
    /// Adds to `out` what follows from `sample`. It is called for every sample, and not for the baseline.
    ///
    /// # Errors
    /// Logged once; it is asked again later, with growing pauses.
    fn derive(&mut self, tick: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()>;
}

/// A derivation that is linked in.
pub struct DerivationEntry {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) build: fn() -> Box<dyn Derivation>,
}

inventory::collect!(DerivationEntry);

impl DerivationEntry {
    /// Describes derivation `D`. `name` is unique among derivations.
    pub const fn new<D: Derivation + Default + 'static>(name: &'static str, description: &'static str) -> Self {
        Self { name, description, build: || Box::<D>::default() }
    }

    /// What messages call it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it adds, in one line.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// One for a run.
    pub fn build(&self) -> Box<dyn Derivation> {
        (self.build)()
    }
}

/// Registers a derivation: `register_derivation!(DerivationEntry::new::<MyFigure>("my-figure", "What it adds"))`.
#[macro_export]
macro_rules! register_derivation {
    ($entry:expr) => {
        $crate::reexport::inventory::submit! { $entry }
    };
}
