//! The thread that sends requests to a receiver of metrics.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use ureq::Agent;
use ureq::http::Method;
use ureq::tls::Certificate;
use url::Url;

use super::backoff::Backoff;
use super::outbox::Outbox;
use super::{Answer, Failure, agent_with, send};
use crate::secret::Secret;

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The user is told when so many requests in a row have failed.
const TELL: u32 = 3;

/// Where requests go, and how.
#[derive(Clone)]
pub(crate) struct Receiver {
    /// The sink, in warnings.
    pub(crate) sink: &'static str,
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
        Err(if can_pass { failure } else { Failure::Permanent(failure.problem().to_owned()) })
    }

    /// What requests are sent with. To make it, the certificates of the system are read.
    pub(crate) fn agent(&self) -> Agent {
        agent_with(self.certificates.clone(), self.timeout)
    }

    /// Sends what the outbox has, until it is closed.
    fn send_all(&self, outbox: &Outbox) {
        let Self { sink, .. } = self;
        let agent = self.agent();
        let mut backoff = Backoff::new(FIRST_PAUSE);
        let (mut back, mut asked) = (None, Duration::ZERO);
        let (mut is_rejection_said, mut is_refusal_said) = (false, false);
        loop {
            let pause = backoff.pause(Instant::now()).unwrap_or_default();
            let Some(request) = outbox.take(back.take(), pause, asked.min(pause)) else { return };
            asked = Duration::ZERO;
            match self.post(&agent, &request) {
                Ok(rejected) => {
                    if backoff.succeeded() {
                        log::warn!("{sink}: metrics are taken again");
                    }
                    if rejected > 0 && !std::mem::replace(&mut is_rejection_said, true) {
                        log::warn!("{sink}: {rejected} points of a request were rejected");
                    }
                }
                Err(failure) if failure.can_pass() => {
                    if backoff.failed(&failure, Instant::now(), TELL) {
                        log::warn!("{sink}: {}; it is tried again", failure.problem());
                    }
                    asked = failure.asked().unwrap_or_default();
                    back = Some(request);
                }
                Err(failure) => {
                    outbox.give_up();
                    if !std::mem::replace(&mut is_refusal_said, true) {
                        log::warn!("{sink}: {}; what a request like it holds is lost", failure.problem());
                    }
                }
            }
        }
    }
}

/// A receiver, and the thread that sends to it.
pub(crate) struct Sender {
    sink: &'static str,
    outbox: Arc<Outbox>,
    is_loss_said: bool,
}

impl Sender {
    pub(crate) fn start(receiver: Receiver) -> anyhow::Result<Self> {
        let outbox = Arc::<Outbox>::default();
        let (sink, own) = (receiver.sink, Arc::clone(&outbox));
        let spawned = thread::Builder::new().name(format!("{sink}-sender")).spawn(move || receiver.send_all(&own));
        spawned.context("no thread to send from")?;
        Ok(Self { sink, outbox, is_loss_said: false })
    }

    /// Adds a request, which is sent as it is.
    pub(crate) fn add(&mut self, request: Vec<u8>) {
        if self.outbox.add(request) > 0 && !std::mem::replace(&mut self.is_loss_said, true) {
            log::warn!("{}: too many requests wait, and the oldest are lost", self.sink);
        }
    }

    /// Nothing more comes. Waits until all has arrived, but not longer than this.
    ///
    /// # Errors
    /// When something never arrived.
    pub(crate) fn finish(&mut self, patience: Duration) -> anyhow::Result<()> {
        match self.outbox.close(patience) {
            0 => Ok(()),
            1 => anyhow::bail!("a request did not arrive"),
            lost => anyhow::bail!("{lost} requests did not arrive"),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.outbox.close(Duration::ZERO);
    }
}
