//! A tracker at work, for the program that started it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::sampler_request::SamplerRequest;
use super::sink_runner::{SinkRunner, SinkRunners, lock};
use crate::job::Outcome;
use crate::patience;

/// A tracker at work. Dropping it stops the sampling; [`finish`](Running::finish) also closes the sinks in order.
pub struct Running {
    requests: mpsc::Sender<SamplerRequest>,
    sinks: Arc<Mutex<SinkRunners>>,
    steps: Arc<AtomicUsize>,
}

impl Running {
    pub(super) fn new(
        requests: mpsc::Sender<SamplerRequest>,
        sinks: Arc<Mutex<SinkRunners>>,
        steps: Arc<AtomicUsize>,
    ) -> Self {
        Self { requests, sinks, steps }
    }

    /// Takes one more sample and no further ones. Says whether it was taken. A source that hangs in the kernel can
    /// prevent it: it is given up when no source was read for as long as `limit`.
    pub fn take_last_sample(&self, limit: Duration) -> bool {
        let (done, taken) = mpsc::channel();
        if self.requests.send(SamplerRequest::LastSample(done)).is_err() {
            return false;
        }
        loop {
            let steps = self.steps.load(Ordering::Relaxed);
            match patience::receive(&taken, limit) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if self.steps.load(Ordering::Relaxed) != steps => (),
                Err(_) => return false,
            }
        }
    }

    /// Ends the run: the sinks write what waits for them and close. A sink that makes no progress is left behind after
    /// its patience, with a message.
    pub fn finish(self, outcome: Outcome) {
        self.close(outcome).wait();
    }

    /// Ends the run as [`finish`](Self::finish) does, without waiting for the sinks: meanwhile there may be other things to
    /// put in order.
    pub fn close(self, outcome: Outcome) -> Closing {
        // The loop has ended already if the last sample was taken.
        let _ = self.requests.send(SamplerRequest::Stop);
        lock(&self.sinks).open().iter_mut().for_each(|sink| sink.close(outcome));
        Closing { sinks: self.sinks, outcome }
    }
}

/// A tracker whose run has ended, and whose sinks are closing.
#[must_use = "sinks that are not waited for may lose what they have not written yet"]
pub struct Closing {
    sinks: Arc<Mutex<SinkRunners>>,
    outcome: Outcome,
}

impl Closing {
    /// Waits until the sinks have closed, as [`Running::finish`] does.
    pub fn wait(self) {
        let mut sinks = lock(&self.sinks);
        let sinks = sinks.open();
        sinks.iter_mut().for_each(SinkRunner::wait);
        // Last, because each is called here, and can hang.
        sinks.iter_mut().for_each(|sink| sink.finish_direct(self.outcome));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::super::Tracker;
    use super::*;
    use crate::job::Run;
    use crate::sample::{Sample, Sections};
    use crate::sink::Sink;
    use crate::source::{Schedule, Source, Tick};

    /// Hangs until it may go on.
    struct Hangs(mpsc::Receiver<()>);

    impl Source for Hangs {
        fn collect(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            Ok(self.0.recv()?)
        }
    }

    struct Calls(Arc<Mutex<Vec<String>>>);

    impl Calls {
        fn say(&self, call: String) -> anyhow::Result<()> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            Ok(())
        }
    }

    impl Sink for Calls {
        fn start(&mut self, run: &Run) -> anyhow::Result<()> {
            self.say(format!("start {:?}", run.pid))
        }

        fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
            self.say("write".into())
        }

        fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
            self.say(format!("finish {:?}", outcome.exit_code))
        }
    }

    #[test]
    fn a_run_that_ends_before_its_first_reading_closes_its_sinks() -> anyhow::Result<()> {
        let (go_on, gate) = mpsc::channel();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let run = Run { pid: Some(7), ..Run::default() };
        let tracker = Tracker::new(run).own_source("hangs", Hangs(gate), Schedule::default());
        let running = tracker.sink("calls", Calls(Arc::clone(&calls))).start()?;
        assert!(!running.take_last_sample(Duration::from_millis(50)), "it hangs");
        running.finish(Outcome { exit_code: Some(3), signal: None });
        let called = || calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(called(), ["start Some(7)", "finish Some(3)"]);
        drop(go_on);
        Ok(())
    }
}
