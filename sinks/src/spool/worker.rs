//! The thread that sends the rows of a run while it goes on.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::limit::SpoolLimit;
use super::state::State;
use super::upload::{Destination, StoreOf, Upload, send_in_background};
use crate::http::Failure;
use crate::http::backoff::Backoff;

/// At the end of the run, a service that was never reached gets so many attempts, or one that takes so long.
const LAST_ATTEMPTS: u32 = 3;
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The user is told when so many uploads in a row have failed.
const TELL_UPLOADS: u32 = 3;

/// Changes what is known of the run.
pub(crate) type Change<S> = Box<dyn FnOnce(&mut S) + Send>;

pub(crate) enum WorkerRequest<S> {
    /// More is known; true when nothing further is to be waited for before the run is begun.
    Known(Change<S>, bool),
    Closed(Batch),
    /// The run has ended, with its last batch. The sink waits until that moment for what has not arrived.
    End(Change<S>, Batch, Instant),
}

pub(crate) struct Worker<D: Destination> {
    pub(crate) upload: D::Upload,
    pub(crate) inbox: Receiver<WorkerRequest<<D::Upload as Upload>::State>>,
    /// Sent once: true when everything has arrived, false when nothing more will be tried.
    pub(crate) done: Sender<bool>,
    /// `None` when everything is in memory.
    pub(crate) limit: Option<SpoolLimit>,
    pub(crate) backoff: Backoff,
    /// Until then more may become known of the run.
    pub(crate) begin_at: Instant,
    pub(crate) destination: D,
    /// The command that sends the rest, for messages.
    pub(crate) upload_command: String,
    pub(crate) reached: bool,
    pub(crate) stopped: bool,
    /// Why the end of the run could not be written down.
    pub(crate) unsaved: Option<io::Error>,
    /// When the run ended, and until when the sink waits.
    pub(crate) ending: Option<(Instant, Instant)>,
}

impl<D: Destination> Worker<D> {
    pub(crate) fn work(mut self) {
        if self.upload.is_begun() {
            self.send_earlier();
        }
        while !self.is_hopeless() {
            match self.next_request() {
                Ok(Some(request)) => self.take(request),
                Ok(None) => (),
                // The tracker was dropped without an end: what is spooled stays.
                Err(()) => return,
            }
            let now = Instant::now();
            let is_early = now < self.begin_at && self.ending.is_none();
            if self.stopped || is_early || self.backoff.pause(now).is_some() {
                continue;
            }
            match self.advance() {
                Ok(()) => {
                    self.worked();
                    if self.ending.is_some() {
                        let _ = self.done.send(self.upload.store().passed() == 0);
                        return;
                    }
                }
                Err(failure) => self.failed(&failure),
            }
        }
        if let Some(error) = &self.unsaved {
            let sink = self.upload.store().state.sink();
            log::warn!(
                "{sink}: cannot write to the spool how the run ended ({error}); it will be taken for a failed one"
            );
        }
        let _ = self.done.send(false);
    }

    /// Whether the run has ended and there is no use in waiting for what has not arrived.
    fn is_hopeless(&self) -> bool {
        let Some((since, until)) = self.ending else { return false };
        let now = Instant::now();
        let is_late = self.backoff.pause(now).is_some_and(|pause| now + pause > until);
        let attempts = if now - since >= LAST_WAIT { 1 } else { LAST_ATTEMPTS };
        self.stopped || is_late || (!self.reached && self.backoff.failures() >= attempts)
    }

    /// Waits for something to do. `None`: time has come to try (again).
    fn next_request(&self) -> Result<Option<WorkerRequest<<D::Upload as Upload>::State>>, ()> {
        let now = Instant::now();
        let until_facts = self.begin_at.saturating_duration_since(now);
        let pause = self.backoff.pause(now).or(Some(until_facts).filter(|wait| !wait.is_zero()));
        let is_idle = self.upload.is_begun() && self.upload.store().next() >= self.upload.store().closed;
        let wait = match pause {
            _ if self.stopped => None,
            Some(pause) => Some(pause),
            None if is_idle && self.ending.is_none() => None,
            None => Some(Duration::ZERO),
        };
        match wait {
            None => self.inbox.recv().map(Some).map_err(drop),
            Some(wait) => match self.inbox.recv_timeout(wait) {
                Ok(request) => Ok(Some(request)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) if self.ending.is_some() => {
                    std::thread::sleep(wait);
                    Ok(None)
                }
                Err(RecvTimeoutError::Disconnected) => Err(()),
            },
        }
    }

    fn take(&mut self, request: WorkerRequest<<D::Upload as Upload>::State>) {
        match request {
            WorkerRequest::Known(change, is_all) => {
                let store = self.upload.store_mut();
                change(&mut store.state);
                let _ = store.save();
                if is_all {
                    self.begin_at = Instant::now();
                }
            }
            WorkerRequest::Closed(batch) => {
                self.upload.store_mut().close_and_compress(batch);
                if let Some(limit) = &self.limit {
                    limit.enforce(self.upload.store_mut());
                }
            }
            WorkerRequest::End(change, batch, until) => {
                let store: &mut StoreOf<D> = self.upload.store_mut();
                change(&mut store.state);
                self.unsaved = store.end(batch).err();
                self.ending = Some((Instant::now(), until));
                self.backoff.restart(Duration::from_millis(250));
            }
        }
    }

    fn advance(&mut self) -> Result<(), Failure> {
        if !self.upload.is_begun() {
            self.upload.begin()?;
            self.reached = true;
            self.send_earlier();
        }
        if self.ending.is_some() {
            return self.upload.finish();
        }
        while self.upload.send_batch()? {
            self.reached = true;
        }
        Ok(())
    }

    /// Sends what earlier runs left behind, now that the destination can be reached, or need not be told of a run.
    fn send_earlier(&self) {
        if let Some(limit) = &self.limit {
            send_in_background(limit.spool.clone(), self.destination.clone());
        }
    }

    fn worked(&mut self) {
        if self.backoff.succeeded() {
            log::warn!("{}: the service takes rows again", self.upload.store().state.sink());
        }
    }

    fn failed(&mut self, failure: &Failure) {
        let tell_at = if self.upload.is_begun() { TELL_UPLOADS } else { 1 };
        let tell = self.backoff.failed(failure, Instant::now(), tell_at);
        let (sink, problem) = (self.upload.store().state.sink(), failure.problem());
        match failure {
            Failure::Temporary(..) | Failure::Unavailable(..) if tell => {
                log::warn!("{sink}: {problem}; it is tried again, and rows are kept until they have arrived");
            }
            Failure::Temporary(..) | Failure::Unavailable(..) => (),
            Failure::Refused(_) | Failure::Permanent(_) => {
                self.stopped = true;
                let upload = &self.upload_command;
                log::warn!("{sink}: {problem}; nothing more is sent, and rows are kept for `{upload}`");
            }
        }
    }
}
