//! The OpenTelemetry protocol (OTLP), by HTTP.

mod environment;
mod preferences;

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use resource_tracker_core::config::Interval;
use resource_tracker_core::{
    PATIENCE, Run, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink,
};
use resource_tracker_telemetry::otlp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::http;
use crate::http::receiver::{Kind, Protocol, Receiver, SavedReceiver};
use crate::latest::Latest;
use crate::sending::{Requests, Sending, SpoolPlace};
use environment::Environment;
pub use preferences::{Compression, Temporality};

/// These alone can pass, by the protocol.
const PLAIN: Protocol = Protocol {
    headers: &[("content-type", "application/x-protobuf")],
    can_pass: |status| matches!(status, 429 | 502..=504),
    rejected: otlp::rejected_points,
};
const GZIPPED: Protocol =
    Protocol { headers: &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")], ..PLAIN };

/// For a request, and between two, unless something else is said.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Where receivers on this machine listen.
const DEFAULT: &str = "http://localhost:4318";
/// How to allow headers without encryption.
const ALLOW_HTTP: &str = "set sinks.otlp.allow_http";

/// A receiver of the OpenTelemetry protocol. The variables `OTEL_EXPORTER_OTLP_*` say what is not set here; headers, which can
/// hold secrets, are taken from there alone.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
#[schemars(extend("x-takes-secret" = true))]
pub struct OtlpConfig {
    /// Its address, to which v1/metrics is added; http://localhost:4318 unless set here or in a variable.
    #[schemars(extend("x-needs-named-file" = true))]
    pub endpoint: Option<String>,
    /// Time between two requests; 10 s unless set here or in OTEL_METRIC_EXPORT_INTERVAL.
    pub export_interval_secs: Option<Interval>,
    /// How long a request may take; 10 s unless set here or in a variable.
    pub timeout_secs: Option<Interval>,
    /// How long the end of a run waits for what has not arrived.
    pub finish_timeout_secs: Interval,
    /// gzip unless set here or in a variable.
    pub compression: Option<Compression>,
    /// Of sums that only grow; cumulative unless set here or in a variable.
    pub temporality: Option<Temporality>,
    /// A file of certificates (PEM) to trust beside those of the system.
    #[schemars(extend("x-needs-named-file" = true))]
    pub certificate: Option<PathBuf>,
    /// Send headers without encryption, even to another machine.
    #[schemars(extend("x-needs-named-file" = true))]
    pub allow_http: bool,
    /// Where requests wait until they are taken; $XDG_STATE_HOME/resource-tracker/spool unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_dir: Option<PathBuf>,
    /// What may wait there, in MiB; beyond that the oldest requests are given up, with a message.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_max_mib: u64,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            export_interval_secs: None,
            timeout_secs: None,
            finish_timeout_secs: Interval::nearest(Duration::from_secs(5)),
            compression: None,
            temporality: None,
            certificate: None,
            allow_http: false,
            spool_dir: None,
            spool_max_mib: 1024,
        }
    }
}

from_json!(OtlpConfig);

#[typetag::deserialize(name = "otlp")]
impl SinkConfig for OtlpConfig {
    fn check(&self) -> anyhow::Result<()> {
        self.receiver(&Environment::of_process()).map(drop)
    }

    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        let environment = Environment::of_process();
        environment.check_protocol();
        let compression = self.compression.or_else(|| environment.compression()).unwrap_or(Compression::Gzip);
        let temporality = self.temporality.or_else(|| environment.temporality());
        let seconds = |own: Option<Interval>, of: Option<Duration>| own.map(Duration::from).or(of).unwrap_or(TIMEOUT);
        let mut receiver = self.receiver(&environment)?;
        receiver.timeout = seconds(self.timeout_secs, environment.timeout());
        if compression == Compression::Gzip {
            (receiver.protocol, receiver.saved.kind) = (GZIPPED, Kind::OtlpGzip);
        }
        let requests = Otlp {
            latest: Latest::new("otlp", &context.registry),
            attributes: environment.resource(),
            temporality: temporality.map_or(otlp::Temporality::Cumulative, Into::into),
            compression,
            requests: None,
        };
        let interval = seconds(self.export_interval_secs, environment.interval());
        let spool = SpoolPlace { directory: self.spool_dir.clone(), max_mib: self.spool_max_mib };
        Ok(Box::new(Sending::new(requests, receiver, interval, self.finish_timeout_secs.into(), spool)))
    }

    fn patience(&self) -> Duration {
        Duration::from(self.finish_timeout_secs) + PATIENCE
    }
}

