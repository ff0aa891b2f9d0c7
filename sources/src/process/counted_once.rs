//! Memory of the tree, in which memory that processes share counts about once, and never more than there is: the newest
//! PSS shows how much each process shared, and that stays out until a later PSS shows something else.

#[cfg(test)]
mod tests;

use super::current_memory::{CurrentMemory, Resident};
use super::fork_shared::SharedSinceFork;
use crate::job::Image;

/// Anonymous memory that a process has for itself, or in common with its forks, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Anonymous {
    resident: u64,
    swap: u64,
}

impl Anonymous {
    fn all(self) -> u64 {
        self.resident.saturating_add(self.swap)
    }

    /// Without so much of it that counts elsewhere. What was in memory may be in swap by now, or came back.
    fn less(self, shared: Self) -> Self {
        let gone_to_swap = shared.resident.saturating_sub(self.resident);
        let come_back = shared.swap.saturating_sub(self.swap);
        Self {
            resident: self.resident.saturating_sub(shared.resident).saturating_sub(come_back),
            swap: self.swap.saturating_sub(shared.swap).saturating_sub(gone_to_swap),
        }
    }
}

/// The memory of the tree, in bytes, with shared memory counted about once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeduplicatedMemory {
    pub(super) resident: u64,
    /// The same without pages of files, which the kernel can read again, but with swap and huge pages.
    pub(super) needed: u64,
    /// Swap and huge pages, which are not resident and in no `memory.stat`.
    pub(super) not_charged: u64,
    /// The sum of the PSS of the processes that were read, as it was then.
    pub(super) pss: u64,
    /// So much more it can be: what was shared, and may be copies, or memory of one process, by now.
    pub(super) doubtful: u64,
}

/// What it remembers from tick to tick.
#[derive(Default)]
pub(super) struct MemoryDeduplicator {
    /// Forks whose PSS is not known yet.
    forks: Vec<CurrentMemory>,
    shared: SharedSinceFork,
}

/// The memory of a process when its PSS was read, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPss {
    image: Image,
    /// What its minor faults by then can have made private or new.
    faulted: u64,
    /// The part of its anonymous memory that is beyond its proportional share, and so that of other processes.
    shared: Anonymous,
    private_hugetlb: u64,
    shared_hugetlb: u64,
    shmem: u64,
    file: u64,
    pss: u64,
}

/// `/proc/PID/smaps_rollup`, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rollup {
    pub(super) rss: u64,
    pub(super) pss: u64,
    /// `Anonymous`
    pub(super) anon: Option<u64>,
    /// `Pss_Anon` and `Pss_Shmem`, which Linux has from 5.3 on.
    pub(super) kinds: Option<(u64, u64)>,
    /// Anonymous memory in swap, and its share of that.
    pub(super) swap: u64,
    pub(super) swap_pss: u64,
    pub(super) private_hugetlb: u64,
    pub(super) shared_hugetlb: u64,
}

impl Rollup {
    /// Whether no other address space has a share in its anonymous memory.
    pub(super) fn shares_nothing(&self) -> bool {
        self.kinds.is_some_and(|(pss_anon, _)| self.anon.is_some_and(|anon| anon > 0 && anon <= pss_anon))
    }

    /// All of it counts in another process.
    pub(super) fn disown(&mut self) {
        (self.pss, self.kinds, self.swap_pss) = (0, Some((0, 0)), 0);
        self.shared_hugetlb += std::mem::take(&mut self.private_hugetlb);
    }
}

/// By so much, in bytes, what a process maps may differ and still counts as the same.
const STEADY: u64 = 1 << 20;

impl ProcessPss {
    /// `before`: pages of files and shared memory, in bytes, just before the first process was read. Processes are read one
    /// after the other: what one of them comes to map meanwhile, those that were read before have counted as their own. So
    /// the share of such a process in it does not count. `faulted` is of then as well.
    ///
    /// Where it is not known by kind what is shared, that counts as pages of files first, then as anonymous memory.
    pub(super) fn new(image: Image, before: u64, rollup: &Rollup, faulted: u64) -> Self {
        let Rollup { rss, pss, .. } = *rollup;
        let anon = rollup.anon.unwrap_or(rss).min(rss);
        let (pss_anon, pss_shmem) = rollup.kinds.unwrap_or_else(|| {
            let shared = rss.saturating_sub(pss);
            (anon - shared.saturating_sub(rss - anon).min(anon), 0)
        });
        let pss_file = pss.saturating_sub(pss_anon).saturating_sub(pss_shmem);
        let is_steady = bytes(rss - anon) <= before.saturating_add(STEADY.max(before / 64));
        let if_steady = |kib: u64| if is_steady { bytes(kib) } else { 0 };
        Self {
            image,
            faulted,
            shared: Anonymous {
                resident: bytes(anon.saturating_sub(pss_anon)),
                swap: bytes(rollup.swap.saturating_sub(rollup.swap_pss)),
            },
            private_hugetlb: bytes(rollup.private_hugetlb),
            shared_hugetlb: bytes(rollup.shared_hugetlb),
            shmem: if_steady(pss_shmem),
            file: if_steady(pss_file),
            pss: bytes(pss),
        }
    }

