//! The Sentinel service: registers the run, streams its rows to S3 through a spool, and closes it.

mod api;
mod facts;
#[doc(hidden)]
pub mod fuzzing;
mod state;
mod upload;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use resource_tracker_core::config::Interval;
use resource_tracker_core::{
    Outcome, PATIENCE, Run, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink,
};
use rustix::fs::{OFlags, fcntl_setfl};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::columns::Columns;
use crate::http;
use crate::secret::Secret;
use crate::spool::{Recorder, Rules};
pub use facts::SentCommand;
pub(crate) use state::State as SentinelState;
use state::{End, State, rfc3339};
use upload::Service;

/// The variable that holds the token; without it nothing is ever sent.
pub const TOKEN: &str = "SENTINEL_API_TOKEN";

/// Tokens have a few kilobytes at most.
const LARGEST_TOKEN: u64 = 1 << 16;

/// How to allow a service without encryption.
const ALLOW_HTTP: &str = "set sinks.sentinel-s3.allow_http";

/// How long registration waits for facts about host and cloud.
const FACTS: Duration = Duration::from_secs(3);

/// The Sentinel service, by way of S3.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
#[schemars(extend("x-takes-secret" = true))]
pub struct SentinelConfig {
    /// Base address of the service.
    #[schemars(extend("x-needs-named-file" = true))]
    pub api_url: String,
    /// A file that holds the token; the variable SENTINEL_API_TOKEN goes first.
    #[schemars(extend("x-needs-named-file" = true))]
    pub token_file: Option<PathBuf>,
    /// Time between two uploads.
    pub upload_interval_secs: Interval,
    /// How long the end of a run waits for what has not arrived.
    pub finish_timeout_secs: Interval,
    /// Where rows wait until they have arrived; $XDG_STATE_HOME/resource-tracker/spool unless set.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_dir: Option<PathBuf>,
    /// What may wait there, in MiB; beyond that the oldest batches are given up, with a message.
    #[schemars(extend("x-needs-named-file" = true))]
    pub spool_max_mib: u64,
    /// What is sent of the command line: masked, program, whole or none.
    #[schemars(extend("x-needs-named-file" = true))]
    pub command: SentCommand,
    /// Speak to the service without encryption, even when it is not on this machine.
    #[schemars(extend("x-needs-named-file" = true))]
    pub allow_http: bool,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self {
            api_url: "https://api.sentinel.sparecores.net".into(),
            token_file: None,
            upload_interval_secs: Interval::nearest(Duration::from_secs(60)),
            finish_timeout_secs: Interval::nearest(Duration::from_secs(30)),
            spool_dir: None,
            spool_max_mib: 1024,
            command: SentCommand::Masked,
            allow_http: false,
        }
    }
}

from_json!(SentinelConfig);

#[typetag::deserialize(name = "sentinel-s3")]
impl SinkConfig for SentinelConfig {
    fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        // It is opened now: it can be a descriptor, which the command gets before the run begins.
        let token_file = self.open_token_file();
        Ok(Box::new(Sentinel { config: self.clone(), token_file, recorder: None, row: Vec::new() }))
    }

    fn patience(&self) -> Duration {
        Duration::from(self.finish_timeout_secs) + PATIENCE
    }
}

register_sink!(SinkEntry::new::<SentinelConfig>("sentinel-s3", "The Sentinel service, with SENTINEL_API_TOKEN"));

impl SentinelConfig {
    /// The file that the token is in, if it is in a file.
    fn open_token_file(&self) -> Option<TokenFile> {
        let path = self.token_file.as_ref().filter(|_| token_variable().is_none())?;
        Some(TokenFile { path: path.clone(), file: open_without_waiting(path) })
    }

