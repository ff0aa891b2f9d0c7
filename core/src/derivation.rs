//! Figures that follow from a whole sample.
//!
//! `plugins-example/headroom` is a complete one, to be linked or loaded.

use crate::sample::{Sample, Sections};
use crate::source::Tick;

/// A figure that follows from what several sources saw, such as what the job uses of all devices together.
///
/// Derivations come after the sources, on the sampler's thread. They see the sample as the sources left it, and not
/// what other derivations add, so that their order has no meaning. A derivation keeps no more than its own sums, opens
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

    /// Builds it for a run.
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
