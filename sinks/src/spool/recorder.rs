//! The side of the sink: its rows go into batches, and from there to a thread that sends them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::batch::Batch;
use super::folder::{Spool, default_directory};
use super::limit::SpoolLimit;
use super::run_directory::RunDirectory;
use super::state::{Batches, RowsState, State};
use super::store::Store;
use super::upload::{Destination, StoreOf, Upload};
use super::worker::{Change, Worker, WorkerRequest};
use crate::http::backoff::Backoff;

/// Before errors of the folder.
pub(crate) const UNUSABLE: &str = "the spool cannot be used";

/// How a sink uses the spool.
pub(crate) struct Rules<'a> {
    /// The folder of the user; the default one unless it is named.
    pub(crate) directory: Option<&'a Path>,
    /// What all runs in it may take together, in bytes.
    pub(crate) limit: u64,
    /// The first pause after a failure.
    pub(crate) first_pause: Duration,
    /// How long the start of a run waits until all is known of it.
    pub(crate) until_known: Duration,
}

/// The command that sends what waits, for a shell in any folder. `directory` is the spool if it is not the default one.
fn upload_command(directory: Option<&Path>) -> String {
    let Some(directory) = directory else { return "resource-tracker upload".into() };
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let directory = directory.to_string_lossy();
    let quoted = shlex::try_quote(&directory).unwrap_or_else(|_| directory.as_ref().into());
    format!("resource-tracker upload {quoted}")
}

/// Where the rows of a run are written.
pub(crate) struct Recorder<D: Destination> {
    sink: &'static str,
    directory: Option<Arc<RunDirectory>>,
    batches: Batches,
    /// The greatest number of a batch.
    last: u32,
    batch: Batch,
    /// When the batch began.
    opened: Instant,
    failed: bool,
    upload_command: String,
    delivery: Delivery<D>,
}

type StateOf<D> = <<D as Destination>::Upload as Upload>::State;

/// What happens to the rows.
enum Delivery<D: Destination> {
    /// A thread sends them.
    Worker { requests: Sender<WorkerRequest<StateOf<D>>>, done: Receiver<bool> },
    /// There is no destination as it is configured: rows wait for `resource-tracker upload`.
    Spool { store: Box<StoreOf<D>>, limit: Option<SpoolLimit> },
}

impl<D: Destination> Recorder<D> {
    /// Begins a run. Without a destination, for which there is a reason, its rows are only kept.
    pub(crate) fn begin(state: StateOf<D>, destination: anyhow::Result<D>, rules: Rules<'_>) -> anyhow::Result<Self> {
        let sink = state.sink();
        let (batches, last) = (state.batches(), state.last_batch());
        let spooled =
            Spool::open_or_make(&rules.directory.map_or_else(default_directory, Path::to_owned)).and_then(|spool| {
                let store = Store::create(&spool, state.clone())?;
                Ok((store, SpoolLimit { spool, bytes: rules.limit, is_said: AtomicBool::new(false) }))
            });
        let (store, limit) = match spooled.context(UNUSABLE) {
            Ok((store, limit)) => (store, Some(limit)),
            Err(error) => {
                log::warn!("{sink}: {error:#}; rows wait in memory");
                (Store::new(None, state), None)
            }
        };
        let directory = store.shared_directory();
        let upload_command = upload_command(rules.directory);
        let delivery = match destination {
            Err(error) => {
                let kept = match &directory {
                    Some(_) => format!("rows are kept for `{upload_command}`"),
                    None => "rows are lost".to_owned(),
                };
                log::warn!("{sink}: {error:#}; {kept}");
                Delivery::Spool { store: Box::new(store), limit }
            }
            Ok(destination) => Delivery::spawn(destination, store, limit, &rules, upload_command.clone())?,
        };
        let batch = Batch::new(0, &batches, last);
        Ok(Self {
            sink,
            directory,
            batches,
            last,
            batch,
            opened: Instant::now(),
            failed: false,
            upload_command,
            delivery,
        })
    }

