//! One sink at work: its queue, its thread, and what is said when it does not keep up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::sink_writer::{DirectWriter, WhenClosed, Writer};
use crate::job::{Outcome, Run};
use crate::patience;
use crate::sample::Sample;
use crate::sink::Sink;

/// At most so many samples wait for a sink: five seconds at 10 ms. Further ones are lost to this sink.
const QUEUE: usize = 512;
/// At most so many samples wait to be written together, because each takes memory.
const BATCH: u64 = 16;

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
    /// The sink has a thread.
    Queue(Queue),
    /// The system gave no thread: the sink is called by the sampler.
    Direct(Arc<Mutex<DirectWriter>>),
}

/// What waits for a sink's thread.
struct Queue {
    /// `None` once no sample follows.
    samples: Option<SyncSender<Arc<Sample>>>,
    thread: Thread,
    shared: Arc<Shared>,
    given: u64,
    done: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    outcome: OnceLock<Outcome>,
    taken: AtomicU64,
}

impl Queue {
    /// Adds a sample. False when there is no room.
    fn add(&mut self, sample: &Arc<Sample>) -> bool {
        let Some(samples) = &self.samples else { return true };
        match samples.try_send(Arc::clone(sample)) {
            Ok(()) => self.given += 1,
            Err(error) => return !matches!(error, TrySendError::Full(_)),
        }
        if self.given - self.shared.taken.load(Ordering::Relaxed) >= BATCH {
            self.thread.unpark();
        }
        true
    }

    /// No sample follows.
    fn close(&mut self) {
        self.samples = None;
        self.thread.unpark();
    }
}

impl Drop for Queue {
    /// Samples that wait are written even if the end of the run is not known.
    fn drop(&mut self) {
        self.close();
    }
}

