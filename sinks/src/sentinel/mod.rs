//! The Sentinel service: registers the run, streams its rows to S3 through a spool, and closes it.

mod api;
mod facts;
#[doc(hidden)]
pub mod fuzzing;
mod left_behind;
mod remains;
mod run_directory;
mod run_files;
mod s3;
mod spool;
mod spool_limit;
mod state;
mod store;
mod upload;
mod worker;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime};

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
use crate::http::backoff::Backoff;
use crate::http::{self, Failure};
use crate::secret::Secret;
pub use facts::SentCommand;
use left_behind::{Connect, rfc3339};
pub use left_behind::{LeftBehind, Unsent};
use run_directory::RunDirectory;
use run_files::Access;
use spool::Spool;
use spool_limit::SpoolLimit;
use state::{End, State};
use store::{Batch, Store};
use worker::{Worker, WorkerRequest};

/// The variable that holds the token; without it nothing is ever sent.
pub const TOKEN: &str = "SENTINEL_API_TOKEN";

/// Tokens have a few kilobytes at most.
const LARGEST_TOKEN: u64 = 1 << 16;

/// How to allow a service without encryption.
const ALLOW_HTTP: &str = "set sinks.sentinel-s3.allow_http";

const UNUSABLE: &str = "the spool cannot be used";

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
        Ok(Box::new(Sentinel { config: self.clone(), token_file, run_state: None }))
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

    fn connect(&self, token: Secret) -> anyhow::Result<Connect> {
        let api_url = self.address()?;
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(|name| {
            let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
            // The requests hold credentials of the store.
            Some(http::address(name, &text, self.allow_http, ALLOW_HTTP).map_err(anyhow::Error::msg))
        });
        Ok(Connect { agent: http::agent(), api_url, token, store: endpoint.transpose()? })
    }

    fn spool_directory(&self) -> PathBuf {
        self.spool_dir.clone().unwrap_or_else(spool::default_directory)
    }

    /// The command that sends the rows that wait, for a shell in any folder.
    fn upload_command(&self) -> String {
        let Some(directory) = &self.spool_dir else { return "resource-tracker upload".into() };
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
        let directory = directory.to_string_lossy();
        let quoted = shlex::try_quote(&directory).unwrap_or_else(|_| directory.as_ref().into());
        format!("resource-tracker upload {quoted}")
    }

    /// Calls `each` with every run that is not complete yet, the oldest first, or with the error that keeps one as it
    /// is. Only the run of the current call is locked. With `only_look`, nothing on the disk changes.
    ///
    /// # Errors
    /// When the spool cannot be used, when `directory` names one that is not there, or when `each` fails.
    pub fn left_behind(
        &self,
        directory: Option<&Path>,
        only_look: bool,
        mut each: impl FnMut(anyhow::Result<LeftBehind>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let path = directory.map_or_else(|| self.spool_directory(), Path::to_owned);
        let Some(spool) = Spool::open(&path).context(UNUSABLE)? else {
            // The default folder is made by the first run.
            anyhow::ensure!(directory.is_none(), "there is no folder {}", path.display());
            return Ok(());
        };
        let access = if only_look { Access::Look } else { Access::Work };
        for run in spool.left_behind(access).context(UNUSABLE)? {
            match run.and_then(LeftBehind::open).transpose() {
                Some(run) => each(run)?,
                None => continue,
            }
        }
        Ok(())
    }

    /// Sends what is left of a run. It calls `waits` before each new attempt, with the reason and the pause.
    ///
    /// # Errors
    /// Without a token, when the run belongs to another service, or when the service did not take everything; what it did
    /// not take stays.
    pub fn send(&self, run: LeftBehind, waits: impl FnMut(&str, Duration)) -> Result<(), Unsent> {
        let token = Self::token(self.open_token_file());
        let token = token.and_then(|token| token.with_context(|| format!("{TOKEN} is not set")));
        let connect = token.and_then(|token| self.connect(token)).map_err(|why| Unsent::Service(format!("{why:#}")))?;
        run.send(&connect, waits).map_err(|failure| match failure {
            Failure::Unavailable(problem, _) => Unsent::Service(problem),
            failure => Unsent::Run(failure.problem().to_owned()),
        })
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
    run_state: Option<RunState>,
}

/// The state from the start of the run on.
struct RunState {
    directory: Option<Arc<RunDirectory>>,
    batch: Batch,
    opened: Instant,
    row: Vec<u8>,
    failed: bool,
    delivery: Delivery,
}

/// What happens to the rows.
enum Delivery {
    /// A thread sends them.
    Worker { requests: Sender<WorkerRequest>, done: Receiver<bool> },
    /// The service cannot be spoken to as it is configured: rows wait for `resource-tracker upload`.
    Spool { store: Box<Store>, limit: Option<SpoolLimit> },
}

impl Sink for Sentinel {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        let token = match SentinelConfig::token(self.token_file.take()) {
            Ok(None) => return Ok(()),
            token => token,
        };
        let facts = facts::of_run(run, self.config.command);
        let connect = token.and_then(|token| self.config.connect(token.context("no token")?));
        let api_url = self.config.address().map(String::from).unwrap_or_default();
        let state = State { api_url, facts, ..State::default() };
        let spooled = Spool::open_or_make(&self.config.spool_directory()).and_then(|spool| {
            let store = Store::create(&spool, state.clone())?;
            Ok((store, SpoolLimit { spool, bytes: self.config.spool_max_mib.saturating_mul(1 << 20) }))
        });
        let (store, limit) = match spooled.context(UNUSABLE) {
            Ok((store, limit)) => (store, Some(limit)),
            Err(error) => {
                log::warn!("sentinel: {error:#}; rows wait in memory");
                (Store::new(None, state), None)
            }
        };
        let directory = store.shared_directory();
        let delivery = match connect {
            Err(error) => {
                let kept = match &directory {
                    Some(_) => format!("rows are kept for `{}`", self.config.upload_command()),
                    None => "rows are lost".to_owned(),
                };
                log::warn!("sentinel: {error:#}; {kept}");
                Delivery::Spool { store: Box::new(store), limit }
            }
            Ok(connect) => self.spawn(connect, store, limit)?,
        };
        self.run_state = Some(RunState {
            directory,
            batch: Batch::new(0),
            opened: Instant::now(),
            row: Vec::new(),
            failed: false,
            delivery,
        });
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let Some(run_state) = &mut self.run_state else { return Ok(()) };
        let (facts, complete) = facts::of_sample(sample);
        if !facts.is_empty() || complete {
            run_state.ask(WorkerRequest::Facts(facts, complete));
        }
        run_state.row.clear();
        Columns::Sentinel.write_row(sample, &mut run_state.row);
        run_state.row.push(b'\n');
        let result = run_state.batch.add(run_state.directory.as_deref(), &run_state.row);
        if let Err(error) = result
            && !std::mem::replace(&mut run_state.failed, true)
        {
            log::warn!("sentinel: the spool takes no more rows ({error}); they wait in memory");
        }
        let is_due =
            run_state.opened.elapsed() >= Duration::from(self.config.upload_interval_secs) || run_state.batch.is_full();
        if is_due && run_state.batch.has_next() {
            let next = Batch::new(run_state.batch.number + 1);
            let batch = std::mem::replace(&mut run_state.batch, next);
            run_state.opened = Instant::now();
            run_state.ask(WorkerRequest::Closed(batch));
        }
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        let Some(mut run_state) = self.run_state.take() else { return Ok(()) };
        let sigterm = rustix::process::Signal::TERM.as_raw();
        let is_good = outcome.exit_code.unwrap_or(0) == 0 && outcome.signal.is_none_or(|signal| signal == sigterm);
        let status = if is_good { "finished" } else { "failed" };
        let end = End { exit_code: outcome.exit_code, status: status.into(), at: rfc3339(SystemTime::now()) };
        let batch = std::mem::replace(&mut run_state.batch, Batch::new(u32::MAX));
        let limit = Duration::from(self.config.finish_timeout_secs);
        run_state.ask(WorkerRequest::End(end, batch, Instant::now() + limit));
        let Delivery::Worker { done, .. } = &run_state.delivery else { return Ok(()) };
        let arrived = done.recv_timeout(limit);
        if arrived != Ok(true) {
            let rest = match &run_state.directory {
                Some(directory) => {
                    let lost =
                        if run_state.failed { ", but for rows that the disk did not take, which are lost" } else { "" };
                    let (path, upload) = (directory.path().display(), self.config.upload_command());
                    format!("what has not waits in {path} for `{upload}`{lost}")
                }
                None => "what has not is lost".to_owned(),
            };
            log::warn!("sentinel: not everything has arrived; {rest}");
        }
        Ok(())
    }
}

