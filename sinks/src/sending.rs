//! What sinks do that send metrics to a receiver while the run goes on.

use std::time::Duration;

use resource_tracker_core::{Outcome, Run, Sample, Sink};

use crate::http::sender::{Receiver, Sender};
use crate::turns::Turns;

/// Makes the requests of a run, as a protocol has them, compressed.
pub(crate) trait Requests: Send {
    /// The run begins.
    fn begin(&mut self, run: &Run);

    /// Takes in the next sample.
    fn take(&mut self, sample: &Sample) -> anyhow::Result<()>;

    /// When the latest sample was taken, since 1970.
    fn time(&self) -> Duration;

    /// A request with the latest sample.
    fn next(&mut self) -> anyhow::Result<Vec<u8>>;

    /// The last request, which ends all series.
    fn end(&mut self) -> anyhow::Result<Vec<u8>>;
}

/// Sends some samples, and the last one, and then the end.
pub(crate) struct Sending<R> {
    requests: R,
    turns: Turns,
    receiver: Receiver,
    patience: Duration,
    /// From the start of the run on.
    sender: Option<Sender>,
}

impl<R: Requests> Sending<R> {
    /// One sample in each `interval` is sent. The end waits for `patience` for what has not arrived.
    pub(crate) fn new(requests: R, receiver: Receiver, interval: Duration, patience: Duration) -> Self {
        Self { requests, turns: Turns::new(interval), receiver, patience, sender: None }
    }

    /// Sends the latest sample if it is its turn.
    fn send_latest(&mut self, is_last: bool) -> anyhow::Result<()> {
        if let Some(sender) = &mut self.sender
            && self.turns.take(self.requests.time(), is_last)
        {
            sender.add(self.requests.next()?);
        }
        Ok(())
    }
}

impl<R: Requests> Sink for Sending<R> {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.requests.begin(run);
        self.turns.begin(run);
        self.sender = Some(Sender::start(self.receiver.clone())?);
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.requests.take(sample)?;
        self.send_latest(false)
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        self.send_latest(true)?;
        let Some(sender) = &mut self.sender else { return Ok(()) };
        sender.add(self.requests.end()?);
        sender.finish(self.patience)
    }
}
