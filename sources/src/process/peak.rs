//! The most memory that the tree needed at one time. Page cache is none of it: that is there because nobody else needed the
//! room.

use std::path::Path;
use std::time::{Duration, Instant};

use resource_tracker_metrics::PeakSource;

use super::memory::TreeMemory;
use crate::cgroup::MemoryStat;
use crate::job::JobCgroup;
use crate::procfile::{FASTEST, ProcFile};
use crate::scan::{number, words};

/// What is in a cgroup shifts while its peak stays: page cache makes room for the job.
const STAT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Peak {
    group: Option<GroupPeak>,
    /// The most by the cgroup, at the ticks, and in one process. In bytes.
    grouped: u64,
    sampled: u64,
    /// The most anonymous memory and the most pages of files that one process was seen with.
    anon: u64,
    file: u64,
}

impl Peak {
    pub(super) fn new(cgroup: &JobCgroup) -> Self {
        Self { group: GroupPeak::open(cgroup), grouped: 0, sampled: 0, anon: 0, file: 0 }
    }

    /// Looks again. `max_rss` is the most that one of those had resident who have ended.
    pub(super) fn look(&mut self, tree: &TreeMemory, max_rss: u64, now: Instant, last: bool) {
        self.anon = self.anon.max(tree.largest.anon.unwrap_or(0));
        self.file = self.file.max(tree.largest.file.unwrap_or(0));
        let ended = max_rss.saturating_sub(self.file);
        self.sampled = self.sampled.max(tree.need).max(tree.largest_need).max(ended);
        if let Some(group) = &mut self.group {
            // One process alone can outgrow what was read last.
            match group.read(tree.not_charged(), now, last || self.anon > group.peak) {
                Some(most) => self.grouped = self.grouped.max(most),
                None => self.group = None,
            }
        }
    }

    /// In bytes, and how it was found.
    pub(super) fn so_far(&self) -> (u64, PeakSource) {
        // One process alone has more only when the job has left the cgroup. (The kernel's figures of a process lag a little.)
        let counts = |group: &&GroupPeak| group.peak > 0 && group.peak >= self.anon - self.anon / 8;
        match self.group.as_ref().filter(counts) {
            Some(_) => (self.grouped, PeakSource::Cgroup),
            None => (self.sampled.max(self.grouped), PeakSource::Sampled),
        }
    }
}

/// What the kernel keeps of the most that was charged to a cgroup, page cache included.
struct GroupPeak {
    peak_file: ProcFile,
    stat_file: ProcFile,
    parse: fn(&[u8]) -> Option<MemoryStat>,
    peak: u64,
    cache: u64,
    /// Beside what is charged.
    not_charged: u64,
    read_at: Option<Instant>,
    stat_at: Option<Instant>,
    most: u64,
}

impl GroupPeak {
    fn open(cgroup: &JobCgroup) -> Option<Self> {
        let open = |directory: &Path, name: &str, parse| {
            Some(Self {
                peak_file: ProcFile::open_if_present(directory.join(name))?,
                stat_file: ProcFile::open_if_present(directory.join("memory.stat"))?,
                parse,
                peak: 0,
                cache: 0,
                not_charged: 0,
                read_at: None,
                stat_at: None,
                most: 0,
            })
        };
        // What v1 has mounted, v2 does not have.
        match (&cgroup.memory, &cgroup.unified) {
            (Some(v1), _) => open(v1, "memory.max_usage_in_bytes", MemoryStat::parse_v1),
            (None, Some(v2)) => open(v2, "memory.peak", MemoryStat::parse_v2),
            (None, None) => None,
        }
    }

