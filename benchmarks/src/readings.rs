//! What one reading of a source takes.

use std::time::{Duration, Instant};

use anyhow::Context;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Host, Sections, Settings, Tick};

/// Nanoseconds of this thread's CPU time for one reading; `arguments` are a name, how often, and keys with values.
pub(crate) fn time(registry: Registry, arguments: &[String]) -> anyhow::Result<f64> {
    let (name, rest) = arguments.split_first().context("which source?")?;
    let (times, assignments) = rest.split_first().context("how often?")?;
    let times: u64 = times.parse()?;
    let mut settings = Settings::of(registry).switch("benchmark", name, true);
    for assignment in assignments {
        settings = settings.set_assignment("benchmark", assignment)?;
    }
    let mut sources = settings.sources()?;
    sources.retain(|(known, _)| known == name);
    let (_, config) = sources.pop().with_context(|| format!("no source {name}"))?;
    let mut source = config.build(&Host::default())?.with_context(|| format!("{name} has nothing to read"))?;
    let mut out = Sections::default();
    let second = Duration::from_secs(1);
    let mut read = |number| source.collect(&Tick::new(number, Instant::now(), second, second), &mut out);
    (0..times / 10).try_for_each(&mut read)?;
    let start = clock();
    (0..times).try_for_each(&mut read)?;
    Ok((clock() - start) / times as f64)
}

/// CPU time of this thread, in nanoseconds.
fn clock() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