impl Sentinel {
    fn spawn(&self, connect: Connect, store: Store, limit: Option<SpoolLimit>) -> anyhow::Result<Delivery> {
        let (requests, inbox) = mpsc::channel();
        let (done, told) = mpsc::channel();
        let worker = Worker {
            upload: connect.upload(store),
            inbox,
            done,
            limit,
            backoff: Backoff::new(Duration::from_secs(1).min(Duration::from(self.config.upload_interval_secs))),
            register_at: Instant::now() + worker::FACTS,
            connect,
            upload_command: self.config.upload_command(),
            reached: false,
            stopped: false,
            unsaved: None,
            ending: None,
        };
        let thread = std::thread::Builder::new().name("sentinel".into());
        thread.spawn(move || worker.work()).context("no thread for the upload")?;
        Ok(Delivery::Worker { requests, done: told })
    }
}

impl RunState {
    fn ask(&mut self, request: WorkerRequest) {
        match &mut self.delivery {
            // The worker ends before the run only if it panics.
            Delivery::Worker { requests, .. } => drop(requests.send(request)),
            Delivery::Spool { store, limit } => {
                let saved = match request {
                    WorkerRequest::Facts(facts, _) => {
                        store.state.facts.extend(facts);
                        store.save()
                    }
                    WorkerRequest::End(end, batch, _) => store.end(end, batch),
                    WorkerRequest::Closed(batch) => {
                        store.close_and_compress(batch);
                        if let Some(limit) = limit {
                            limit.enforce(store);
                        }
                        return;
                    }
                };
                if let Err(error) = saved {
                    log::warn!("sentinel: cannot write to the spool: {error}");
                }
            }
        }
    }
}
