//! One sink at work: its queue, its thread, and what is said when it does not keep up.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::job::{Outcome, Run};
use crate::patience;
use crate::sample::Sample;
use crate::sink::Sink;

/// Samples that wait for a sink at most: five seconds at 10 ms. What comes on top is lost to this sink.
const QUEUE: usize = 512;

/// What is done when every sink has closed for good.
pub(super) type WhenClosed = Arc<dyn Fn() + Send + Sync>;

/// A sink that is not at work yet: its name, and how long it is waited for.
pub(super) type PendingSink = (String, Box<dyn Sink>, Duration);

/// The sinks of a run. They are set up once the baseline was read, or when the run ends before that.
pub(super) struct SinkRunners {
    waiting: Vec<PendingSink>,
    open: Vec<SinkRunner>,
    run: Arc<Run>,
    one_closed: Option<WhenClosed>,
}

impl SinkRunners {
    pub(super) fn new(sinks: Vec<PendingSink>, run: &Arc<Run>, all_closed: Option<WhenClosed>) -> Self {
        let open = AtomicUsize::new(sinks.len());
        let one_closed = all_closed.map(|all_closed| -> WhenClosed {
            Arc::new(move || {
                if open.fetch_sub(1, Ordering::AcqRel) == 1 {
                    all_closed();
                }
            })
        });
        Self { waiting: sinks, open: Vec::new(), run: Arc::clone(run), one_closed }
    }

    /// All of them at work.
    pub(super) fn open(&mut self) -> &mut [SinkRunner] {
        let Self { waiting, open, run, one_closed } = self;
        open.extend(
            waiting.drain(..).map(|(name, sink, patience)| SinkRunner::new(&name, sink, patience, run, one_closed)),
        );
        open
    }
}

pub(super) fn lock(sinks: &Mutex<SinkRunners>) -> MutexGuard<'_, SinkRunners> {
    sinks.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct SinkRunner {
    component: String,
    patience: Duration,
    delivery: Delivery,
    lost: u64,
}

enum Delivery {
    /// The sink has a thread and a queue.
    Queue { samples: Option<SyncSender<Arc<Sample>>>, shared: Arc<Shared>, done: Receiver<()> },
    /// The system gave no thread: the sink is called by the sampler.
    Direct(Writer),
    /// It had no thread, and has finished.
    Closed,
}

#[derive(Default)]
struct Shared {
    outcome: OnceLock<Outcome>,
    taken: AtomicU64,
}

impl SinkRunner {
    pub(crate) fn new(
        name: &str,
        sink: Box<dyn Sink>,
        patience: Duration,
        run: &Arc<Run>,
        closed: &Option<WhenClosed>,
    ) -> Self {
        let component = format!("sink {name}");
        let (samples, queue) = mpsc::sync_channel::<Arc<Sample>>(QUEUE);
        let (finished, done) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        // The writer is handed over through a cell, so that it is still here when there is no thread.
        let writer = Arc::new(Mutex::new(Some(Writer::new(&component, sink, closed.clone()))));
        let spawned = thread::Builder::new().name(name.replace('\0', "?")).spawn({
            let (writer, shared, run) = (Arc::clone(&writer), Arc::clone(&shared), Arc::clone(run));
            move || {
                let Some(mut writer) = take(&writer) else { return };
                writer.start(&run);
                for sample in queue {
                    writer.write(&sample);
                    shared.taken.fetch_add(1, Ordering::Relaxed);
                }
                writer.finish(shared.outcome.get().copied().unwrap_or_default());
                // Nobody waits when the tracker was dropped.
                let _ = finished.send(());
            }
        });
        let left = spawned.err().and_then(|error| Some((error, take(&writer)?)));
        let delivery = match left {
            None => Delivery::Queue { samples: Some(samples), shared, done },
            Some((error, mut writer)) => {
                log::warn!("{component}: no thread for it ({error}), so the sampler writes, and waits where it blocks");
                writer.start(run);
                Delivery::Direct(writer)
            }
        };
        Self { component, patience, delivery, lost: 0 }
    }

    /// Hands over a sample, without waiting.
    pub(crate) fn write(&mut self, sample: &Arc<Sample>) {
        match &mut self.delivery {
            Delivery::Direct(writer) => writer.write(sample),
            Delivery::Queue { samples: Some(samples), .. } => {
                if let Err(TrySendError::Full(_)) = samples.try_send(Arc::clone(sample)) {
                    if self.lost == 0 {
                        log::warn!("{} does not keep up; {QUEUE} samples wait, further ones are lost", self.component);
                    }
                    self.lost += 1;
                }
            }
            Delivery::Queue { samples: None, .. } | Delivery::Closed => (),
        }
    }

    /// Tells the sink that nothing follows.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        match &mut self.delivery {
            Delivery::Direct(writer) => {
                writer.finish(outcome);
                self.delivery = Delivery::Closed;
            }
            Delivery::Closed => (),
            Delivery::Queue { samples, shared, .. } => {
                let _ = shared.outcome.set(outcome);
                *samples = None;
            }
        }
    }

    /// Waits until the sink has written what it has, as long as it gets on.
    pub(crate) fn wait(&mut self) {
        if let Delivery::Queue { shared, done, .. } = &self.delivery {
            let mut taken = shared.taken.load(Ordering::Relaxed);
            while let Err(RecvTimeoutError::Timeout) = patience::receive(done, self.patience) {
                let now = shared.taken.load(Ordering::Relaxed);
                if now == taken {
                    log::warn!("{} is stuck; what it had not written yet is lost", self.component);
                    break;
                }
                taken = now;
            }
        }
        if self.lost > 0 {
            log::warn!("{} did not keep up: {} samples were lost", self.component, self.lost);
        }
    }
}

fn take(cell: &Mutex<Option<Writer>>) -> Option<Writer> {
    cell.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Calls the sink, guarded.
struct Writer {
    guard: Guard,
    sink: Box<dyn Sink>,
    closed: Option<WhenClosed>,
}

impl Writer {
    fn new(component: &str, sink: Box<dyn Sink>, closed: Option<WhenClosed>) -> Self {
        Self { guard: Guard::new(component.to_owned()), sink, closed }
    }

    fn start(&mut self, run: &Run) {
        let sink = &mut self.sink;
        self.guard.call(Instant::now(), || sink.start(run));
    }

    fn write(&mut self, sample: &Sample) {
        let (sink, mut broken) = (&mut self.sink, false);
        self.guard.call(Instant::now(), || match sink.write(sample) {
            Err(error) if is_broken_pipe(&error) => {
                broken = true;
                Ok(())
            }
            result => result,
        });
        if broken && !self.guard.is_off() {
            // Whoever ends when nobody reads, as a filter does, says nothing; whoever lives on has to.
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

    fn finish(&mut self, outcome: Outcome) {
        let Self { guard, sink, .. } = self;
        if !guard.is_off() {
            guard.call_last(|| sink.finish(&outcome));
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::BrokenPipe)
}