register_sink!(SinkEntry::new::<OtlpConfig>("otlp", "Metrics for a receiver of the OpenTelemetry protocol"));

impl OtlpConfig {
    /// Who is sent to: what can be wrong with that is an error.
    fn receiver(&self, environment: &Environment<'_>) -> anyhow::Result<Receiver> {
        let headers = environment.headers()?;
        let (name, address) = match &self.endpoint {
            Some(endpoint) => ("endpoint".to_owned(), environment::below(endpoint)),
            None => match environment.endpoint() {
                Some(endpoint) => endpoint,
                // Anybody can listen there.
                None if !headers.is_empty() => anyhow::bail!(
                    "there are headers, which can be secret, but no endpoint: set it, or OTEL_EXPORTER_OTLP_ENDPOINT"
                ),
                None => ("endpoint".to_owned(), environment::below(DEFAULT)),
            },
        };
        // Only headers hold what nobody else may read.
        let url = http::address(&name, &address, self.allow_http || headers.is_empty(), ALLOW_HTTP);
        let url: Url = url.map_err(anyhow::Error::msg)?;
        let named = self.certificate.as_ref().map(|path| ("certificate".to_owned(), path.clone()));
        let more = named.or_else(|| environment.certificate());
        let mut saved = SavedReceiver::new(Kind::Otlp, &url);
        saved.certificate = more.as_ref().map(|(_, path)| path.clone());
        saved.allow_http = self.allow_http;
        let certificates = more.map(|(name, path)| http::certificates(&path).context(name)).transpose()?;
        let certificates = certificates.unwrap_or_default();
        Ok(Receiver { saved, url, headers, certificates, timeout: Duration::ZERO, protocol: PLAIN })
    }
}

/// Who requests of an earlier run are for. Headers are those of the environment as they are now, and go nowhere but to its
/// endpoint.
pub(crate) fn saved_receiver(saved: &SavedReceiver) -> anyhow::Result<Receiver> {
    let environment = Environment::of_process();
    let headers = environment.headers()?;
    if !headers.is_empty() {
        let endpoint = environment.endpoint().and_then(|(_, endpoint)| Url::parse(&endpoint).ok());
        anyhow::ensure!(
            endpoint.is_some_and(|endpoint| endpoint.as_str() == saved.url),
            "it belongs to {}; set OTEL_EXPORTER_OTLP_ENDPOINT and the headers for that receiver, or no headers",
            saved.url
        );
    }
    let url = http::address("its address", &saved.url, saved.allow_http || headers.is_empty(), ALLOW_HTTP);
    let certificates = saved.certificate.as_ref().map(|path| http::certificates(path)).transpose()?;
    Ok(Receiver {
        url: url.map_err(anyhow::Error::msg)?,
        headers,
        certificates: certificates.unwrap_or_default(),
        timeout: environment.timeout().unwrap_or(TIMEOUT),
        protocol: if saved.kind == Kind::OtlpGzip { GZIPPED } else { PLAIN },
        saved: saved.clone(),
    })
}

/// The requests of a run.
struct Otlp {
    latest: Latest,
    /// Attributes of the resource that the environment has.
    attributes: Vec<(String, String)>,
    temporality: otlp::Temporality,
    compression: Compression,
    /// From the start of the run on.
    requests: Option<otlp::Requests>,
}

impl Otlp {
    fn request(&mut self, make: impl FnOnce(&mut otlp::Requests, &Latest) -> Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let requests = self.requests.as_mut().context("the run has not begun")?;
        Ok(self.compression.compress(make(requests, &self.latest)))
    }
}

impl Requests for Otlp {
    fn begin(&mut self, run: &Run) {
        self.latest.begin(run);
        self.latest.set(&self.attributes);
        let started = run.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.requests = Some(otlp::Requests::new(self.temporality, started));
    }

    fn take(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.latest.take(sample)
    }

    fn time(&self) -> Duration {
        self.latest.time()
    }

    fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        self.request(|requests, of| requests.next(of.names(), of.resource(), &of.points(), of.time()))
    }

    fn end(&mut self) -> anyhow::Result<Vec<u8>> {
        self.request(|requests, of| requests.end(of.names(), of.resource(), of.time()))
    }
}
