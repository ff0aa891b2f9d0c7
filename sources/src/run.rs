//! What the run is called, once.

use resource_tracker_core::{Cadence, Job, Schedule, Sections, Source, Tick};
use resource_tracker_metrics::RunMetrics;

/// Labels and tags of the run, for its first sample.
///
/// Nobody configures it: who starts the run adds it, with
/// [`Tracker::own_source`](resource_tracker_core::Tracker::own_source), when there is something to tell.
#[derive(Debug)]
pub struct RunSource(RunMetrics);

impl RunSource {
    /// It is read once.
    pub const SCHEDULE: Schedule = Schedule::new(Cadence::Once);

    /// `None` when the job is called nothing.
    pub fn of(job: &Job) -> Option<Self> {
        RunMetrics::of(job).map(Self)
    }
}

impl Source for RunSource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        out.section::<RunMetrics>().clone_from(&self.0);
        Ok(())
    }
}
