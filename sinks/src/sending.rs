//! What sinks do that send metrics to a receiver while the run goes on.

use std::path::PathBuf;
use std::time::Duration;

use resource_tracker_core::{Outcome, Run, Sample, Sink};

use crate::http::receiver::Receiver;
use crate::spool::{Recorder, Rules};
use crate::turns::Turns;

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

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
    spool: SpoolPlace,
    /// From the start of the run on.
    recorder: Option<Recorder<Receiver>>,
}

/// Where requests wait that were not taken yet.
pub(crate) struct SpoolPlace {
    /// The default one unless it is named.
    pub(crate) directory: Option<PathBuf>,
    /// What may wait there, in MiB.
    pub(crate) max_mib: u64,
}

impl<R: Requests> Sending<R> {
    /// One sample in each `interval` is sent. The end waits for `patience` for what has not arrived.
    pub(crate) fn new(
        requests: R,
        receiver: Receiver,
        interval: Duration,
        patience: Duration,
        spool: SpoolPlace,
    ) -> Self {
        Self { requests, turns: Turns::new(interval), receiver, patience, spool, recorder: None }
    }

    /// Sends the latest sample if it is its turn.
    fn send_latest(&mut self, is_last: bool) -> anyhow::Result<()> {
        if self.turns.take(self.requests.time(), is_last) {
            let request = self.requests.next()?;
            self.send(&request);
        }
        Ok(())
    }

    fn send(&mut self, request: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.add(request);
            recorder.close();
        }
    }
}

impl<R: Requests> Sink for Sending<R> {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        self.requests.begin(run);
        self.turns.begin(run);
        let rules = Rules {
            directory: self.spool.directory.as_deref(),
            limit: self.spool.max_mib.saturating_mul(1 << 20),
            first_pause: FIRST_PAUSE,
            until_known: Duration::ZERO,
        };
        self.recorder = Some(Recorder::begin(self.receiver.saved.clone(), Ok(self.receiver.clone()), rules)?);
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
        let end = self.requests.end()?;
        if let Some(mut recorder) = self.recorder.take() {
            recorder.add(&end);
            recorder.finish(Box::new(|_| ()), self.patience);
        }
        Ok(())
    }
}
