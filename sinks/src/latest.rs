//! The latest sample of a run, as metrics.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Run, Sample};
use resource_tracker_telemetry::{MOST_SERIES, Names, Point, Resource, Sums};
use serde_json::{Map, Value as Json};

/// The section that is in the first sample alone.
const ONCE: &str = "host";

/// Made when the first sample is there, so that the command need not wait for it.
type LazyNames = LazyLock<Names, Box<dyn FnOnce() -> Names + Send>>;

/// The latest sample, and the sums up to it.
pub(crate) struct Latest {
    /// The sink, in warnings.
    sink: &'static str,
    names: LazyNames,
    sums: Sums,
    resource: Resource,
    /// Attributes that are as the user says, whatever a sample knows.
    fixed: Vec<(String, String)>,
    sample: Map<String, Json>,
    /// When it was taken, since 1970.
    time: Duration,
    /// Values of its points.
    values: Vec<Option<f64>>,
    line: Vec<u8>,
    is_bound_said: bool,
}

impl Latest {
    pub(crate) fn new(sink: &'static str, registry: &Registry) -> Self {
        let registry = registry.clone();
        Self {
            sink,
            names: LazyLock::new(Box::new(move || Names::new(&registry))),
            sums: Sums::default(),
            resource: Resource::default(),
            fixed: Vec::new(),
            sample: Map::new(),
            time: Duration::ZERO,
            values: Vec::new(),
            line: Vec::new(),
            is_bound_said: false,
        }
    }

    pub(crate) fn begin(&mut self, run: &Run) {
        self.resource = Resource::of_run(run);
    }

    /// Sets attributes of what the metrics are about. Samples know better what the service is, which is the job.
    pub(crate) fn set(&mut self, attributes: &[(String, String)]) {
        attributes.iter().for_each(|(name, value)| _ = self.resource.set(name, value));
        self.fixed = attributes.iter().filter(|(name, _)| !name.starts_with("service.")).cloned().collect();
    }

    pub(crate) fn take(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line.clear();
        sample.write_json(&mut self.line).context("a sample cannot be written")?;
        let mut next: Map<String, Json> = serde_json::from_slice(&self.line).context("a sample is no JSON")?;
        self.resource.learn(&next);
        self.fixed.iter().for_each(|(name, value)| _ = self.resource.set(name, value));
        // Where the clock was set back, time goes on all the same.
        let time = sample.timestamp();
        self.time = if time > self.time { time } else { self.time + sample.elapsed() };
        if let (false, Some(once)) = (next.contains_key(ONCE), self.sample.remove(ONCE)) {
            next.insert(ONCE.into(), once);
        }
        self.sample = next;
        let points = self.names.points(&self.sample);
        self.values = points.iter().map(|point| self.sums.add(point)).collect();
        if self.sums.is_full() && !std::mem::replace(&mut self.is_bound_said, true) {
            log::warn!("{}: there are more than {MOST_SERIES} counters; what is new is left out", self.sink);
        }
        Ok(())
    }

    /// When the sample was taken, since 1970; zero before there is one. It never goes back.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// What the metrics are about.
    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The metrics that there are.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The points of the sample with their values, in which a counter is the sum up to it.
    pub(crate) fn points(&self) -> Vec<(Point<'_>, f64)> {
        let points = self.names.points(&self.sample);
        points.into_iter().zip(&self.values).filter_map(|(point, value)| Some((point, (*value)?))).collect()
    }
}
