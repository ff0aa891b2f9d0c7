//! Any bucket of S3, or of a store with the same interface: samples as objects that engines read where they are.

pub(crate) mod client;
mod credentials;
mod key;
mod state;
mod upload;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use resource_tracker_core::config::Interval;
use resource_tracker_core::{
    Outcome, PATIENCE, Run, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink,
};
use resource_tracker_metrics::RunMetrics;
use resource_tracker_telemetry::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::encode::{Encoder, Format};
use crate::http;
use crate::spool::{Recorder, Rules};
pub use state::Encryption;
pub(crate) use state::S3State;
use upload::{ALLOW_HTTP, BucketPlace};

/// Objects in a bucket of S3, or of a store with the same interface, with keys as Amazon's own tools find them.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
#[schemars(extend("x-takes-secret" = true))]
pub struct S3Config {
    /// The bucket, with a folder in it or without: s3://BUCKET/FOLDER.
    #[schemars(extend("x-needs-named-file" = true))]
    pub url: String,
    /// The name of each object below that, less its extension. In braces: date, year, month, day, hour (UTC), part (a number),
    /// run, job, host, project, stage, task, team, env, executor, external_run_id, group, rank, local_rank, node, tag:NAME.
    #[schemars(extend("x-needs-named-file" = true))]
    pub key: String,
    /// How samples are written.
    pub format: Format,
    /// Which columns a CSV has; job unless set.
    pub columns: Option<Columns>,
    /// An object is closed, and sent, after so much time, at midnight UTC, and when it has 8 MiB before it is compressed.
    pub object_interval_secs: Interval,
    /// It is closed when it has so many rows; 0: any number.
    pub object_rows: u64,
    /// How long the end of a run waits for what has not arrived.
    pub finish_timeout_secs: Interval,
    /// The region of the bucket. Unless it is set here, in AWS_REGION or in the profile, the store is asked for it.
    #[schemars(extend("x-needs-named-file" = true))]
    pub region: Option<String>,
    /// The address of a store other than Amazon's; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL unless set. An empty one is Amazon's own.
    #[schemars(extend("x-needs-named-file" = true))]
    pub endpoint: Option<String>,
    /// Whether that store has a host for each bucket.
    #[schemars(extend("x-needs-named-file" = true))]
    pub virtual_hosts: bool,
    /// The profile of ~/.aws/credentials and ~/.aws/config that has the keys, whatever the environment has.
    #[schemars(extend("x-needs-named-file" = true))]
    pub profile: Option<String>,
    /// How the store encrypts objects; as the bucket says unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub sse: Option<Encryption>,
    /// The key for aws:kms and aws:kms:dsse; that of the account unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub sse_kms_key_id: Option<String>,
    /// The storage class of objects, such as STANDARD_IA.
    #[schemars(extend("x-needs-named-file" = true))]
    pub storage_class: Option<String>,
    /// Where rows wait until they have arrived; $XDG_STATE_HOME/resource-tracker/spool unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_dir: Option<PathBuf>,
    /// What may wait there, in MiB; beyond that the oldest objects are given up, with a message.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_max_mib: u64,
    /// Speak to the store without encryption, even when it is not on this machine.
    #[schemars(extend("x-needs-named-file" = true))]
    pub allow_http: bool,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            url: String::new(),
            key: "date={date}/job={job}/host_name={host}/run_id={run}/{part}".into(),
            format: Format::Json,
            columns: None,
            object_interval_secs: Interval::nearest(Duration::from_secs(300)),
            object_rows: 0,
            finish_timeout_secs: Interval::nearest(Duration::from_secs(30)),
            region: None,
            endpoint: None,
            virtual_hosts: false,
            profile: None,
            sse: None,
            sse_kms_key_id: None,
            storage_class: None,
            spool_dir: None,
            spool_max_mib: 1024,
            allow_http: false,
        }
    }
}

from_json!(S3Config);

#[typetag::deserialize(name = "s3")]
impl SinkConfig for S3Config {
    fn check(&self) -> anyhow::Result<()> {
        self.state().and_then(|state| state.destination()).map(drop)
    }

    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        self.check()?;
        let host = fs::read_to_string(context.host.procfs.join("sys/kernel/hostname")).unwrap_or_default();
        let config = self.clone();
        Ok(Box::new(ToBucket { config, host: host.trim().to_owned(), run: None, recorder: None, row: Vec::new() }))
    }

    fn patience(&self) -> Duration {
        Duration::from(self.finish_timeout_secs) + PATIENCE
    }
}

register_sink!(SinkEntry::new::<S3Config>("s3", "Objects in a bucket of S3, or of a store like it"));

impl S3Config {
    fn encoder(&self) -> anyhow::Result<Encoder> {
        match self.format {
            Format::Csv => Ok(Encoder::Csv(self.columns.unwrap_or(Columns::Job))),
            Format::Json if self.columns.is_none() => Ok(Encoder::Json),
            Format::Json => anyhow::bail!("columns: JSON has none; leave them out, or say format = \"csv\""),
        }
    }

