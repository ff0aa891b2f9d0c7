//! Calls a sink, guarded, on whichever thread.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::job::{Outcome, Run};
use crate::sample::Sample;
use crate::sink::Sink;

/// What is done when a sink has closed for good.
pub(super) type WhenClosed = Arc<dyn Fn() + Send + Sync>;

/// A sink that is called from now on.
pub(super) struct Writer {
    guard: Guard,
    /// Until the writer ends.
    sink: Option<Box<dyn Sink>>,
    closed: Option<WhenClosed>,
}

impl Writer {
    pub(super) fn new(component: &str, sink: Box<dyn Sink>, closed: Option<WhenClosed>) -> Self {
        Self { guard: Guard::new(component.to_owned()), sink: Some(sink), closed }
    }

    pub(super) fn start(&mut self, run: &Run) {
        let Some(sink) = &mut self.sink else { return };
        self.guard.call(Instant::now(), || sink.start(run));
    }

    /// How long samples wait for others; not at all when none comes in that time.
    pub(super) fn delay(&mut self, interval: Duration) -> Duration {
        let Some(sink) = &self.sink else { return Duration::ZERO };
        let delay = self.guard.run(|| sink.delay()).unwrap_or_default();
        if delay > interval { delay } else { Duration::ZERO }
    }

    pub(super) fn write(&mut self, sample: &Sample) {
        let Some(sink) = &mut self.sink else { return };
        let mut broken = false;
        self.guard.call(Instant::now(), || match sink.write(sample) {
            Err(error) if is_broken_pipe(&error) => {
                broken = true;
                Ok(())
            }
            result => result,
        });
        if broken && !self.guard.is_off() {
            // If `closed` is set, the program ends when its output has no reader, like a filter, and says nothing. Else
            // it goes on, and has to warn.
            let level = if self.closed.is_some() { log::Level::Debug } else { log::Level::Warn };
            log::log!(level, "{}: its reader has gone; no more samples go there", self.guard.component());
            self.guard.switch_off();
        }
        if self.guard.is_off()
            && let Some(closed) = self.closed.take()
        {
            closed();
        }
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        let Self { guard, sink, .. } = self;
        if let (Some(sink), false) = (sink, guard.is_off()) {
            guard.call_last(|| sink.finish(&outcome));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.guard.end(self.sink.take());
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::BrokenPipe)
}

/// A sink that the sampler calls. It is started with its first call.
pub(crate) struct DirectWriter {
    writer: Writer,
    not_started: Option<Arc<Run>>,
}

impl DirectWriter {
    pub(super) fn new(writer: Writer, run: &Arc<Run>) -> Self {
        Self { writer, not_started: Some(Arc::clone(run)) }
    }

    fn started(&mut self) -> &mut Writer {
        if let Some(run) = self.not_started.take() {
            self.writer.start(&run);
        }
        &mut self.writer
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        self.started().finish(outcome);
    }
}

/// Writes a sample to sinks without a thread, one after the other.
pub(super) fn write_direct(writers: &mut Vec<Arc<Mutex<DirectWriter>>>, sample: &Sample) {
    for writer in writers.drain(..) {
        writer.lock().unwrap_or_else(PoisonError::into_inner).started().write(sample);
    }
}
