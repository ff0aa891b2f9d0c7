//! The job that is tracked: its members, and what is read of each process. [`JobObserver`] owns all that; sources see
//! what it found.

mod clock;
mod cpu_stat;
mod descendants;
mod files;
mod group;
mod ledger;
mod member;
mod memory_stat;
mod newcomers;
mod observer;
mod pid_allocations;
mod pids;
mod stat;
mod status;
mod tracked;
mod tree;

pub use ledger::{Ledger, Reaped, Usage};
pub use observer::JobObserver;
pub use stat::{Io, Stat};
pub use status::Switches;
pub use tracked::{JobCgroup, JobOrigin, TrackedJob};

pub(crate) use clock::cpu_time;
pub(crate) use cpu_stat::{CpuStat, Throttling};
pub(crate) use group::{Group, GroupReading};
pub(crate) use member::{Identity, Member, is_of_a_process_that_is_gone};
#[cfg(test)]
pub(crate) use memory_stat::MemoryStat;
pub(crate) use observer::JobDetails;
pub(crate) use pids::Pids;
pub(crate) use stat::{Image, folder_of_process};
pub(crate) use status::Memory;
pub(crate) use tree::{FormerMember, Heir};