    pub(super) fn image(&self) -> Image {
        self.image
    }
}

impl MemoryDeduplicator {
    /// Anonymous memory and swap count in full, less what PSS showed to be shared. A fork whose PSS is not known yet counts
    /// only by how much it exceeds what it can have had from the process that it was forked from. Pages of files and shared
    /// memory count as much as PSS showed and is still there, or as much as the process with the most has. The sum is at
    /// least the largest process.
    pub(super) fn sum(
        &mut self,
        alive: impl Iterator<Item = CurrentMemory> + Clone,
        readings: &[ProcessPss],
    ) -> DeduplicatedMemory {
        let mut sum = Sum::default();
        // Where no `status` can be read, nothing ever tells of kinds.
        let tells_kinds = alive.clone().any(|process| process.kinds.is_some());
        let alive = alive.map(|process| if tells_kinds { process } else { process.with_kinds() });
        self.forks.clear();
        for process in alive.clone() {
            match readings.binary_search_by_key(&process.image, ProcessPss::image) {
                Ok(index) => sum.add_read(&process, &readings[index]),
                Err(_) if process.may_inherit() => self.forks.push(process),
                Err(_) => sum.add_unread(&process, 0),
            }
        }
        let inherited = self.shared.of(&self.forks, alive);
        self.forks.iter().zip(inherited).for_each(|(fork, inherited)| sum.add_unread(fork, *inherited));
        sum.has_lost_some = sum.read < readings.len();
        sum.total()
    }
}

/// What the processes have together, and the most that one of them has.
#[derive(Default)]
struct Sum {
    own: Anonymous,
    /// Huge pages by the readings: those of one process alone, and the most that one shared.
    private_hugetlb: u64,
    shared_hugetlb: u64,
    shmem: u64,
    file: u64,
    pss: u64,
    /// How many processes were read, what they shared, and how much of it they may have written to since.
    read: usize,
    shared: u64,
    copied: u64,
    /// Whether some that were read have ended: what they had a share in is that of the others now.
    has_lost_some: bool,
    /// What unread forks can have from their parents.
    inherited: u64,
    most: Resident,
    most_hugetlb: u64,
    largest: u64,
    largest_without_file: u64,
    largest_needed: u64,
}

impl Sum {
    fn add_read(&mut self, process: &CurrentMemory, reading: &ProcessPss) {
        let now = self.add(process, reading.shared);
        self.read += 1;
        let (shared, faulted) = (reading.shared.all(), process.faulted.saturating_sub(reading.faulted));
        self.shared = self.shared.saturating_add(shared);
        self.copied = self.copied.saturating_add(shared.min(faulted));
        self.shmem = self.shmem.saturating_add(reading.shmem.min(now.shmem));
        self.file = self.file.saturating_add(reading.file.min(now.file));
        self.pss = self.pss.saturating_add(reading.pss);
        self.private_hugetlb = self.private_hugetlb.saturating_add(reading.private_hugetlb.min(process.hugetlb));
        self.shared_hugetlb = self.shared_hugetlb.max(reading.shared_hugetlb.min(process.hugetlb));
    }

    fn add_unread(&mut self, process: &CurrentMemory, inherited: u64) {
        let now = self.add(process, Anonymous { resident: inherited, swap: 0 });
        self.inherited = self.inherited.saturating_add(inherited.min(now.anon.saturating_add(process.swap)));
    }

    /// Adds a process that shares so much of its anonymous memory with others.
    fn add(&mut self, process: &CurrentMemory, shared: Anonymous) -> Resident {
        let now = process.split();
        let own = Anonymous { resident: now.anon, swap: process.swap }.less(shared);
        self.own.resident = self.own.resident.saturating_add(own.resident);
        self.own.swap = self.own.swap.saturating_add(own.swap);
        self.most.shmem = self.most.shmem.max(now.shmem);
        self.most.file = self.most.file.max(now.file);
        self.most_hugetlb = self.most_hugetlb.max(process.hugetlb);
        let without_file = now.anon + now.shmem;
        self.largest = self.largest.max(process.resident);
        self.largest_without_file = self.largest_without_file.max(without_file);
        let needed = without_file.saturating_add(process.swap).saturating_add(process.hugetlb);
        self.largest_needed = self.largest_needed.max(needed);
        now
    }

    fn total(&self) -> DeduplicatedMemory {
        let (file, shmem) = (self.file.max(self.most.file), self.shmem.max(self.most.shmem));
        let without_file = self.own.resident.saturating_add(shmem);
        // Which of those that came later are the same is not known.
        let hugetlb = self.private_hugetlb.saturating_add(self.shared_hugetlb).max(self.most_hugetlb);
        let not_charged = self.own.swap.saturating_add(hugetlb);
        DeduplicatedMemory {
            resident: without_file.max(self.largest_without_file).saturating_add(file).max(self.largest),
            needed: without_file.saturating_add(not_charged).max(self.largest_needed),
            not_charged,
            pss: self.pss,
            doubtful: self.inherited.saturating_add(if self.has_lost_some { self.shared } else { self.copied }),
        }
    }
}

fn bytes(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}
