//! The lock by which trackers that share a file take turns.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long one write waits for it. A program that holds it for longer does not mean to share.
const PATIENCE: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(1);

/// Whether nobody else writes to the file meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is locked.
    Held,
    /// Somebody else holds the lock.
    Busy,
    /// What is written to has no locks: a pipe, a device, a file system without them.
    Unlocked,
}

/// Waits for the lock of a file, but not for long, and not again for as long as one holds it who keeps it.
pub(super) struct Lock {
    patience: Duration,
}

impl Lock {
    pub(super) fn new() -> Self {
        Self { patience: PATIENCE }
    }

    pub(super) fn take(&mut self, file: &File) -> Turn {
        let deadline = Instant::now() + self.patience;
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.patience = PATIENCE;
                    return Turn::Held;
                }
                Err(Errno::INTR) => (),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    self.patience = Duration::ZERO;
                    return Turn::Busy;
                }
                Err(_) => return Turn::Unlocked,
            }
        }
    }

    pub(super) fn give_back(file: &File, turn: Turn) {
        if turn == Turn::Held {
            // It ends with the file at the latest.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_held_for_ever_is_waited_for_once() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [holder, waiter] = [(); 2].map(|()| File::open(path.path()).unwrap());
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let mut lock = Lock::new();
        let start = Instant::now();
        assert_eq!(lock.take(&waiter), Turn::Busy);
        assert!(start.elapsed() >= PATIENCE);
        assert_eq!((lock.patience, lock.take(&waiter)), (Duration::ZERO, Turn::Busy));
        flock(&holder, FlockOperation::Unlock).unwrap();
        assert_eq!((lock.take(&waiter), lock.patience), (Turn::Held, PATIENCE));
    }
}
