//! Prometheus: metrics to be scraped, or in a file for the textfile collector of its node exporter.

mod latest;
mod scrape;
mod textfile;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use resource_tracker_core::config::Interval;
use resource_tracker_core::{Outcome, Run, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use latest::Latest;
use scrape::Server;
use textfile::Textfile;

/// Prometheus.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct PrometheusConfig {
    /// How it gets the metrics: scrape (it asks for them) or textfile (its node exporter reads them from a file).
    pub mode: PrometheusMode,
    /// Mode scrape: the address and port where it asks, at `/metrics`.
    #[schemars(extend("x-needs-named-file" = true))]
    pub listen: String,
    /// Mode textfile: the folder that the node exporter looks into (`--collector.textfile.directory`).
    #[schemars(extend("x-needs-named-file" = true))]
    pub directory: Option<PathBuf>,
    /// Mode textfile: time between two writes.
    pub write_interval_secs: Interval,
    /// Mode textfile: whether the file stays when the run has ended.
    pub keep: bool,
}

/// How Prometheus gets metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PrometheusMode {
    /// It asks for them.
    #[default]
    Scrape,
    /// A file in the folder of the node exporter's textfile collector.
    Textfile,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            mode: PrometheusMode::Scrape,
            // The port of OpenTelemetry's exporters for Prometheus.
            listen: "127.0.0.1:9464".into(),
            directory: None,
            write_interval_secs: Interval::nearest(Duration::from_secs(10)),
            keep: false,
        }
    }
}

from_json!(PrometheusConfig);

#[typetag::deserialize(name = "prometheus")]
impl SinkConfig for PrometheusConfig {
    fn check(&self) -> anyhow::Result<()> {
        match self.mode {
            PrometheusMode::Scrape => scrape::check(&self.listen),
            PrometheusMode::Textfile => self.folder().map(drop),
        }
    }

    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        self.check()?;
        let latest = Latest::new(&context.registry);
        Ok(match self.mode {
            PrometheusMode::Scrape => {
                let latest = Arc::new(Mutex::new(latest));
                let server = Server::start(&self.listen, {
                    let latest = Arc::clone(&latest);
                    move |form| locked(&latest).text(form)
                })?;
                Box::new(Scraped { latest, _server: server })
            }
            PrometheusMode::Textfile => Box::new(InFile {
                latest,
                file: Textfile::open(self.folder()?)?,
                interval: self.write_interval_secs.into(),
                keep: self.keep,
            }),
        })
    }
}

impl PrometheusConfig {
    fn folder(&self) -> anyhow::Result<&PathBuf> {
        self.directory
            .as_ref()
            .context("mode textfile needs a directory: that of the node exporter's textfile collector")
    }
}

register_sink!(SinkEntry::new::<PrometheusConfig>("prometheus", "Metrics for Prometheus: scraped, or in a text file"));

fn locked(latest: &Mutex<Latest>) -> std::sync::MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Metrics that are asked for.
struct Scraped {
    latest: Arc<Mutex<Latest>>,
    _server: Server,
}

impl Sink for Scraped {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        locked(&self.latest).begin(run);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        locked(&self.latest).take(sample)
    }

    /// Nobody asks more often than once a second.
    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }
}

/// Metrics in a file.
struct InFile {
    latest: Latest,
    file: Textfile,
    interval: Duration,
    keep: bool,
}

impl Sink for InFile {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.latest.begin(run);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.latest.take(sample)?;
        if self.file.age().is_some_and(|age| age < self.interval) {
            return Ok(());
        }
        self.file.write(self.latest.instance(), &self.latest.labelled_text())
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        if self.keep && self.file.age().is_some() {
            return self.file.write(self.latest.instance(), &self.latest.labelled_text());
        }
        self.file.remove()
    }
}
