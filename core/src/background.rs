//! Work that may block, on other threads than the one that asks for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::worker_threads::{Work, WorkerThreads};

/// How long a question waits for a shared thread: to wait costs less than one more thread.
const TURN: Duration = Duration::from_millis(1);

/// A thread that answers questions one at a time. Asking does not block: the caller gets the newest answer there is.
///
/// The work ends when the value is dropped, or when it comes back from what it hangs in.
pub struct Background<Q, A> {
    shared: Arc<Shared<Q, A>>,
    /// Where it works, and as what they know it. `None`: it has a thread of its own.
    workers: Option<(Arc<WorkerThreads>, Arc<dyn Work>)>,
}

type AnswerFn<Q, A> = Box<dyn FnMut(Q) -> A + Send>;

struct Shared<Q, A> {
    name: String,
    answer: Mutex<Option<AnswerFn<Q, A>>>,
    state: Mutex<State<Q, A>>,
    asked: Condvar,
    answered: Condvar,
}

struct State<Q, A> {
    question: Option<Q>,
    asked: Instant,
    answer: Option<(A, Instant)>,
    works: bool,
    closed: bool,
}

impl<Q, A> State<Q, A> {
    fn is_busy(&self) -> bool {
        self.works || self.question.is_some()
    }

    /// Whether a question waits that no thread works on.
    fn waits(&self) -> bool {
        !self.works && self.question.is_some()
    }
}

impl<Q, A> Shared<Q, A> {
    fn lock(&self) -> MutexGuard<'_, State<Q, A>> {
        // The state is only ever replaced whole, so a panic elsewhere leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers until there is no question. After a panic, `answer` is never called again: it counts as busy.
    fn answer_all<'a>(&'a self, mut state: MutexGuard<'a, State<Q, A>>) -> MutexGuard<'a, State<Q, A>> {
        while !state.closed
            && let Some(question) = state.question.take()
        {
            state.works = true;
            drop(state);
            let answer =
                self.answer.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(|answer| answer(question));
            state = self.lock();
            state.answer = answer.map(|answer| (answer, Instant::now()));
            state.works = false;
            self.answered.notify_all();
        }
        state
    }

    /// Drops what answers, on this thread: that can hang just as answers can. A thread that is about to answer does so itself.
    fn end(&self) {
        let answer = match self.answer.try_lock() {
            Ok(mut answer) => answer.take(),
            Err(TryLockError::Poisoned(answer)) => answer.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(answer)));
    }
}

impl<Q: Send, A: Send> Work for Shared<Q, A> {
    fn work(&self, waits: bool) {
        // What panics has no answer.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.answer_all(self.lock());
            while waits && !state.closed {
                state = self.answer_all(self.asked.wait(state).unwrap_or_else(PoisonError::into_inner));
            }
        }));
        if waits || self.lock().closed {
            self.end();
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl<Q: Send + 'static, A: Clone + Send + 'static> Background<Q, A> {
    fn new(name: &str, answer: impl FnMut(Q) -> A + Send + 'static, workers: Option<&Arc<WorkerThreads>>) -> Self {
        let state = State { question: None, asked: Instant::now(), answer: None, works: false, closed: false };
        let shared = Shared {
            name: name.replace('\0', "?"),
            answer: Mutex::new(Some(Box::new(answer))),
            state: Mutex::new(state),
            asked: Condvar::new(),
            answered: Condvar::new(),
        };
        let shared = Arc::new(shared);
        let workers = workers.map(|workers| (Arc::clone(workers), Arc::clone(&shared) as Arc<dyn Work>));
        Self { shared, workers }
    }

    /// Starts a thread of its own, on which all questions are answered. `name` is what `ps -T` shows (15 bytes of it).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(name: &str, answer: impl FnMut(Q) -> A + Send + 'static) -> io::Result<Self> {
        let background = Self::new(name, answer, None);
        begin_thread(Arc::clone(&background.shared) as Arc<dyn Work>)?;
        Ok(background)
    }

    /// Answers on threads that others use as well.
    ///
    /// # Errors
    /// When the system gives not even one.
    pub(crate) fn shared(
        name: &str,
        answer: impl FnMut(Q) -> A + Send + 'static,
        workers: &Arc<WorkerThreads>,
    ) -> io::Result<Self> {
        workers.begin()?;
        Ok(Self::new(name, answer, Some(workers)))
    }

    /// Asks. A question that was not taken up yet is replaced.
    pub fn ask(&self, question: Q) {
        let mut state = self.shared.lock();
        let was_busy = state.is_busy();
        if !state.waits() {
            state.asked = Instant::now();
        }
        state.question = Some(question);
        drop(state);
        match &self.workers {
            None => self.shared.asked.notify_one(),
            Some((workers, work)) if !was_busy => workers.submit(Arc::clone(work)),
            Some(_) => (),
        }
    }

    /// The newest answer, and when it came.
    pub fn answer(&self) -> Option<(A, Instant)> {
        self.look().answer.clone()
    }

    /// Takes the newest answer away. While there is none and one is worked on, waits for it until `deadline`.
    pub fn take_answer(&self, deadline: Instant) -> Option<(A, Instant)> {
        let limit = deadline.saturating_duration_since(Instant::now());
        self.wait(limit, |state| state.answer.is_none() && state.is_busy()).answer.take()
    }

    /// The newest answer. While there is none at all, waits for the first one, but not longer than `limit`.
    pub fn first_answer(&self, limit: Duration) -> Option<A> {
        let state = self.wait(limit, |state| state.answer.is_none());
        state.answer.as_ref().map(|(answer, _)| answer.clone())
    }

    /// Whether it has a question that is not answered yet.
    pub fn is_busy(&self) -> bool {
        self.look().is_busy()
    }

    /// Waits while that `is_open`, but not longer than `limit`.
    fn wait(&self, limit: Duration, is_open: impl Fn(&State<Q, A>) -> bool) -> MutexGuard<'_, State<Q, A>> {
        let wait = |state, limit| {
            let waited = self.shared.answered.wait_timeout_while(state, limit, |state| is_open(state));
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let turn = limit.min(TURN);
        let state = wait(self.look(), turn);
        match is_open(&state) && limit > turn {
            true => wait(self.hurry(state), limit - turn),
            false => state,
        }
    }

    /// The state. A look at a question that waits for long gets it one more thread.
    fn look(&self) -> MutexGuard<'_, State<Q, A>> {
        let state = self.shared.lock();
        if state.waits() && state.asked.elapsed() > TURN { self.hurry(state) } else { state }
    }

    fn hurry<'a>(&'a self, state: MutexGuard<'a, State<Q, A>>) -> MutexGuard<'a, State<Q, A>> {
        let Some((workers, _)) = self.workers.as_ref().filter(|_| state.waits()) else { return state };
        drop(state);
        workers.hurry();
        self.shared.lock()
    }
}

