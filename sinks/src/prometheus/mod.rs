//! Prometheus: metrics to be scraped, in a file for the textfile collector of its node exporter, sent by its remote-write
//! protocol, or pushed to its Pushgateway.

mod exposed;
mod push;
mod remote_write;
mod scrape;
mod textfile;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use resource_tracker_core::config::Interval;
use resource_tracker_core::{
    Outcome, PATIENCE, Run, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::http;
use crate::http::receiver::{Kind, Protocol, Receiver, SavedReceiver};
use crate::secret::Secret;
use crate::sending::{Sending, SpoolPlace};
use crate::turns::Turns;
use exposed::Exposed;
use push::Push;
use remote_write::RemoteWrite;
use scrape::Server;
use textfile::Textfile;

/// The time for a whole request and its answer.
const CALL: Duration = Duration::from_secs(10);
/// How to allow the header without encryption.
const ALLOW_HTTP: &str = "set sinks.prometheus.allow_http";

/// Prometheus.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct PrometheusConfig {
    /// How it gets the metrics: scrape (it asks for them), textfile (its node exporter reads them from a file), remote-write
    /// (they are sent to it) or push (they are sent to its Pushgateway when the run has ended).
    pub mode: PrometheusMode,
    /// Mode scrape: the address and port where it asks, at `/metrics`.
    #[schemars(extend("x-needs-named-file" = true))]
    pub listen: String,
    /// Mode textfile: the folder that the node exporter looks into (`--collector.textfile.directory`).
    #[schemars(extend("x-needs-named-file" = true))]
    pub directory: Option<PathBuf>,
    /// Modes remote-write and push: where they are sent, such as http://localhost:9090/api/v1/write or http://localhost:9091.
    #[schemars(extend("x-needs-named-file" = true))]
    pub url: Option<String>,
    /// Modes remote-write and push: a file with the value of the header Authorization, such as Bearer TOKEN.
    #[schemars(extend("x-needs-named-file" = true))]
    pub authorization_file: Option<PathBuf>,
    /// Modes remote-write and push: a file of certificates (PEM) to trust beside those of the system.
    #[schemars(extend("x-needs-named-file" = true))]
    pub certificate: Option<PathBuf>,
    /// Modes remote-write and push: send the header without encryption, even to another machine.
    #[schemars(extend("x-needs-named-file" = true))]
    pub allow_http: bool,
    /// Modes remote-write and push: how long the end of a run waits for what has not arrived.
    pub finish_timeout_secs: Interval,
    /// Modes textfile and remote-write: time between two writes.
    pub write_interval_secs: Interval,
    /// Mode textfile: whether the file stays when the run has ended.
    pub keep: bool,
    /// Mode remote-write: where requests wait until they are taken; $XDG_STATE_HOME/resource-tracker/spool unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_dir: Option<PathBuf>,
    /// Mode remote-write: what may wait there, in MiB; beyond that the oldest requests are given up, with a message.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_max_mib: u64,
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
    /// They are sent by the remote-write protocol.
    RemoteWrite,
    /// They are sent to a Pushgateway when the run has ended.
    Push,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            mode: PrometheusMode::Scrape,
            // The port of OpenTelemetry's exporters for Prometheus.
            listen: "127.0.0.1:9464".into(),
            directory: None,
            url: None,
            authorization_file: None,
            certificate: None,
            allow_http: false,
            finish_timeout_secs: Interval::nearest(Duration::from_secs(5)),
            write_interval_secs: Interval::nearest(Duration::from_secs(10)),
            keep: false,
            spool_dir: None,
            spool_max_mib: 1024,
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
            PrometheusMode::RemoteWrite => self.receiver(remote_write::PROTOCOL, CALL).map(drop),
            PrometheusMode::Push => self.receiver(push::PROTOCOL, CALL).map(drop),
        }
    }

    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        let exposed = Exposed::new(&context.registry);
        let patience = self.finish_timeout_secs.into();
        Ok(match self.mode {
            PrometheusMode::Scrape => {
                let latest = Arc::new(Mutex::new(exposed));
                let server = Server::start(&self.listen, {
                    let latest = Arc::clone(&latest);
                    move |form| locked(&latest).text(form)
                })?;
                Box::new(Scraped { latest, _server: server })
            }
            PrometheusMode::Textfile => Box::new(InFile {
                latest: exposed,
                file: Textfile::open(self.folder()?)?,
                turns: Turns::new(self.write_interval_secs.into()),
                keep: self.keep,
            }),
            PrometheusMode::RemoteWrite => {
                let receiver = self.receiver(remote_write::PROTOCOL, CALL)?;
                let interval = self.write_interval_secs.into();
                let spool = SpoolPlace { directory: self.spool_dir.clone(), max_mib: self.spool_max_mib };
                Box::new(Sending::new(RemoteWrite::new(exposed), receiver, interval, patience, spool))
            }
            PrometheusMode::Push => {
                Box::new(Push { exposed, receiver: self.receiver(push::PROTOCOL, patience)?, patience })
            }
        })
    }

    fn patience(&self) -> Duration {
        Duration::from(self.finish_timeout_secs) + PATIENCE
    }
}

