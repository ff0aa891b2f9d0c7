//! Work that may block, on a thread of its own.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A thread that answers questions one at a time. Asking does not block: the caller gets the newest answer there is.
///
/// The thread ends when the value is dropped, or when it comes back from what it hangs in.
pub struct Background<Q, A> {
    shared: Arc<Shared<Q, A>>,
}

struct Shared<Q, A> {
    state: Mutex<State<Q, A>>,
    asked: Condvar,
    answered: Condvar,
}

struct State<Q, A> {
    question: Option<Q>,
    answer: Option<(A, Instant)>,
    works: bool,
    closed: bool,
}

impl<Q, A> State<Q, A> {
    fn is_busy(&self) -> bool {
        self.works || self.question.is_some()
    }
}

impl<Q, A> Shared<Q, A> {
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        // The state is only ever replaced whole, so a panic elsewhere leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Send + 'static, A: Clone + Send + 'static> Background<Q, A> {
    /// Starts the thread. `name` is what `ps -T` shows (15 bytes of it).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(name: &str, mut answer: impl FnMut(Q) -> A + Send + 'static) -> io::Result<Self> {
        let state = State { question: None, answer: None, works: false, closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), asked: Condvar::new(), answered: Condvar::new() });
        let worker = Arc::clone(&shared);
        thread::Builder::new().name(name.replace('\0', "?")).spawn(move || {
            let mut state = worker.lock();
            while !state.closed {
                let Some(question) = state.question.take() else {
                    state = worker.asked.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                state.works = true;
                drop(state);
                let answer = answer(question);
                state = worker.lock();
                state.answer = Some((answer, Instant::now()));
                state.works = false;
                worker.answered.notify_all();
            }
        })?;
        Ok(Self { shared })
    }

    /// Asks. A question that was not taken up yet is replaced.
    pub fn ask(&self, question: Q) {
        self.shared.lock().question = Some(question);
        self.shared.asked.notify_one();
    }

    /// The newest answer, and when it came.
    pub fn answer(&self) -> Option<(A, Instant)> {
        self.shared.lock().answer.clone()
    }

    /// Takes the newest answer away. While there is none and one is worked on, waits for it until `deadline`.
    pub fn take_answer(&self, deadline: Instant) -> Option<(A, Instant)> {
        let state = self.shared.lock();
        let limit = deadline.saturating_duration_since(Instant::now());
        let comes = |state: &mut State<Q, A>| state.answer.is_none() && state.is_busy();
        let waited = self.shared.answered.wait_timeout_while(state, limit, comes);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.answer.take()
    }

    /// The newest answer. While there is none at all, waits for the first one, but not longer than `limit`.
    pub fn first_answer(&self, limit: Duration) -> Option<A> {
        let state = self.shared.lock();
        let waited = self.shared.answered.wait_timeout_while(state, limit, |state| state.answer.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.answer.as_ref().map(|(answer, _)| answer.clone())
    }

    /// Whether it has a question that is not answered yet.
    pub fn is_busy(&self) -> bool {
        self.shared.lock().is_busy()
    }
}

impl<Q, A> Drop for Background<Q, A> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.asked.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn asking_does_not_block_and_the_newest_question_is_answered() -> anyhow::Result<()> {
        let ((release, gate), (begin, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let background = Background::spawn("test", move |question: u32| {
            let _ = begin.send(());
            let _ = gate.recv();
            question * 2
        })?;
        assert!(!background.is_busy());
        background.ask(1);
        assert!(background.is_busy() && background.answer().is_none());
        begun.recv()?;
        background.ask(2);
        background.ask(3);
        release.send(())?;
        release.send(())?;
        while background.answer().is_none_or(|(answer, _)| answer != 6) {
            thread::yield_now();
        }
        Ok(())
    }
}