/// The next sample. If none waits, the thread sleeps for `delay` first, so that several can gather.
fn next(queue: &Receiver<Arc<Sample>>, delay: Duration) -> Option<Arc<Sample>> {
    match queue.try_recv() {
        Err(TryRecvError::Empty) => {
            if !delay.is_zero() {
                // Not at the queue, where each sample would wake the thread.
                thread::park_timeout(delay);
            }
            queue.recv().ok()
        }
        sample => sample.ok(),
    }
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
        let writer = Writer::new(&component, sink, closed.clone());
        let (samples, queue) = mpsc::sync_channel::<Arc<Sample>>(QUEUE);
        let (finished, done) = mpsc::channel();
        // The writer is handed over when there is a thread.
        let (handed, writers) = mpsc::channel::<Writer>();
        let shared = Arc::new(Shared::default());
        let spawned = thread::Builder::new().name(name.replace('\0', "?")).spawn({
            let (shared, run) = (Arc::clone(&shared), Arc::clone(run));
            move || {
                let Ok(mut writer) = writers.recv() else { return };
                writer.start(&run);
                let delay = writer.delay(run.interval);
                while let Some(sample) = next(&queue, delay) {
                    writer.write(&sample);
                    shared.taken.fetch_add(1, Ordering::Relaxed);
                }
                writer.finish(shared.outcome.get().copied().unwrap_or_default());
                // The receiver is gone when the tracker was dropped.
                let _ = finished.send(());
            }
        });
        let delivery = match spawned {
            Ok(handle) => {
                // The thread waits for the writer.
                let _ = handed.send(writer);
                let thread = handle.thread().clone();
                Delivery::Queue(Queue { samples: Some(samples), given: 0, thread, shared, done })
            }
            Err(error) => {
                log::warn!("{component}: no thread for it ({error}), so the sampler writes, and waits where it blocks");
                return Self::direct(component, writer, patience, run);
            }
        };
        Self { component, patience, delivery, lost: 0 }
    }

    /// A sink that the sampler calls.
    fn direct(component: String, writer: Writer, patience: Duration, run: &Arc<Run>) -> Self {
        let delivery = Delivery::Direct(Arc::new(Mutex::new(DirectWriter::new(writer, run))));
        Self { component, patience, delivery, lost: 0 }
    }

    /// Hands over a sample, without waiting. A sink without a thread is returned: it can hang, so the caller calls it
    /// while it holds no lock.
    pub(crate) fn hand_over(&mut self, sample: &Arc<Sample>) -> Option<Arc<Mutex<DirectWriter>>> {
        match &mut self.delivery {
            Delivery::Direct(writer) => return Some(Arc::clone(writer)),
            Delivery::Queue(queue) => {
                if !queue.add(sample) {
                    if self.lost == 0 {
                        log::warn!("{} does not keep up; {QUEUE} samples wait, further ones are lost", self.component);
                    }
                    self.lost += 1;
                }
            }
        }
        None
    }

    /// Tells a sink with a thread that nothing follows.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        if let Delivery::Queue(queue) = &mut self.delivery {
            let _ = queue.shared.outcome.set(outcome);
            queue.close();
        }
    }

    /// Finishes a sink without a thread, unless the sampler hangs in it.
    pub(crate) fn finish_direct(&mut self, outcome: Outcome) {
        let Delivery::Direct(writer) = &self.delivery else { return };
        let free = patience::within(self.patience, |part| try_lock(writer, part));
        match free {
            Some(mut writer) => writer.finish(outcome),
            None => log::warn!("{} is stuck; what it had not written yet is lost", self.component),
        }
    }

    /// Waits until the sink has written its samples, as long as it makes progress.
    pub(crate) fn wait(&mut self) {
        if let Delivery::Queue(Queue { shared, done, .. }) = &self.delivery {
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

/// Tries it for so long.
fn try_lock<T>(mutex: &Mutex<T>, limit: Duration) -> Option<MutexGuard<'_, T>> {
    let deadline = Instant::now() + limit;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::running::Running;
    use super::super::sink_writer::write_direct;
    use super::*;

    /// Says when it is called, and then waits until it may go on.
    struct Hangs(mpsc::Sender<()>, Receiver<()>);

    impl Sink for Hangs {
        fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
            self.0.send(())?;
            Ok(self.1.recv()?)
        }
    }

    struct Finished(mpsc::Sender<Outcome>);

    impl Sink for Finished {
        fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
            Ok(())
        }

        fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
            Ok(self.0.send(*outcome)?)
        }
    }

    /// Can wait for long, and tells what it is called for: the number of a sample, or nothing at the end.
    struct Patient(mpsc::Sender<Option<u64>>);

    impl Sink for Patient {
        fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
            Ok(self.0.send(Some(sample.timestamp.as_secs()))?)
        }

        fn delay(&self) -> Duration {
            Duration::from_secs(3600)
        }

        fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
            Ok(self.0.send(None)?)
        }
    }

    fn runner(sink: impl Sink + 'static, interval: Duration) -> SinkRunner {
        let run = Arc::new(Run { interval, ..Run::default() });
        SinkRunner::new("test", Box::new(sink), patience::PATIENCE, &run, &None)
    }

    fn sample(number: u64) -> Arc<Sample> {
        Arc::new(Sample { timestamp: Duration::from_secs(number), ..Sample::default() })
    }

    #[test]
    fn samples_wait_until_there_are_enough_or_the_run_ends() -> anyhow::Result<()> {
        let (calls, called) = mpsc::channel();
        let mut runner = runner(Patient(calls), Duration::from_millis(10));
        let mut given = 0;
        let mut give = || {
            runner.hand_over(&sample(given));
            given += 1;
        };
        let mut written = Vec::new();
        // What it finds before it begins to wait, it writes: it is given ever more time to begin, because a busy machine may run
        // this thread first each time.
        let waits = (0..10).any(|turn| {
            thread::sleep(Duration::from_millis(20 * turn));
            give();
            called.recv_timeout(Duration::from_millis(200)).map(|call| written.push(call)).is_err()
        });
        assert!(waits, "it is not woken by each");
        (0..BATCH).for_each(|_| give());
        written.push(called.recv()?);
        give();
        runner.close(Outcome::default());
        runner.wait();
        written.extend(called.try_iter());
        assert_eq!(written, (0..given).map(Some).chain([None]).collect::<Vec<_>>(), "all, in order, before the end");
        Ok(())
    }

    #[test]
    fn samples_that_come_seldom_do_not_wait() -> anyhow::Result<()> {
        let (calls, called) = mpsc::channel();
        let mut runner = runner(Patient(calls), Duration::from_secs(7200));
        for number in 0..3 {
            runner.hand_over(&sample(number));
            assert_eq!(called.recv()?, Some(number));
        }
        Ok(())
    }

    #[test]
    fn samples_that_wait_are_written_when_the_tracker_is_dropped() -> anyhow::Result<()> {
        let (calls, called) = mpsc::channel();
        let mut runner = runner(Patient(calls), Duration::from_millis(10));
        (0..3).for_each(|number| drop(runner.hand_over(&sample(number))));
        drop(runner);
        assert_eq!(called.iter().collect::<Vec<_>>(), [Some(0), Some(1), Some(2), None]);
        Ok(())
    }

    #[test]
    fn samples_are_counted_that_have_no_room() -> anyhow::Result<()> {
        let ((began, begun), (go_on, gate)) = (mpsc::channel(), mpsc::channel());
        let mut runner = runner(Hangs(began, gate), Duration::from_millis(10));
        runner.hand_over(&sample(0));
        begun.recv()?;
        (0..QUEUE + 3).for_each(|_| drop(runner.hand_over(&sample(0))));
        assert_eq!(runner.lost, 3);
        drop(go_on);
        Ok(())
    }

    #[test]
    fn a_sink_without_a_thread_that_hangs_keeps_no_outcome_from_others() -> anyhow::Result<()> {
        let ((began, begun), (go_on, gate), (finished, outcomes)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let (run, short) = (Arc::new(Run::default()), Duration::from_millis(50));
        let mut sinks =
            SinkRunners::new(vec![("b".into(), Box::new(Finished(finished)), patience::PATIENCE)], &run, None);
        let writer = Writer::new("sink a", Box::new(Hangs(began, gate)), None);
        sinks.open.push(SinkRunner::direct("sink a".into(), writer, short, &run));
        let sinks = Arc::new(Mutex::new(sinks));
        let sampler = thread::spawn({
            let sinks = Arc::clone(&sinks);
            move || {
                let sample = Arc::default();
                let mut direct = lock(&sinks).open().iter_mut().filter_map(|sink| sink.hand_over(&sample)).collect();
                write_direct(&mut direct, &sample);
            }
        });
        begun.recv()?;
        let outcome = Outcome { exit_code: Some(3), signal: None };
        Running::new(mpsc::channel().0, sinks, Arc::default()).finish(outcome);
        assert_eq!(outcomes.try_recv(), Ok(outcome), "while the other one hangs");
        go_on.send(())?;
        assert!(sampler.join().is_ok());
        Ok(())
    }
}