    /// The most that was needed so far; `not_charged` is needed as well now. Reads rarely, unless it `must`. `None` when it
    /// is gone.
    fn read(&mut self, not_charged: u64, now: Instant, must: bool) -> Option<u64> {
        let is_due =
            |at: Option<Instant>, every| must || at.is_none_or(|at| now.saturating_duration_since(at) >= every);
        if !is_due(self.read_at, FASTEST) {
            return Some(self.most);
        }
        self.read_at = Some(now);
        let peak = number(words(self.peak_file.read().ok()?).next()?)?;
        let has_risen = peak > self.peak;
        self.peak = peak;
        let is_more = std::mem::replace(&mut self.not_charged, not_charged) < not_charged;
        if has_risen || is_more || is_due(self.stat_at, STAT_EVERY) {
            self.stat_at = Some(now);
            // After the peak, so that no page cache which came meanwhile counts.
            let stat = (self.parse)(self.stat_file.read().ok()?)?;
            let cache = std::mem::replace(&mut self.cache, stat.cache()).max(self.cache);
            if has_risen {
                self.most = self.most.max(peak.saturating_sub(cache));
            }
            self.most = self.most.max(stat.anon.saturating_add(stat.shmem).saturating_add(not_charged));
        }
        Some(self.most)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::job::Memory;

    fn tree(anon: u64, file: u64) -> TreeMemory {
        let memory = Memory { anon: Some(anon), file: Some(file), ..Memory::default() };
        TreeMemory { sum: memory, need: anon, largest: memory, ..TreeMemory::default() }
    }

    /// A cgroup of v2 in a folder, and what is in it.
    struct Group(tempfile::TempDir);

    impl Group {
        fn new() -> (Self, Peak) {
            let group = Self(tempfile::tempdir().unwrap());
            group.holds(0, 0, 0);
            let path = Some(group.0.path().into());
            let peak = Peak::new(&JobCgroup { unified: path, ..JobCgroup::default() });
            (group, peak)
        }

        fn holds(&self, peak: u64, anon: u64, file: u64) {
            fs::write(self.0.path().join("memory.peak"), format!("{peak}\n")).unwrap();
            let stat = format!("anon {anon}\nfile {file}\nshmem 0\n");
            fs::write(self.0.path().join("memory.stat"), stat).unwrap();
        }
    }

    fn look(peak: &mut Peak, tree: &TreeMemory) -> (u64, PeakSource) {
        peak.look(tree, 0, Instant::now(), true);
        peak.so_far()
    }

    #[test]
    fn a_peak_between_two_ticks_without_page_cache() {
        let (group, mut peak) = Group::new();
        group.holds(900, 10, 50);
        assert_eq!(look(&mut peak, &tree(10, 0)), (850, PeakSource::Cgroup));
        // A file is read, and deleted.
        group.holds(2000, 10, 1990);
        assert_eq!(look(&mut peak, &tree(10, 0)).0, 850);
        group.holds(2100, 10, 50);
        assert_eq!(look(&mut peak, &tree(10, 0)).0, 850);
        // Page cache makes room.
        group.holds(2100, 1500, 600);
        assert_eq!(look(&mut peak, &tree(10, 0)).0, 1500);
    }

    #[test]
    fn what_no_memory_controller_counts_comes_on_top() {
        let (group, mut peak) = Group::new();
        group.holds(20, 10, 0);
        let mut tree = tree(10, 0);
        (tree.sum.swap, tree.sum.hugetlb) = (Some(100), Some(1000));
        assert_eq!(look(&mut peak, &tree), (1110, PeakSource::Cgroup));
    }

    #[test]
    fn what_comes_on_top_counts_at_once() {
        let (group, mut peak) = Group::new();
        group.holds(20, 10, 0);
        let (start, mut tree) = (Instant::now(), tree(10, 0));
        let most = |peak: &mut Peak, tree: &TreeMemory, millis| {
            peak.look(tree, 0, start + Duration::from_millis(millis), false);
            peak.so_far().0
        };
        assert_eq!(most(&mut peak, &tree, 0), 20);
        tree.sum.hugetlb = Some(1000);
        assert_eq!(most(&mut peak, &tree, 10), 20, "it was read just now");
        assert_eq!(most(&mut peak, &tree, 100), 1010);
        group.holds(20, 15, 0);
        assert_eq!(most(&mut peak, &tree, 200), 1010, "nothing says that there is more");
        assert_eq!(most(&mut peak, &tree, 1100), 1015);
        group.holds(5000, 4000, 0);
        tree.largest.anon = Some(4000);
        assert_eq!(most(&mut peak, &tree, 1110), 5000);
        assert_eq!(peak.so_far().1, PeakSource::Cgroup);
    }

    #[test]
    fn a_job_that_is_not_in_its_cgroup_is_sampled() {
        let (group, mut peak) = Group::new();
        assert_eq!(look(&mut peak, &tree(10, 0)), (10, PeakSource::Sampled), "nobody entered");
        group.holds(800, 700, 0);
        assert_eq!(look(&mut peak, &tree(700, 0)), (800, PeakSource::Cgroup));
        assert_eq!(look(&mut peak, &tree(1000, 0)), (1000, PeakSource::Sampled), "it left");
        let (group, mut peak) = Group::new();
        group.holds(800, 700, 0);
        assert_eq!(look(&mut peak, &tree(600, 0)), (800, PeakSource::Cgroup));
        for name in ["memory.peak", "memory.stat"] {
            fs::write(group.0.path().join(name), "garbage\n").unwrap();
        }
        assert_eq!(look(&mut peak, &tree(600, 0)), (800, PeakSource::Sampled));
    }

    #[test]
    fn pages_of_files_are_not_needed() {
        let mut peak = Peak::new(&JobCgroup::default());
        assert_eq!(look(&mut peak, &tree(30, 600)), (30, PeakSource::Sampled));
        peak.look(&TreeMemory::default(), 640, Instant::now(), true);
        assert_eq!(peak.so_far().0, 40, "of one that has ended");
    }
}
