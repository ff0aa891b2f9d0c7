//! Memory of the tree by kind: resident memory as of now, and the rest as of the last `status` of each member.

use std::time::Duration;

use crate::job::{JobDetails, Memory};

/// What the living have together, and the most that one of them has. In bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TreeMemory {
    pub(super) rss: u64,
    pub(super) sum: Memory,
    /// For how long one of them has run since it was asked.
    pub(super) age: Duration,
    pub(super) largest: Memory,
    /// The most that one of them ever had resident beside pages of files.
    pub(super) largest_need: u64,
}

impl TreeMemory {
    pub(super) fn of(job: &JobDetails) -> Self {
        let page = rustix::param::page_size() as u64;
        job.alive().fold(Self::default(), |tree, member| {
            let status = member.status.unwrap_or_default();
            let rss = member.stat.rss.saturating_mul(page);
            Self {
                rss: tree.rss.saturating_add(rss),
                sum: tree.sum.each(status.memory, u64::saturating_add),
                age: tree.age.max(member.status_age(job.observed_at())),
                largest: tree.largest.each(status.memory, u64::max),
                largest_need: tree.largest_need.max(status.peak_rss.saturating_sub(member.most_file)),
            }
        })
    }
}
