//! How much of the disk rows that wait may take.

use super::run_directory::Access;
use super::spool::Spool;
use super::store::Store;

/// The directory of a user and what all runs in it may take, in bytes.
pub(crate) struct Room {
    pub(crate) spool: Spool,
    pub(crate) limit: u64,
}

impl Room {
    /// Gives up batches until what is left fits: the oldest of the oldest run first, those of `own` last.
    pub(crate) fn keep_within(&self, own: &mut Store) {
        let Self { spool, limit } = self;
        if spool.size() <= *limit {
            return;
        }
        let mut given_up = 0;
        let mut give_up = |store: &mut Store| {
            while spool.size() > *limit && store.state.next < store.closed {
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
                "sentinel: the spool is full ({limit} bytes): {given_up} of the oldest batches that wait were given up"
            );
        }
    }
}
