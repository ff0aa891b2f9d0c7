//! The thread that speaks to the service while the run goes on.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::left_behind;
use super::spool_limit::SpoolLimit;
use super::state::End;
use super::store::Batch;
use super::upload::Upload;
use crate::http::Failure;
use crate::http::backoff::Backoff;

/// How long registration waits for facts about host and cloud.
pub(crate) const FACTS: Duration = Duration::from_secs(3);
/// At the end of the run, a service that was never reached gets so many attempts, or one that takes so long.
const LAST_ATTEMPTS: u32 = 3;
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The user is told when so many uploads in a row have failed.
const TELL_UPLOADS: u32 = 3;

pub(crate) enum WorkerRequest {
    /// More facts to register the run with; true when no further ones are to be waited for.
    Facts(Map<String, Value>, bool),
    Closed(Batch),
    /// The run has ended. The sink waits until that moment for what has not arrived.
    End(End, Batch, Instant),
}

pub(crate) struct Worker {
    pub(crate) upload: Upload,
    pub(crate) inbox: Receiver<WorkerRequest>,
    /// Sent once: true when everything has arrived, false when nothing more will be tried.
    pub(crate) done: Sender<bool>,
    /// `None` when everything is in memory.
    pub(crate) limit: Option<SpoolLimit>,
    pub(crate) backoff: Backoff,
    pub(crate) register_at: Instant,
    pub(crate) connect: left_behind::Connect,
    /// The command that sends the rest, for messages.
    pub(crate) upload_command: String,
    pub(crate) reached: bool,
    pub(crate) stopped: bool,
    /// Why the end of the run could not be written down.
    pub(crate) unsaved: Option<io::Error>,
    /// When the run ended, and until when the sink waits.
    pub(crate) ending: Option<(Instant, Instant)>,
}

impl Worker {
    pub(crate) fn work(mut self) {
        while !self.is_hopeless() {
            match self.next_request() {
                Ok(Some(request)) => self.take(request),
                Ok(None) => (),
                // The tracker was dropped without an end: what is spooled stays.
                Err(()) => return,
            }
            let now = Instant::now();
            let is_early = now < self.register_at && self.ending.is_none();
            if self.stopped || is_early || self.backoff.pause(now).is_some() {
                continue;
            }
            match self.advance() {
                Ok(()) => {
                    self.worked();
                    if self.ending.is_some() {
                        let _ = self.done.send(true);
                        return;
                    }
                }
                Err(failure) => self.failed(&failure),
            }
        }
        if let Some(error) = &self.unsaved {
            log::warn!(
                "sentinel: cannot write to the spool how the run ended ({error}); it will be taken for a failed one"
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
    fn next_request(&self) -> Result<Option<WorkerRequest>, ()> {
        let now = Instant::now();
        let until_facts = self.register_at.saturating_duration_since(now);
        let pause = self.backoff.pause(now).or(Some(until_facts).filter(|wait| !wait.is_zero()));
        let is_idle = self.upload.is_registered() && self.upload.store.state.next >= self.upload.store.closed;
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

    fn take(&mut self, request: WorkerRequest) {
        match request {
            WorkerRequest::Facts(facts, complete) => {
                self.upload.add_facts(facts);
                if complete {
                    self.register_at = Instant::now();
                }
            }
            WorkerRequest::Closed(batch) => {
                self.upload.store.close_and_compress(batch);
                if let Some(limit) = &self.limit {
                    limit.enforce(&mut self.upload.store);
                }
            }
            WorkerRequest::End(end, batch, until) => {
                self.unsaved = self.upload.store.end(end, batch).err();
                self.ending = Some((Instant::now(), until));
                self.backoff.restart(Duration::from_millis(250));
            }
        }
    }

    fn advance(&mut self) -> Result<(), Failure> {
        let was_registered = self.upload.is_registered();
        self.upload.register()?;
        self.reached = true;
        if !was_registered && let Some(limit) = &self.limit {
            left_behind::send_in_background(limit.spool.clone(), self.connect.clone());
        }
        if self.ending.is_some() {
            return self.upload.finish();
        }
        while self.upload.send_batch()? {}
        Ok(())
    }

    fn worked(&mut self) {
        if self.backoff.succeeded() {
            log::warn!("sentinel: the service takes rows again");
        }
    }

    fn failed(&mut self, failure: &Failure) {
        let tell_at = if self.upload.is_registered() { TELL_UPLOADS } else { 1 };
        let tell = self.backoff.failed(failure, Instant::now(), tell_at);
        let problem = failure.problem();
        match failure {
            Failure::Temporary(..) | Failure::Unavailable(..) if tell => {
                log::warn!("sentinel: {problem}; it is tried again, and rows are kept until they have arrived");
            }
            Failure::Temporary(..) | Failure::Unavailable(..) => (),
            Failure::Refused(_) | Failure::Permanent(_) => {
                self.stopped = true;
                let upload = &self.upload_command;
                log::warn!("sentinel: {problem}; nothing more is sent, and rows are kept for `{upload}`");
            }
        }
    }
}
