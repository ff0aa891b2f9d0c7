//! What brings runs to where their rows go.

use std::time::{Duration, Instant};

use super::folder::Spool;
use super::run_files::Access;
use super::state::{RowsState, State};
use super::store::Store;
use crate::http::Failure;
use crate::http::backoff::Backoff;

/// How often the rest of an earlier run is tried.
const ATTEMPTS: u32 = 4;
/// The longest pause, because a user may be waiting for the upload. A server that asks for longer gets it from a later
/// attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where rows of a sink go.
pub(crate) trait Destination: Clone + Send + 'static {
    type Upload: Upload;

    /// What brings a run there.
    ///
    /// # Errors
    /// When the run belongs to another one.
    fn upload(&self, store: StoreOf<Self>) -> Result<Self::Upload, Failure>;
}

/// The store of a run that goes there.
pub(crate) type StoreOf<D> = Store<<<D as Destination>::Upload as Upload>::State>;

/// Brings one run to its destination. Every step can be repeated.
pub(crate) trait Upload: Send + 'static {
    type State: RowsState;

    /// Whether a run stays as long as files of it could not be looked at: they can be sent once that is mended.
    const KEEPS_LEFT_OUT: bool = true;

    fn store(&self) -> &Store<Self::State>;

    fn store_mut(&mut self) -> &mut Store<Self::State>;

    /// Whether the destination knows of the run.
    fn is_begun(&self) -> bool {
        true
    }

    /// Tells the destination of the run, once.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Sends the next closed batch. Says whether there was one.
    fn send_batch(&mut self) -> Result<bool, Failure>;

    /// Sends all batches that are left, and removes the run unless some were passed over.
    fn finish(&mut self) -> Result<(), Failure> {
        while self.send_batch()? {}
        self.remove_sent();
        Ok(())
    }

    /// Removes the run, unless something of it stays for a later attempt.
    fn remove_sent(&self) {
        let store = self.store();
        let stays = store.passed() > 0 || (Self::KEEPS_LEFT_OUT && store.left_out() > 0);
        if !stays && let Err(error) = store.remove() {
            log::warn!("{}: everything has arrived, but the spool cannot be cleared: {error}", store.state.sink());
        }
    }
}

/// Sends what is left of a run that has ended. It calls `waits` before each pause, with its reason and its length.
pub(crate) fn send_rest(upload: &mut impl Upload, mut waits: impl FnMut(&str, Duration)) -> Result<(), Failure> {
    let mut backoff = Backoff::new(Duration::from_millis(500));
    loop {
        let failure = match upload.begin().and_then(|()| upload.finish()) {
            Err(failure) if failure.can_pass() => failure,
            result => return result,
        };
        let now = Instant::now();
        backoff.failed(&failure, now, u32::MAX);
        let pause = backoff.pause(now).unwrap_or_default();
        if pause > LONGEST_PAUSE {
            let problem = format!(
                "{}, and the service asks to be left alone for {} minutes: run `resource-tracker upload` again after that",
                failure.problem(),
                pause.as_secs().div_ceil(60)
            );
            return Err(Failure::Unavailable(problem, Some(pause)));
        }
        if backoff.failures() >= ATTEMPTS {
            return Err(failure);
        }
        waits(failure.problem(), pause);
        std::thread::sleep(pause);
    }
}

/// Sends what earlier runs of this user left behind for the same destination, beside the run that goes on.
pub(super) fn send_in_background<D: Destination>(spool: Spool, destination: D) {
    let work = move || {
        for directory in spool.left_behind(Access::Work).into_iter().flatten().flatten() {
            let Ok(Some(store)) = StoreOf::<D>::recover(directory) else { continue };
            let sent = destination.upload(store).and_then(|mut upload| send_rest(&mut upload, |_, _| ()));
            match sent {
                // `resource-tracker upload` says why it is not taken.
                Ok(()) | Err(Failure::Permanent(_) | Failure::Temporary(..)) => (),
                // The current run reports that.
                Err(Failure::Refused(_) | Failure::Unavailable(..)) => return,
            }
        }
    };
    // Without a thread they wait for another run.
    let _ = std::thread::Builder::new().name("left-behind".into()).spawn(work);
}
