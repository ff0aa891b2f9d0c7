//! How much of the disk the rows that wait may take.

use super::run_directory::Access;
use super::spool::Spool;
use super::store::Store;

/// A spool, and what all runs in it may take together.
pub(crate) struct SpoolLimit {
    pub(crate) spool: Spool,
    pub(crate) bytes: u64,
}

impl SpoolLimit {
    /// Gives up batches until what is left fits: the oldest of the oldest run first, those of `own` last.
    pub(crate) fn enforce(&self, own: &mut Store) {
        let Self { spool, bytes } = self;
        if spool.size() <= *bytes {
            return;
        }
        let mut given_up = 0;
        let mut give_up = |store: &mut Store| {
            while spool.size() > *bytes && store.state.next < store.closed {
                store.settle(false);
                given_up += 1;
            }
        };
        for directory in spool.left_behind(Access::Work).into_iter().flatten().flatten() {
            if let Ok(Some(mut store)) = Store::recover(directory) {
                give_up(&mut store);
            }
        }
        give_up(own);
        if given_up > 0 {
            log::warn!(
                "sentinel: the spool is full ({bytes} bytes): {given_up} of the oldest batches that wait were given up"
            );
        }
    }
}
