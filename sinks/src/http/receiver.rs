//! Receivers of metrics: requests go there by way of the spool.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::Agent;
use ureq::http::Method;
use ureq::tls::Certificate;
use url::Url;

use super::{Answer, Failure, agent_with, send};
use crate::secret::Secret;
use crate::spool::{Batches, Destination, REQUEST, RowsState, State, Store, Upload, place};

/// Where requests go, and how.
#[derive(Clone)]
pub(crate) struct Receiver {
    /// What is saved of it beside requests that wait.
    pub(crate) saved: SavedReceiver,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(String, Secret)>,
    /// Whom to trust beside the system.
    pub(crate) certificates: Vec<Certificate<'static>>,
    /// How long a request may take.
    pub(crate) timeout: Duration,
    /// What the protocol wants.
    pub(crate) protocol: Protocol,
}

/// What protocols of metrics differ in.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    /// Headers of each request.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Whether it is worth another try after this status.
    pub(crate) can_pass: fn(u16) -> bool,
    /// How many points were rejected, by an answer that says that the others were taken.
    pub(crate) rejected: fn(&[u8]) -> i64,
}

/// What requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Otlp,
    OtlpGzip,
    RemoteWrite,
}

/// `run.json` of a run whose requests wait for a receiver. It holds no header, which can be secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedReceiver {
    #[serde(rename = "sink")]
    pub(crate) kind: Kind,
    /// Trackers of earlier versions take this for the address of another service, and leave the run alone.
    #[serde(rename = "api_url")]
    pub(crate) url: String,
    /// The file of certificates to trust beside those of the system.
    pub(crate) certificate: Option<PathBuf>,
    /// The file with the header that says who sends.
    pub(crate) authorization_file: Option<PathBuf>,
    /// Whether headers may go there unencrypted.
    pub(crate) allow_http: bool,
    /// What was sent is removed: the files tell what waits.
    #[serde(skip)]
    next: u32,
}

impl SavedReceiver {
    /// What is saved of a receiver that needs nothing but its address.
    pub(crate) fn new(kind: Kind, url: &Url) -> Self {
        Self { kind, url: url.to_string(), certificate: None, authorization_file: None, allow_http: false, next: 0 }
    }
}

impl State for SavedReceiver {
    /// Who gets a request again has it already.
    const SAVES_PROGRESS: bool = false;

    fn sink(&self) -> &'static str {
        match self.kind {
            Kind::Otlp | Kind::OtlpGzip => "otlp",
            Kind::RemoteWrite => "prometheus",
        }
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| place(&error))
    }

    fn next(&self) -> u32 {
        self.next
    }

    fn settle(&mut self, below: u32, _: bool) {
        self.next = below;
    }

    /// A run can go on for years.
    fn last_batch(&self) -> u32 {
        u32::MAX - 1
    }
}

impl RowsState for SavedReceiver {
    fn batches(&self) -> Batches {
        Batches { extension: REQUEST, header: String::new(), is_lines: false }
    }
}

impl Receiver {
    /// Sends a request. Says how many points of it were rejected.
    pub(crate) fn post(&self, agent: &Agent, request: &[u8]) -> Result<i64, Failure> {
        let what = format!("POST {}", self.url);
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
        let headers: Vec<_> = own.chain(self.protocol.headers.iter().copied()).collect();
        let answer = Answer::read(&what, send(agent, Method::POST, self.url.as_str(), &headers, request))?;
        if answer.is_success() {
            return Ok((self.protocol.rejected)(&answer.body));
        }
        let failure = answer.failure(&what);
        let can_pass = failure.can_pass() && (self.protocol.can_pass)(answer.status);
        Err(match answer.status {
            _ if can_pass => failure,
            // The request is good: it is who sends it, or the address, that is not.
            401 | 403..=405 | 407 => Failure::Refused(failure.problem().to_owned()),
            _ => Failure::Permanent(failure.problem().to_owned()),
        })
    }

    /// What requests are sent with. To make it, the certificates of the system are read.
    pub(crate) fn agent(&self) -> Agent {
        agent_with(self.certificates.clone(), self.timeout)
    }
}

impl Destination for Receiver {
    type Upload = RequestUpload;

    fn upload(&self, store: Store<SavedReceiver>) -> Result<RequestUpload, Failure> {
        let SavedReceiver { kind, url, .. } = &store.state;
        if (kind, url) != (&self.saved.kind, &self.saved.url) {
            return Err(Failure::Permanent(format!("it belongs to {url}")));
        }
        let (receiver, agent) = (self.clone(), None);
        Ok(RequestUpload { receiver, agent, store, is_rejection_said: false, is_refusal_said: false, lost: 0 })
    }
}

/// Sends the requests of one run.
pub(crate) struct RequestUpload {
    receiver: Receiver,
    /// Made for the first request, by the thread that sends it.
    agent: Option<Agent>,
    store: Store<SavedReceiver>,
    is_rejection_said: bool,
    is_refusal_said: bool,
    /// How many requests were refused for good.
    lost: u32,
}

impl Upload for RequestUpload {
    type State = SavedReceiver;

    fn store(&self) -> &Store<SavedReceiver> {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store<SavedReceiver> {
        &mut self.store
    }

    fn send_batch(&mut self) -> Result<bool, Failure> {
        let Some(request) = self.store.next_body()? else { return Ok(false) };
        let sink = self.store.state.sink();
        let agent = self.agent.get_or_insert_with(|| self.receiver.agent());
        match self.receiver.post(agent, &request) {
            Ok(rejected) => {
                if rejected > 0 && !std::mem::replace(&mut self.is_rejection_said, true) {
                    log::warn!("{sink}: {rejected} points of a request were rejected");
                }
                self.store.settle(true);
            }
            Err(failure) if failure.can_pass() => return Err(failure),
            Err(Failure::Refused(problem)) if self.store.pass() => {
                if !std::mem::replace(&mut self.is_refusal_said, true) {
                    log::warn!("{sink}: {problem}; requests that are refused so are kept");
                }
            }
            Err(failure) => {
                if self.lost == 0 {
                    log::warn!("{sink}: {}; what a request like it holds is lost", failure.problem());
                }
                self.lost += 1;
                self.store.settle(false);
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        while self.send_batch()? {}
        if self.lost > 1 {
            log::warn!("{}: {} requests were refused, and are lost", self.store.state.sink(), self.lost);
        }
        self.remove_sent();
        Ok(())
    }
}
