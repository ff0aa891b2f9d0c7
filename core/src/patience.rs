//! How long to wait for a component that does not answer. Time in which this process was stopped does not count.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long a component may take to answer. Then a source or a derivation is left out until it answers; at the end, the
/// run stops waiting for its last sample, and for a sink that makes no progress, unless the configuration of the sink
/// allows it more.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Into how many parts a limit is cut.
const PARTS: u32 = 20;

/// Calls `wait` with a part of the limit, again and again, until it has something or the limit is over.
///
/// Only time in which this process runs counts. After it was stopped, or frozen with its container, it must not take
/// others for stuck. Such a pause costs at most one part of the limit.
pub(crate) fn within<T>(limit: Duration, mut wait: impl FnMut(Duration) -> Option<T>) -> Option<T> {
    (0..PARTS).find_map(|_| wait(limit / PARTS))
}

/// Waits for a message for as long as `limit`, as [`within`] does.
///
/// # Errors
/// When the limit is over, or when all senders are gone.
pub(crate) fn receive<T>(inbox: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
    let received = within(limit, |part| match inbox.recv_timeout(part) {
        Err(RecvTimeoutError::Timeout) => None,
        received => Some(received),
    });
    received.unwrap_or(Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_ends_with_the_message_the_sender_or_the_limit() -> anyhow::Result<()> {
        let limit = Duration::from_millis(100);
        let (sender, inbox) = mpsc::channel();
        let start = Instant::now();
        assert_eq!(receive::<u8>(&inbox, limit), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= limit);
        sender.send(7)?;
        assert_eq!(receive(&inbox, limit), Ok(7));
        drop(sender);
        assert_eq!(receive(&inbox, limit), Err(RecvTimeoutError::Disconnected));
        Ok(())
    }
}
