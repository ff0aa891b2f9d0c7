//! Metrics that are sent to Prometheus, by its remote-write protocol.

use std::time::Duration;

use anyhow::Context;
use resource_tracker_core::{Run, Sample};
use resource_tracker_telemetry::remote_write;

use super::exposed::Exposed;
use crate::http::receiver::Protocol;
use crate::sending::Requests;

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

/// The requests of a run.
pub(super) struct RemoteWrite {
    exposed: Exposed,
    requests: remote_write::Requests,
}

impl RemoteWrite {
    pub(super) fn new(exposed: Exposed) -> Self {
        Self { exposed, requests: remote_write::Requests::default() }
    }
}

impl Requests for RemoteWrite {
    fn begin(&mut self, run: &Run) {
        self.exposed.begin(run);
    }

    fn take(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.exposed.take(sample)
    }

    fn time(&self) -> Duration {
        self.exposed.time()
    }

    fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        compressed(&self.exposed.next_request(&mut self.requests))
    }

    fn end(&mut self) -> anyhow::Result<Vec<u8>> {
        compressed(&self.requests.end())
    }
}

fn compressed(request: &[u8]) -> anyhow::Result<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(request).context("a request cannot be compressed")
}
