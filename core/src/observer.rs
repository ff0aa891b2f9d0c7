//! What is observed of the job, and of the machine's processes, before the sources are read.

use std::any::Any;
use std::time::{Duration, Instant};

/// The moment of an observation, at which the sources are read as well.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Moment {
    /// 0 for the baseline, then 1 for the first sample, and so on.
    pub number: u64,
    /// When the tick began, on the monotonic clock.
    pub at: Instant,
    /// Time since the last observation that succeeded; zero the first time.
    pub elapsed: Duration,
    /// Time between two samples.
    pub interval: Duration,
    /// Whether the run ends with it.
    pub last: bool,
    /// Samples that were due so far and were not taken, because the one before took too long.
    pub missed: u64,
}

impl Moment {
    /// One that is not the last: what a test of an observer needs.
    pub fn new(number: u64, at: Instant, elapsed: Duration, interval: Duration) -> Self {
        Self { number, at, elapsed, interval, last: false, missed: 0 }
    }
}

/// Looks at the job first at each tick, so that all sources see the same processes. A tracker has one observer at most,
/// and without one there is no job.
pub trait Observer: Send {
    /// Looks at the job as it is now.
    ///
    /// # Errors
    /// When it cannot be looked at. It is asked again later, with growing pauses; the sources see the job as it was, and
    /// without details.
    fn observe(&mut self, moment: &Moment) -> anyhow::Result<()>;

    /// Lends what the last observation has found.
    fn seen(&self) -> Observation<'_>;
}

/// What an observer has found.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Observation<'a> {
    /// The ids of all processes of the machine, in ascending order, when they were listed at this tick.
    pub processes: Option<&'a [i32]>,
    /// The job, if there is one.
    pub job: Option<ObservedJob<'a>>,
}

impl<'a> Observation<'a> {
    /// The processes of the machine, when they were listed, and the job.
    pub fn new(processes: Option<&'a [i32]>, job: Option<ObservedJob<'a>>) -> Self {
        Self { processes, job }
    }
}

/// The process tree that is tracked, as it was found.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ObservedJob<'a> {
    /// Process id of its root.
    pub root: i32,
    /// Whether the tracker started it. What it used before the baseline then belongs to the run as well.
    pub spawned: bool,
    /// The processes of it that are alive, in no particular order.
    pub members: &'a [i32],
    details: Option<&'a (dyn Any + Send + Sync)>,
}

impl<'a> ObservedJob<'a> {
    /// A job without details.
    pub fn new(root: i32, spawned: bool, members: &'a [i32]) -> Self {
        Self { root, spawned, members, details: None }
    }

    /// Adds details, which only the sources of the observer's own crate can read.
    pub fn with_details<T: Any + Send + Sync>(self, details: &'a T) -> Self {
        Self { details: Some(details), ..self }
    }

    /// The job as it was last observed, for a tick at which it could not be.
    pub(crate) fn without_details(self) -> Self {
        Self { details: None, ..self }
    }

    /// What the observer found beyond this, if it is a `T`. `None` as well when the job could not be observed at this tick.
    pub fn details<T: Any>(&self) -> Option<&'a T> {
        let details: &'a dyn Any = self.details?;
        details.downcast_ref()
    }
}
