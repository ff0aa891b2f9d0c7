//! The most memory that the tree needed at one time. Page cache is none of it: that is there because nobody else needed the
//! room.

use std::time::Instant;

use resource_tracker_metrics::PeakSource;

use super::counted_once::DeduplicatedMemory;
use super::memory::TreeMemory;
use crate::job::GroupReading;

#[derive(Default)]
pub(super) struct Peak {
    group: GroupPeak,
    /// The most by the cgroup, at the ticks, and in one process. In bytes.
    grouped: u64,
    sampled: u64,
    /// The most anonymous memory and the most pages of files that one process was seen with.
    anon: u64,
    file: u64,
}

impl Peak {
    /// Takes in a reading: `counted` is what the tree has, and `max_rss` the most that one ended process had resident.
    pub(super) fn look(&mut self, tree: &TreeMemory, counted: &DeduplicatedMemory, max_rss: u64, group: &GroupReading) {
        self.anon = self.anon.max(tree.largest.anon.unwrap_or(0));
        self.file = self.file.max(tree.largest.file.unwrap_or(0));
        let ended = max_rss.saturating_sub(self.file);
        self.sampled = self.sampled.max(counted.needed).max(tree.largest_need).max(ended);
        match self.group.take(group, counted.not_charged) {
            Some(most) => self.grouped = self.grouped.max(most),
            None => self.group = GroupPeak::default(),
        }
    }

    /// In bytes, and how it was found.
    pub(super) fn so_far(&self) -> (u64, PeakSource) {
        // One process alone has more only when the job has left the cgroup. (The kernel's figures of a process lag a little.)
        match self.group.peak > 0 && self.group.peak >= self.anon - self.anon / 8 {
            true => (self.grouped, PeakSource::Cgroup),
            false => (self.sampled.max(self.grouped), PeakSource::Sampled),
        }
    }
}

/// The most that was charged to the job's cgroup, page cache included, and what is in it.
#[derive(Default)]
struct GroupPeak {
    peak: u64,
    cache: u64,
    read_at: Option<Instant>,
    most: u64,
}

impl GroupPeak {
    /// The most that was needed so far; `not_charged` is needed as well now. `None` where it is not told.
    fn take(&mut self, group: &GroupReading, not_charged: u64) -> Option<u64> {
        let (peak, stat) = (group.memory_peak?, group.memory_stat?);
        if self.read_at != group.memory_stat_at {
            self.read_at = group.memory_stat_at;
            let cache = std::mem::replace(&mut self.cache, stat.cache()).max(self.cache);
            if std::mem::replace(&mut self.peak, peak) < peak {
                self.most = self.most.max(peak.saturating_sub(cache));
            }
            self.most = self.most.max(stat.anon.saturating_add(stat.shmem).saturating_add(not_charged));
        }
        Some(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Memory, MemoryStat};

    fn tree(anon: u64, file: u64) -> TreeMemory {
        let memory = Memory { anon: Some(anon), file: Some(file), ..Memory::default() };
        TreeMemory { sum: memory, largest: memory, ..TreeMemory::default() }
    }

    /// What is read anew of a cgroup.
    fn group(peak: u64, anon: u64, file: u64) -> GroupReading {
        let stat = MemoryStat { anon, file, ..MemoryStat::default() };
        let (memory_peak, memory_stat, memory_stat_at) = (Some(peak), Some(stat), Some(Instant::now()));
        GroupReading { memory_peak, memory_stat, memory_stat_at, cpu: None }
    }

    fn look(peak: &mut Peak, group: &GroupReading, tree: &TreeMemory) -> (u64, PeakSource) {
        let not_charged = tree.sum.swap.unwrap_or(0) + tree.sum.hugetlb.unwrap_or(0);
        let needed = tree.sum.anon.unwrap_or(0) + not_charged;
        peak.look(tree, &DeduplicatedMemory { needed, not_charged, ..DeduplicatedMemory::default() }, 0, group);
        peak.so_far()
    }

    #[test]
    fn a_peak_between_two_ticks_without_page_cache() {
        let mut peak = Peak::default();
        let mut most = |group: GroupReading| look(&mut peak, &group, &tree(10, 0));
        assert_eq!(most(group(900, 10, 50)), (850, PeakSource::Cgroup));
        // A file is read, and deleted.
        assert_eq!(most(group(2000, 10, 1990)).0, 850);
        assert_eq!(most(group(2100, 10, 50)).0, 850);
        // Page cache makes room.
        assert_eq!(most(group(2100, 1500, 600)).0, 1500);
    }

    #[test]
    fn what_no_memory_controller_counts_comes_on_top() {
        let (mut peak, mut tree) = (Peak::default(), tree(10, 0));
        (tree.sum.swap, tree.sum.hugetlb) = (Some(100), Some(1000));
        assert_eq!(look(&mut peak, &group(20, 10, 0), &tree), (1110, PeakSource::Cgroup));
    }

    #[test]
    fn a_peak_counts_when_it_is_known_what_is_in_it() {
        let (mut peak, tree) = (Peak::default(), tree(10, 0));
        let before = group(20, 10, 0);
        assert_eq!(look(&mut peak, &before, &tree).0, 20);
        let risen = GroupReading { memory_peak: Some(5000), ..before };
        assert_eq!(look(&mut peak, &risen, &tree).0, 20, "it can be page cache");
        assert_eq!(look(&mut peak, &group(5000, 4000, 100), &tree).0, 4900);
    }

    #[test]
    fn a_job_that_is_not_in_its_cgroup_is_sampled() {
        let mut peak = Peak::default();
        assert_eq!(look(&mut peak, &group(0, 0, 0), &tree(10, 0)), (10, PeakSource::Sampled), "nobody entered");
        assert_eq!(look(&mut peak, &group(800, 700, 0), &tree(700, 0)), (800, PeakSource::Cgroup));
        assert_eq!(look(&mut peak, &group(800, 700, 0), &tree(1000, 0)), (1000, PeakSource::Sampled), "it left");
        let mut peak = Peak::default();
        assert_eq!(look(&mut peak, &group(800, 700, 0), &tree(600, 0)), (800, PeakSource::Cgroup));
        assert_eq!(look(&mut peak, &GroupReading::default(), &tree(600, 0)), (800, PeakSource::Sampled), "it is gone");
    }

    #[test]
    fn pages_of_files_are_not_needed() {
        let (mut peak, nowhere) = (Peak::default(), GroupReading::default());
        assert_eq!(look(&mut peak, &nowhere, &tree(30, 600)), (30, PeakSource::Sampled));
        peak.look(&TreeMemory::default(), &DeduplicatedMemory::default(), 640, &nowhere);
        assert_eq!(peak.so_far().0, 40, "of one that has ended");
    }
}