    /// Changes what is known of the run. `is_all`: nothing further is to be waited for before it is begun.
    pub(crate) fn know(&mut self, change: Change<StateOf<D>>, is_all: bool) {
        self.delivery.ask(WorkerRequest::Known(change, is_all));
    }

    /// Adds a row with its end.
    pub(crate) fn add(&mut self, row: &[u8]) {
        let result = self.batch.add(self.directory.as_deref(), row);
        if result.is_err() && !self.batch.took_last() {
            // What is on the disk could be sent again without it: it begins the next batch.
            self.close();
            self.batch.keep(row);
        }
        if let Err(error) = result
            && !std::mem::replace(&mut self.failed, true)
        {
            log::warn!("{}: the spool takes no more rows ({error}); they wait in memory", self.sink);
        }
    }

    /// How long rows have been added to the batch; `None` when it takes no more.
    pub(crate) fn age(&self) -> Option<Duration> {
        (!self.batch.is_full()).then(|| self.opened.elapsed())
    }

    /// How many rows are in the batch.
    pub(crate) fn rows(&self) -> u64 {
        self.batch.rows
    }

    /// Closes the batch, which is sent from now on, if something is in it and another one can follow. Returns the number of
    /// the one that rows are added to.
    pub(crate) fn close(&mut self) -> u32 {
        if self.batch.has_next && self.batch.size > 0 {
            let next = Batch::new(self.batch.number + 1, &self.batches, self.last);
            let batch = std::mem::replace(&mut self.batch, next);
            self.opened = Instant::now();
            self.delivery.ask(WorkerRequest::Closed(batch));
        }
        self.batch.number
    }

    /// Ends the run, and waits for a while until everything has arrived. Says whether it has.
    pub(crate) fn finish(mut self, change: Change<StateOf<D>>, patience: Duration) -> bool {
        self.delivery.ask(WorkerRequest::End(change, self.batch, Instant::now() + patience));
        let Delivery::Worker { done, .. } = &self.delivery else { return false };
        let arrived = done.recv_timeout(patience) == Ok(true);
        if !arrived {
            let rest = match &self.directory {
                Some(directory) => {
                    let lost =
                        if self.failed { ", but for rows that the disk did not take, which are lost" } else { "" };
                    format!("what has not waits in {} for `{}`{lost}", directory.path().display(), self.upload_command)
                }
                None => "what has not is lost".to_owned(),
            };
            log::warn!("{}: not everything has arrived; {rest}", self.sink);
        }
        arrived
    }
}

impl<D: Destination> Delivery<D> {
    fn spawn(
        destination: D,
        store: StoreOf<D>,
        limit: Option<SpoolLimit>,
        rules: &Rules<'_>,
        upload_command: String,
    ) -> anyhow::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let (done, told) = mpsc::channel();
        let upload = destination.upload(store).map_err(|failure| anyhow::anyhow!("{}", failure.problem()))?;
        let thread = std::thread::Builder::new().name(upload.store().state.sink().into());
        let worker = Worker {
            upload,
            inbox,
            done,
            limit,
            backoff: Backoff::new(rules.first_pause),
            begin_at: Instant::now() + rules.until_known,
            destination,
            upload_command,
            reached: false,
            stopped: false,
            unsaved: None,
            ending: None,
        };
        thread.spawn(move || worker.work()).context("no thread for the upload")?;
        Ok(Self::Worker { requests, done: told })
    }

    fn ask(&mut self, request: WorkerRequest<StateOf<D>>) {
        match self {
            // The worker ends before the run only if it panics.
            Self::Worker { requests, .. } => drop(requests.send(request)),
            Self::Spool { store, limit } => {
                let saved = match request {
                    WorkerRequest::Known(change, _) => {
                        change(&mut store.state);
                        store.save()
                    }
                    WorkerRequest::End(change, batch, _) => {
                        change(&mut store.state);
                        store.end(batch)
                    }
                    WorkerRequest::Closed(batch) => {
                        store.close_and_compress(batch);
                        if let Some(limit) = limit {
                            limit.enforce(store);
                        }
                        return;
                    }
                };
                if let Err(error) = saved {
                    log::warn!("{}: cannot write to the spool: {error}", store.state.sink());
                }
            }
        }
    }
}
