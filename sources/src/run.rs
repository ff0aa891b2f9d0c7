//! The run itself: what it is, once, and how it ended.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use resource_tracker_core::{Cadence, Outcome, Schedule, Sections, Source, Tick};
use resource_tracker_metrics::{OutcomeMetrics, RunMetrics};

/// What is known of the run when it begins, for its first sample.
///
/// Nobody configures it: who starts the run adds it, with
/// [`Tracker::own_source`](resource_tracker_core::Tracker::own_source).
pub struct RunSource(Option<Box<dyn FnOnce() -> RunMetrics + Send>>);

impl RunSource {
    /// It is read once.
    pub const SCHEDULE: Schedule = Schedule::new(Cadence::Once);

    /// Tells of the run that this gives. It is called when the first sample is taken, so that no command waits for it.
    pub fn new(run: impl FnOnce() -> RunMetrics + Send + 'static) -> Self {
        Self(Some(Box::new(run)))
    }
}

impl Source for RunSource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if let Some(run) = self.0.take() {
            *out.section() = run();
        }
        Ok(())
    }
}

/// How the run ended, for its last sample. Who starts the run adds it, as [`RunSource`].
#[derive(Debug)]
pub struct OutcomeSource(RunEnd);

/// Where the end of a run is told, before its last sample.
#[derive(Debug, Clone, Default)]
pub struct RunEnd(Arc<OnceLock<(Outcome, Duration)>>);

impl RunEnd {
    /// The run has ended so, after this time.
    pub fn tell(&self, outcome: Outcome, wall: Duration) {
        // A run ends once.
        let _ = self.0.set((outcome, wall));
    }
}

impl OutcomeSource {
    /// It is read at the last tick.
    pub const SCHEDULE: Schedule = Schedule::new(Cadence::Every(Duration::MAX));

    /// Tells what is told here.
    pub fn new(end: RunEnd) -> Self {
        Self(end)
    }
}

impl Source for OutcomeSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if let Some((outcome, wall)) = self.0.0.get().filter(|_| tick.last) {
            *out.section::<OutcomeMetrics>() = OutcomeMetrics {
                exit_code: outcome.exit_code,
                signal: outcome.signal,
                wall_secs: wall.as_secs_f64(),
                samples: tick.number,
                missed_samples: tick.missed,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_end_is_told_at_the_last_tick() -> anyhow::Result<()> {
        let end = RunEnd::default();
        let mut source = OutcomeSource::new(end.clone());
        let mut tick = Tick::new(7, Instant::now(), Duration::from_secs(1), Duration::from_secs(1));
        tick.missed = 2;
        let mut outcome = |tick: &Tick| -> anyhow::Result<Option<OutcomeMetrics>> {
            let mut out = Sections::default();
            source.collect(tick, &mut out)?;
            Ok(out.get().cloned())
        };
        end.tell(Outcome::exited(3), Duration::from_millis(6500));
        assert_eq!(outcome(&tick)?, None);
        tick.last = true;
        let expected =
            OutcomeMetrics { exit_code: Some(3), signal: None, wall_secs: 6.5, samples: 7, missed_samples: 2 };
        assert_eq!(outcome(&tick)?, Some(expected));
        Ok(())
    }
}
