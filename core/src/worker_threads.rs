//! Threads that take turns at work which seldom blocks.
//!
//! Most work is a few short readings at the beginning of a run, for which one thread after another would begin and end.
//! So work waits for a thread that is busy, and gets one more only if that takes long.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(15);

/// Work for a thread.
pub(crate) trait Work: Send + Sync {
    /// Does what there is to do, and all that comes until it is closed if it `waits`. It never panics.
    fn work(&self, waits: bool);

    /// What `ps -T` shows meanwhile (15 bytes of it).
    fn name(&self) -> &str;
}

/// The threads of one run. They end when this value is dropped, or when they come back from what they hang in.
#[derive(Default)]
pub(crate) struct WorkerThreads {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work_came: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<dyn Work>>,
    threads: usize,
    /// How many of them have nothing to do, or are about to begin.
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                state.idle -= 1;
                drop(state);
                set_name(work.name());
                work.work(false);
                drop(work);
                state = self.lock();
                state.idle += 1;
                continue;
            }
            if state.closed {
                break;
            }
            set_name("worker");
            let (next, waited) = self.work_came.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        state.idle -= 1;
    }
}

impl WorkerThreads {
    /// Begins a thread, unless there is one.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.threads == 0 { self.begin_one(&mut state) } else { Ok(()) }
    }

    /// Hands over work, which waits for its turn.
    pub(crate) fn submit(&self, work: Arc<dyn Work>) {
        let mut state = self.shared.lock();
        state.waiting.push_back(work);
        if state.threads == 0 {
            // Without a thread the work waits until it is asked to hurry.
            let _ = self.begin_one(&mut state);
        } else {
            self.shared.work_came.notify_one();
        }
    }

    /// How many threads there are.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.shared.lock().threads
    }

    /// Some work waits for too long: begins one more thread for it, unless one is free.
    pub(crate) fn hurry(&self) {
        let mut state = self.shared.lock();
        if state.idle < state.waiting.len() {
            // Where the system gives none, it waits on.
            let _ = self.begin_one(&mut state);
        }
    }

    fn begin_one(&self, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name("worker".into()).spawn(move || shared.serve())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work_came.notify_all();
    }
}

impl fmt::Debug for WorkerThreads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WorkerThreads").finish_non_exhaustive()
    }
}

fn set_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // Only `ps` shows it.
        let _ = rustix::thread::set_name(&name);
    }
}
