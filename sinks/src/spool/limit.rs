//! How much of the disk waiting rows may take.

use std::sync::atomic::{AtomicBool, Ordering};

use super::folder::Spool;
use super::run_files::Access;
use super::state::{AnyState, State};
use super::store::Store;

/// A spool, and what all runs in it may take together.
pub(crate) struct SpoolLimit {
    pub(crate) spool: Spool,
    pub(crate) bytes: u64,
    /// Whether it was said that batches were given up.
    pub(crate) is_said: AtomicBool,
}

impl SpoolLimit {
    /// Gives up batches until what is left fits: the oldest of the oldest run first, those of `own` last.
    pub(crate) fn enforce<S: State>(&self, own: &mut Store<S>) {
        let Self { spool, bytes, is_said } = self;
        // With thousands of files, the size is asked for once.
        let mut excess = spool.size().saturating_sub(*bytes);
        if excess == 0 {
            return;
        }
        let mut given_up = 0;
        for directory in spool.left_behind(Access::Work).into_iter().flatten().flatten() {
            if let Ok(Some(mut store)) = Store::<AnyState>::recover(directory) {
                given_up += give_up(&mut store, &mut excess);
            }
            if excess == 0 {
                break;
            }
        }
        given_up += give_up(own, &mut excess);
        if given_up > 0 && !is_said.swap(true, Ordering::Relaxed) {
            let sink = own.state.sink();
            log::warn!(
                "{sink}: the spool is full ({bytes} bytes): {given_up} of the oldest batches that wait were given up, and more may follow"
            );
        }
    }
}

/// Gives up the oldest batches of a run, as long as there are bytes too many. Returns how many batches.
fn give_up<S: State>(store: &mut Store<S>, excess: &mut u64) -> u32 {
    let mut given_up = 0;
    while *excess > 0 && store.next() < store.closed {
        *excess = excess.saturating_sub(store.settle(false));
        given_up += 1;
    }
    given_up
}
