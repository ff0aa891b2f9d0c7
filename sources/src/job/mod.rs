//! The job that is tracked: who belongs to it, and what is read of each of its processes. [`JobObserver`] is the one owner of
//! all that; sources see what it found.

mod clock;
mod descendants;
mod files;
mod issued;
mod ledger;
mod member;
mod newcomers;
mod observer;
mod pids;
mod stat;
mod status;
mod tracked;
mod tree;

pub use ledger::{Ledger, Reaped, Usage};
pub use observer::JobObserver;
pub use stat::Stat;
pub use tracked::{JobCgroup, Origin, TrackedJob};

pub(crate) use member::Member;
pub(crate) use observer::JobDetails;
pub(crate) use pids::Pids;
pub(crate) use stat::Io;
pub(crate) use status::{Memory, Switches};
pub(crate) use tree::{Found, Gone, Heir};
