//! The lock by which trackers that share a file take turns.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long a write waits for the lock while the file does not change. A program that holds the lock for longer does
/// not mean to share.
const QUIET: Duration = Duration::from_secs(1);

/// How long a write waits while other trackers write: on a busy machine they can be first again and again.
pub(super) const LONGEST: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(1);

/// Whether no other tracker writes to the file meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is locked.
    Held,
    /// Another program holds the lock.
    Busy,
    /// There are no locks: a pipe, a device, a file system without them.
    Unlocked,
}

/// Waits for the lock of a file. After a wait in vain, it does not wait again until it has got the lock once.
pub(super) struct Lock {
    patience: Duration,
}

impl Lock {
    pub(super) fn new() -> Self {
        Self { patience: QUIET }
    }

    pub(super) fn take(&mut self, file: &File) -> Turn {
        let start = Instant::now();
        let mut last_change = start;
        let mut seen = state(file);
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.patience = QUIET;
                    return Turn::Held;
                }
                Err(Errno::INTR) => (),
                Err(Errno::WOULDBLOCK) if start.elapsed() < LONGEST && last_change.elapsed() < self.patience => {
                    thread::sleep(PAUSE);
                    let now = state(file);
                    if now != seen {
                        (seen, last_change) = (now, Instant::now());
                    }
                }
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
            // The lock ends at the latest when the file is closed.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// What changes when a program writes to the file, or renames it.
fn state(file: &File) -> Option<(u64, i64, i64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn one_that_is_held_for_ever_is_waited_for_once() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [holder, waiter] = [(); 2].map(|()| File::open(path.path()).unwrap());
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let mut lock = Lock::new();
        let start = Instant::now();
        assert_eq!(lock.take(&waiter), Turn::Busy);
        assert!(start.elapsed() >= QUIET);
        assert_eq!((lock.patience, lock.take(&waiter)), (Duration::ZERO, Turn::Busy));
        flock(&holder, FlockOperation::Unlock).unwrap();
        assert_eq!((lock.take(&waiter), lock.patience), (Turn::Held, QUIET));
    }

    #[test]
    fn one_is_waited_for_as_long_as_others_write() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [mut holder, waiter] = [(); 2].map(|()| File::options().append(true).open(path.path()).unwrap());
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let start = Instant::now();
        let writes = thread::spawn(move || {
            // Never as long as the patience without a write, also where this thread has to wait for a CPU.
            while start.elapsed() < QUIET * 2 {
                holder.write_all(b"x").unwrap();
                thread::sleep(PAUSE * 10);
            }
        });
        assert_eq!(Lock::new().take(&waiter), Turn::Held);
        assert!(start.elapsed() >= QUIET * 2);
        writes.join().unwrap();
    }
}