    /// What is known before the run begins: its key is still a template.
    fn state(&self) -> anyhow::Result<S3State> {
        anyhow::ensure!(!self.url.is_empty(), "the sink needs a url: s3://BUCKET/FOLDER");
        let prefix = format!("{}/", self.url.trim_end_matches('/'));
        anyhow::ensure!(state::is_prefix(&prefix), "url {:?} is no bucket: it must be s3://BUCKET/FOLDER", self.url);
        key::check(&self.key)?;
        anyhow::ensure!(
            self.sse_kms_key_id.is_none() || matches!(self.sse, Some(Encryption::Kms | Encryption::KmsDsse)),
            "sse_kms_key_id: set sse to aws:kms or aws:kms:dsse as well"
        );
        for (name, value) in [("sse_kms_key_id", &self.sse_kms_key_id), ("storage_class", &self.storage_class)] {
            let is_good = value.as_deref().is_none_or(state::is_header);
            anyhow::ensure!(is_good, "{name}: it is empty or has characters that no header has");
        }
        let region = self.region.clone().or_else(|| credentials::region(self.profile.as_deref()));
        if let Some(region) = region.as_deref().filter(|region| !client::is_region(region)) {
            anyhow::bail!("region {region:?} is none");
        }
        let endpoint = match self.endpoint.as_deref() {
            // Amazon's, whatever the environment says.
            Some("") => None,
            Some(endpoint) => Some(endpoint.to_owned()),
            None => http::store_endpoint(self.allow_http, ALLOW_HTTP)?.map(String::from),
        };
        Ok(S3State {
            is_endpoint_of_environment: self.endpoint.is_none() && endpoint.is_some(),
            endpoint,
            allow_http: self.allow_http,
            has_virtual_hosts: self.virtual_hosts,
            region,
            profile: self.profile.clone(),
            is_csv: self.format == Format::Csv,
            header: self.encoder()?.header().unwrap_or_default(),
            encryption: self.sse,
            kms_key_id: self.sse_kms_key_id.clone(),
            storage_class: self.storage_class.clone(),
            ..S3State::new(prefix, self.key.clone())
        })
    }
}

struct ToBucket {
    config: S3Config,
    host: String,
    /// From the start of the run on.
    run: Option<Run>,
    /// From the first sample on, which has the identifier of the run.
    recorder: Option<ObjectRecorder>,
    row: Vec<u8>,
}

/// Where rows become objects.
struct ObjectRecorder {
    recorder: Recorder<BucketPlace>,
    /// The hour since 1970 in which rows are, or the first one of the day if objects do not differ by hours.
    hour: u32,
}

impl ToBucket {
    fn begin(&self, sample: &Sample) -> anyhow::Result<ObjectRecorder> {
        let run = self.run.as_ref().context("the run has not begun")?;
        let known = sample.get::<RunMetrics>().map(|run| run.id.clone());
        // The source that names runs can be off.
        let run_id = known.unwrap_or_else(|| {
            let since = run.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            format!("{since}-{:08x}", fastrand::u32(..))
        });
        let name = run.job.name.clone().filter(|name| !name.is_empty());
        let job = name.unwrap_or_else(|| Resource::of_run(run).job());
        let mut state = self.config.state()?;
        state.key = key::of_run(&self.config.key, run, &run_id, &job, &self.host)?;
        let hour = self.hour(sample);
        state.hour = hour;
        let rules = Rules {
            directory: self.config.spool_dir.as_deref(),
            limit: self.config.spool_max_mib.saturating_mul(1 << 20),
            first_pause: Duration::from_secs(1),
            until_known: Duration::ZERO,
        };
        let place = state.destination();
        Ok(ObjectRecorder { recorder: Recorder::begin(state, place, rules)?, hour })
    }

    /// The hour in which objects with this sample are.
    fn hour(&self, sample: &Sample) -> u32 {
        let hour = sample.timestamp().as_secs() / 3600;
        let hour = if key::is_hourly(&self.config.key) { hour } else { hour / 24 * 24 };
        u32::try_from(hour).unwrap_or(0)
    }
}

impl Sink for ToBucket {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.run = Some(run.clone());
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        if self.recorder.is_none() {
            self.recorder = Some(self.begin(sample)?);
        }
        self.row.clear();
        self.config.encoder()?.encode(sample, &mut self.row)?;
        let hour = self.hour(sample);
        let Some(objects) = &mut self.recorder else { return Ok(()) };
        if hour != objects.hour {
            objects.recorder.close();
            objects.hour = hour;
        }
        objects.recorder.add(&self.row);
        let interval = Duration::from(self.config.object_interval_secs);
        let is_full = self.config.object_rows > 0 && objects.recorder.rows() >= self.config.object_rows;
        if is_full || objects.recorder.age().is_none_or(|age| age >= interval) {
            objects.recorder.close();
        }
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        if let Some(objects) = self.recorder.take() {
            objects.recorder.finish(Box::new(|_| ()), self.config.finish_timeout_secs.into());
        }
        Ok(())
    }
}