impl PrometheusConfig {
    /// Who is sent to in the modes that send.
    fn receiver(&self, protocol: Protocol, timeout: Duration) -> anyhow::Result<Receiver> {
        let url = self.url.as_ref().context("the mode needs a url: that of the service to send to")?;
        // Only the header holds what nobody else may read.
        let allow_http = self.allow_http || self.authorization_file.is_none();
        let url = http::address("url", url, allow_http, ALLOW_HTTP).map_err(anyhow::Error::msg)?;
        let mut saved = SavedReceiver::new(Kind::RemoteWrite, &url);
        saved.certificate = self.certificate.clone();
        saved.authorization_file = self.authorization_file.clone();
        saved.allow_http = self.allow_http;
        receiver(url, saved, protocol, timeout)
    }

    fn folder(&self) -> anyhow::Result<&PathBuf> {
        self.directory
            .as_ref()
            .context("mode textfile needs a directory: that of the node exporter's textfile collector")
    }
}

register_sink!(SinkEntry::new::<PrometheusConfig>(
    "prometheus",
    "Metrics for Prometheus: scraped, in a text file, sent or pushed"
));

/// Who requests of an earlier run are for.
pub(crate) fn saved_receiver(saved: &SavedReceiver) -> anyhow::Result<Receiver> {
    let allow_http = saved.allow_http || saved.authorization_file.is_none();
    let url = http::address("its address", &saved.url, allow_http, ALLOW_HTTP).map_err(anyhow::Error::msg)?;
    receiver(url, saved.clone(), remote_write::PROTOCOL, CALL)
}

/// A receiver with what is in the files that it names.
fn receiver(url: Url, saved: SavedReceiver, protocol: Protocol, timeout: Duration) -> anyhow::Result<Receiver> {
    let headers = match &saved.authorization_file {
        None => Vec::new(),
        Some(path) => vec![("authorization".to_owned(), authorization(path)?)],
    };
    let certificates = saved.certificate.as_ref().map(|path| http::certificates(path)).transpose()?;
    Ok(Receiver { saved, url, headers, certificates: certificates.unwrap_or_default(), timeout, protocol })
}

/// The value of a header that a file holds.
fn authorization(path: &Path) -> anyhow::Result<Secret> {
    let bytes = http::read_file(path).with_context(|| format!("cannot read {}", path.display()))?;
    let value = Secret::new(String::from_utf8_lossy(&bytes).trim());
    anyhow::ensure!(value.is_header(), "{} does not hold one line for a header, such as Bearer TOKEN", path.display());
    Ok(value)
}

fn locked(latest: &Mutex<Exposed>) -> std::sync::MutexGuard<'_, Exposed> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Metrics that are asked for.
struct Scraped {
    latest: Arc<Mutex<Exposed>>,
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
    latest: Exposed,
    file: Textfile,
    turns: Turns,
    keep: bool,
}

impl Sink for InFile {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.latest.begin(run);
        self.turns.begin(run);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.latest.take(sample)?;
        // The first one is written at once.
        if !self.turns.take(self.latest.time(), !self.file.is_there()) {
            return Ok(());
        }
        self.file.write(self.latest.instance(), &self.latest.labelled_text())
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        if self.keep && self.file.is_there() {
            return self.file.write(self.latest.instance(), &self.latest.labelled_text());
        }
        self.file.remove()
    }
}
