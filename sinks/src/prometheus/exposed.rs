//! The latest sample as the text that Prometheus reads.

use std::sync::OnceLock;
use std::time::Duration;

use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Run, Sample};
use resource_tracker_telemetry::prometheus::{Exposition, Families};
use resource_tracker_telemetry::remote_write::Requests;

use crate::latest::Latest;

/// The latest sample, and how Prometheus calls what is in it.
pub(super) struct Exposed {
    latest: Latest,
    families: OnceLock<Families>,
}

impl Exposed {
    pub(super) fn new(registry: &Registry) -> Self {
        Self { latest: Latest::new("prometheus", registry), families: OnceLock::new() }
    }

    pub(super) fn begin(&mut self, run: &Run) {
        self.latest.begin(run);
    }

    pub(super) fn take(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.latest.take(sample)
    }

    /// When the sample was taken, since 1970.
    pub(super) fn time(&self) -> Duration {
        self.latest.time()
    }

    /// What Prometheus calls the job.
    pub(super) fn job(&self) -> String {
        self.latest.resource().job()
    }

    /// Identifier of the run; empty before it is known.
    pub(super) fn instance(&self) -> &str {
        self.latest.resource().instance()
    }

    /// The metrics, for one who knows where they come from.
    pub(super) fn text(&self, form: Exposition) -> String {
        self.written(&[], form)
    }

    /// The metrics with labels of the run, for a place in which the metrics of several are.
    pub(super) fn labelled_text(&self) -> String {
        self.written(&self.labels(), Exposition::Text)
    }

    /// The metrics as a request of the remote-write protocol.
    pub(super) fn next_request(&self, requests: &mut Requests) -> Vec<u8> {
        requests.next(self.families(), &self.latest.points(), &self.labels(), &self.info(), self.time())
    }

    /// Labels of the run.
    fn labels(&self) -> [(String, String); 2] {
        [("job", self.job()), ("instance", self.instance().to_owned())].map(|(name, value)| (name.to_owned(), value))
    }

    fn info(&self) -> Vec<(String, String)> {
        let info = self.latest.resource().attributes();
        info.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn families(&self) -> &Families {
        self.families.get_or_init(|| {
            let families = Families::new(self.latest.names());
            for collision in families.collisions() {
                log::warn!("prometheus: {collision}");
            }
            families
        })
    }

    fn written(&self, labels: &[(String, String)], form: Exposition) -> String {
        self.families().write(&self.latest.points(), labels, &self.info(), form)
    }
}