fn begin_thread(work: Arc<dyn Work>) -> io::Result<()> {
    thread::Builder::new().name(work.name().to_owned()).spawn(move || work.work(true))?;
    Ok(())
}

impl<Q, A> Drop for Background<Q, A> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.asked.notify_one();
        if let Some((workers, work)) = &self.workers {
            workers.submit(Arc::clone(work));
        }
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

    #[test]
    fn one_thread_answers_for_several_until_one_of_them_hangs() -> anyhow::Result<()> {
        let workers = Arc::default();
        let (release, gate) = mpsc::channel::<()>();
        let who = |()| thread::current().id();
        let (one, other) = (Background::shared("one", who, &workers)?, Background::shared("other", who, &workers)?);
        let hangs = Background::shared("hangs", move |()| _ = gate.recv(), &workers)?;
        let answer = |background: &Background<(), thread::ThreadId>| {
            background.ask(());
            background.take_answer(Instant::now() + Duration::from_secs(60)).unwrap().0
        };
        let first = answer(&one);
        hangs.ask(());
        while !hangs.shared.lock().works {
            thread::yield_now();
        }
        let second = answer(&other);
        assert_ne!(first, second, "who waits for an answer gets one");
        other.ask(());
        while other.is_busy() {
            thread::yield_now();
        }
        assert!(hangs.is_busy() && hangs.answer().is_none());
        release.send(())?;
        assert!(hangs.take_answer(Instant::now() + Duration::from_secs(60)).is_some());
        // One after the other.
        let (first, second) = (answer(&one), answer(&other));
        assert!(workers.threads() <= 2, "{first:?} {second:?}");
        Ok(())
    }

    #[test]
    fn a_panic_takes_no_thread_away() -> anyhow::Result<()> {
        let workers = Arc::default();
        let panics = Background::shared("panics", |()| std::panic::panic_any("no answer"), &workers)?;
        let other = Background::shared("other", |()| thread::current().id(), &workers)?;
        let answer = || {
            let before = Instant::now();
            other.ask(());
            // Nobody is asked to hurry, so that no other thread begins.
            loop {
                if let Some((id, _)) = other.shared.lock().answer.take() {
                    return id;
                }
                assert!(before.elapsed() < Duration::from_secs(60), "the thread is gone");
                thread::yield_now();
            }
        };
        let thread = answer();
        panics.ask(());
        assert_eq!(answer(), thread);
        let answer: Option<((), Instant)> = panics.answer();
        assert!(answer.is_none() && panics.is_busy());
        Ok(())
    }

    /// What answers may hang when it is dropped, as a plugin does in its `close`.
    #[test]
    fn what_answers_is_dropped_where_it_answered() -> anyhow::Result<()> {
        struct TellsThread(mpsc::Sender<thread::ThreadId>);
        impl Drop for TellsThread {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let workers = Arc::default();
        let (tell, told) = mpsc::channel();
        let answer = || {
            let value = TellsThread(tell.clone());
            move |panics: bool| {
                if panics {
                    std::panic::panic_any("no answer");
                }
                let _ = &value;
                thread::current().id()
            }
        };
        let patience = Duration::from_secs(60);
        for background in [Background::spawn("own", answer())?, Background::shared("shared", answer(), &workers)?] {
            background.ask(false);
            let thread = background.first_answer(patience).unwrap();
            drop(background);
            assert_eq!(told.recv_timeout(patience)?, thread);
        }
        for background in [Background::spawn("own", answer())?, Background::shared("shared", answer(), &workers)?] {
            background.ask(true);
            drop(background);
            assert_ne!(told.recv_timeout(patience)?, thread::current().id());
        }
        // The threads end with it.
        let background = Background::shared("shared", answer(), &workers)?;
        drop((background, workers));
        assert_ne!(told.recv_timeout(patience)?, thread::current().id());
        Ok(())
    }
}
