//! Metrics that are sent to Prometheus, by its remote-write protocol.

use std::time::{Duration, UNIX_EPOCH};

use resource_tracker_core::{Outcome, Run, Sample, Sink};
use resource_tracker_telemetry::remote_write::Requests;

use super::exposed::Exposed;
use crate::http::sender::{Protocol, Receiver, Sender};

/// By the protocol, only these can pass.
pub(super) const PROTOCOL: Protocol = Protocol {
    headers: &[
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ],
    can_pass: |status| status == 429 || (500..600).contains(&status),
    rejected: |_| 0,
};

pub(super) struct RemoteWrite {
    pub(super) exposed: Exposed,
    pub(super) requests: Requests,
    pub(super) receiver: Receiver,
    pub(super) interval: Duration,
    pub(super) patience: Duration,
    pub(super) sent: Sent,
    /// From the start of the run on.
    pub(super) sender: Option<Sender>,
}

/// Times of samples, since 1970.
#[derive(Default)]
pub(super) struct Sent {
    /// Of the one that was sent last, or of the start of the run.
    last: Duration,
    /// Of the latest one.
    latest: Duration,
}

impl RemoteWrite {
    fn add(&mut self, request: &[u8]) {
        if let Some(sender) = &mut self.sender
            && !request.is_empty()
        {
            match snap::raw::Encoder::new().compress_vec(request) {
                Ok(request) => sender.add(request),
                Err(error) => log::warn!("prometheus: a request cannot be compressed: {error}"),
            }
        }
    }

    fn send_latest(&mut self) {
        self.sent.last = self.sent.latest;
        let request = self.exposed.next_request(&mut self.requests, self.sent.latest);
        self.add(&request);
    }
}

impl Sink for RemoteWrite {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.exposed.begin(run);
        self.sent.last = run.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.sender = Some(Sender::start(self.receiver.clone())?);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.exposed.take(sample)?;
        self.sent.latest = sample.timestamp();
        // A clock that was set back does not stop it.
        if self.sent.latest < self.sent.last || self.sent.latest - self.sent.last >= self.interval {
            self.send_latest();
        }
        Ok(())
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500).min(self.interval)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        if self.sent.latest != self.sent.last && self.sent.latest != Duration::ZERO {
            self.send_latest();
        }
        let end = self.requests.end();
        self.add(&end);
        self.sender.as_mut().map_or(Ok(()), |sender| sender.finish(self.patience))
    }
}
