//! Where rows wait on the disk until their destination has them, whatever sink they are of.

mod batch;
mod folder;
mod limit;
mod recorder;
mod remains;
mod run_directory;
mod run_files;
mod state;
mod store;
mod upload;
mod worker;

pub(crate) use folder::{Spool, default_directory};
pub(crate) use recorder::{Recorder, Rules, UNUSABLE};
pub(crate) use run_directory::RunDirectory;
pub(crate) use run_files::{Access, LAST_OF_SIX, REQUEST, closed};
pub(crate) use state::{Batches, RowsState, State, place, sink_of};
pub(crate) use store::{Store, not_a_state, unreadable};
pub(crate) use upload::{Destination, Upload, send_rest};
