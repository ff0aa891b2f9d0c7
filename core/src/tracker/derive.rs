//! The last stage of a tick: what follows from the sample as the sources left it.

use std::sync::Arc;

use crate::derivation::Derivation;
use crate::guard::Guard;
use crate::pool::Pool;
use crate::sample::{Sample, Sections};
use crate::source::Tick;

/// The derivations of a run.
#[derive(Default)]
pub(super) struct Derivations {
    runners: Vec<Runner>,
    /// What they added to one sample.
    derived: Vec<Arc<Sections>>,
}

struct Runner {
    guard: Guard,
    /// Until the run ends.
    derivation: Option<Box<dyn Derivation>>,
    pool: Pool<Sections>,
}

impl Derivations {
    pub(super) fn add(&mut self, name: &str, derivation: Box<dyn Derivation>) {
        let guard = Guard::new(format!("derivation {name}"));
        self.runners.push(Runner { guard, derivation: Some(derivation), pool: Pool::new() });
    }

    /// Adds to the sample what follows from it. No derivation sees what another one adds.
    pub(super) fn complete(&mut self, tick: &Tick, sample: &mut Sample) {
        self.derived.extend(self.runners.iter_mut().filter_map(|runner| runner.derive(tick, sample)));
        self.derived.drain(..).for_each(|part| sample.parts.push(part));
    }
}

impl Runner {
    fn derive(&mut self, tick: &Tick, sample: &Sample) -> Option<Arc<Sections>> {
        let Self { guard, derivation, pool } = self;
        let derivation = derivation.as_mut()?;
        guard.call(tick.at, || {
            let (sections, result) = pool.fill(|sections: &mut Sections| {
                sections.clear();
                derivation.derive(tick, sample, sections)
            });
            result.map(|()| sections)
        })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.guard.end(self.derivation.take());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use schemars::JsonSchema;
    use serde::Serialize;

    use super::*;
    use crate::sample::Section;

    #[derive(Clone, Debug, Default, Serialize, JsonSchema)]
    struct Count(u64);

    impl Section for Count {
        const NAME: &'static str = "count";
    }

    /// The sum of all counts, at ticks that are no multiple of three.
    struct Sum;

    impl Derivation for Sum {
        fn derive(&mut self, tick: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
            anyhow::ensure!(!tick.number.is_multiple_of(3), "not now");
            out.section::<Count>().0 = sample.all::<Count>().map(|count| count.0).sum();
            Ok(())
        }
    }

    fn tick(number: u64) -> Tick<'static> {
        let second = Duration::from_secs(1);
        Tick::new(number, Instant::now() + second * 10 * number as u32, second, second)
    }

    #[test]
    fn each_sees_what_the_sources_saw_and_nothing_else() {
        let mut derivations = Derivations::default();
        derivations.add("one", Box::new(Sum));
        derivations.add("two", Box::new(Sum));
        let mut counts_at = |number: u64| {
            let mut sections = Sections::default();
            sections.section::<Count>().0 = number;
            let mut sample = Sample::of(sections);
            derivations.complete(&tick(number), &mut sample);
            sample.all::<Count>().map(|count| count.0).collect::<Vec<_>>()
        };
        assert_eq!(counts_at(7), [7, 7, 7]);
        assert_eq!(counts_at(9), [9], "what fails is left out");
        assert_eq!(counts_at(10), [10, 10, 10]);
    }
}
