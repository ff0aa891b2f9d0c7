//! Metrics that are sent to Prometheus, by its remote-write protocol.

use std::time::Duration;

use resource_tracker_core::{Outcome, Run, Sample, Sink};
use resource_tracker_telemetry::remote_write::Requests;

use super::exposed::Exposed;
use crate::http::sender::{Protocol, Receiver, Sender};
use crate::turns::Turns;

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
    pub(super) turns: Turns,
    pub(super) patience: Duration,
    /// From the start of the run on.
    pub(super) sender: Option<Sender>,
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

    /// Sends the latest sample if it is its turn.
    fn send_latest(&mut self, is_last: bool) {
        if self.turns.take(self.exposed.time(), is_last) {
            let request = self.exposed.next_request(&mut self.requests);
            self.add(&request);
        }
    }
}

impl Sink for RemoteWrite {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.exposed.begin(run);
        self.turns.begin(run);
        self.sender = Some(Sender::start(self.receiver.clone())?);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.exposed.take(sample)?;
        self.send_latest(false);
        Ok(())
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        self.send_latest(true);
        let end = self.requests.end();
        self.add(&end);
        self.sender.as_mut().map_or(Ok(()), |sender| sender.finish(self.patience))
    }
}
