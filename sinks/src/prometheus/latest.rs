//! The latest sample of a run, as metrics.

use std::sync::LazyLock;

use anyhow::Context;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Run, Sample};
use resource_tracker_telemetry::prometheus::{Exposition, Families};
use resource_tracker_telemetry::{MOST_SERIES, Names, Resource, Sums};
use serde_json::{Map, Value as Json};

/// The section that is in the first sample alone.
const ONCE: &str = "host";

/// Made when the first sample is there, so that the command need not wait for it.
type Tables = LazyLock<(Names, Families), Box<dyn FnOnce() -> (Names, Families) + Send>>;

/// The latest sample, and the sums up to it.
pub(super) struct Latest {
    tables: Tables,
    sums: Sums,
    resource: Resource,
    sample: Map<String, Json>,
    /// Values of its points.
    values: Vec<Option<f64>>,
    line: Vec<u8>,
    is_bound_said: bool,
}

fn tables(registry: &Registry) -> (Names, Families) {
    let names = Names::new(registry);
    let families = Families::new(&names);
    for collision in families.collisions() {
        log::warn!("prometheus: {collision}");
    }
    (names, families)
}

impl Latest {
    pub(super) fn new(registry: &Registry) -> Self {
        let registry = registry.clone();
        Self {
            tables: LazyLock::new(Box::new(move || tables(&registry))),
            sums: Sums::default(),
            resource: Resource::default(),
            sample: Map::new(),
            values: Vec::new(),
            line: Vec::new(),
            is_bound_said: false,
        }
    }

    pub(super) fn begin(&mut self, run: &Run) {
        self.resource = Resource::of_run(run);
    }

    pub(super) fn take(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line.clear();
        sample.write_json(&mut self.line).context("a sample cannot be written")?;
        let mut next: Map<String, Json> = serde_json::from_slice(&self.line).context("a sample is no JSON")?;
        self.resource.learn(&next);
        if let (false, Some(once)) = (next.contains_key(ONCE), self.sample.remove(ONCE)) {
            next.insert(ONCE.into(), once);
        }
        self.sample = next;
        let points = self.tables.0.points(&self.sample);
        self.values = points.iter().map(|point| self.sums.add(point)).collect();
        if self.sums.is_full() && !std::mem::replace(&mut self.is_bound_said, true) {
            log::warn!("prometheus: there are more than {MOST_SERIES} counters; what is new is left out");
        }
        Ok(())
    }

    /// Identifier of the run; empty before it is known.
    pub(super) fn instance(&self) -> &str {
        self.resource.instance()
    }

    /// The metrics, for one who knows where they come from.
    pub(super) fn text(&self, form: Exposition) -> String {
        self.written(&[], form)
    }

    /// The metrics with labels of the run, for a folder in which the metrics of several are.
    pub(super) fn labelled_text(&self) -> String {
        let labels = [("job", self.resource.job()), ("instance", self.resource.instance().to_owned())];
        self.written(&labels.map(|(name, value)| (name.to_owned(), value)), Exposition::Text)
    }

    fn written(&self, labels: &[(String, String)], form: Exposition) -> String {
        let points = self.tables.0.points(&self.sample);
        let points: Vec<_> =
            points.into_iter().zip(&self.values).filter_map(|(point, value)| Some((point, (*value)?))).collect();
        let info: Vec<_> =
            self.resource.attributes().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.tables.1.write(&points, labels, &info, form)
    }
}