    /// The token for the service, if there is one.
    fn token(file: Option<TokenFile>) -> anyhow::Result<Option<Secret>> {
        let text = match (token_variable(), file) {
            (Some(token), _) => token,
            (None, None) => return Ok(None),
            (None, Some(TokenFile { path, file })) => {
                let text = file.and_then(read_token);
                text.with_context(|| format!("cannot read the token from {}", path.display()))?
            }
        };
        let token = Secret::new(text.trim());
        anyhow::ensure!(token.is_printable(), "the token has characters that no token has");
        Ok(Some(token))
    }

    /// Whether a variable or a file is named as the source of the token. The file is not read: it can be a pipe.
    pub fn names_token(&self) -> bool {
        token_variable().is_some() || self.token_file.is_some()
    }

    fn address(&self) -> anyhow::Result<Url> {
        http::address("api_url", &self.api_url, self.allow_http, ALLOW_HTTP).map_err(anyhow::Error::msg)
    }

    fn connect(&self, token: Secret) -> anyhow::Result<Service> {
        let api_url = self.address()?;
        // The requests hold credentials of the store.
        let store = http::store_endpoint(self.allow_http, ALLOW_HTTP)?;
        Ok(Service { agent: http::agent(), api_url, token, store })
    }

    /// The service that rows are sent to.
    ///
    /// # Errors
    /// Without a token, or with an address that cannot be used.
    pub(crate) fn service(&self) -> anyhow::Result<Service> {
        let token = Self::token(self.open_token_file())?;
        self.connect(token.with_context(|| format!("{TOKEN} is not set"))?)
    }
}

/// The token where it is in the environment.
fn token_variable() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.trim().is_empty())
}

/// A file that holds a token, which is read when it is needed: a program at the other end of a pipe can take its time.
struct TokenFile {
    path: PathBuf,
    file: io::Result<File>,
}

/// Opening a FIFO does not wait for a writer, which may never come. Reading it does.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// There is a limit, because the file can be a device without an end.
fn read_token(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(LARGEST_TOKEN).read_to_string(&mut text)?;
    Ok(text)
}

struct Sentinel {
    config: SentinelConfig,
    token_file: Option<TokenFile>,
    /// From the start of the run on.
    recorder: Option<Recorder<Service>>,
    row: Vec<u8>,
}

impl Sink for Sentinel {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        let token = match SentinelConfig::token(self.token_file.take()) {
            Ok(None) => return Ok(()),
            token => token,
        };
        let config = &self.config;
        let facts = facts::of_run(run, config.command);
        let service = token.and_then(|token| config.connect(token.context("no token")?));
        let api_url = config.address().map(String::from).unwrap_or_default();
        let state = State { api_url, facts, ..State::default() };
        let rules = Rules {
            directory: config.spool_dir.as_deref(),
            limit: config.spool_max_mib.saturating_mul(1 << 20),
            first_pause: Duration::from_secs(1).min(config.upload_interval_secs.into()),
            until_known: FACTS,
        };
        self.recorder = Some(Recorder::begin(state, service, rules)?);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let (facts, is_all) = facts::of_sample(sample);
        if !facts.is_empty() || is_all {
            recorder.know(Box::new(|state| state.facts.extend(facts)), is_all);
        }
        self.row.clear();
        Columns::Sentinel.write_row(sample, &mut self.row);
        self.row.push(b'\n');
        recorder.add(&self.row);
        if recorder.age().is_none_or(|age| age >= Duration::from(self.config.upload_interval_secs)) {
            recorder.close();
        }
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let Some(recorder) = self.recorder.take() else { return Ok(()) };
        let sigterm = rustix::process::Signal::TERM.as_raw();
        let is_good = outcome.exit_code.unwrap_or(0) == 0 && outcome.signal.is_none_or(|signal| signal == sigterm);
        let status = if is_good { "finished" } else { "failed" };
        let end = End { exit_code: outcome.exit_code, status: status.into(), at: rfc3339(SystemTime::now()) };
        recorder.finish(Box::new(|state| state.end = Some(end)), self.config.finish_timeout_secs.into());
        Ok(())
    }
}
