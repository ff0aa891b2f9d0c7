//! Memory of the tree, in which memory that processes share counts about once. The newest PSS shows how much each
//! process shared; its current memory shows what has changed since.

use std::collections::HashMap;

use crate::job::{Image, Member};

/// The memory of a process at this tick, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentMemory {
    image: Image,
    anon: u64,
    file: u64,
    shmem: u64,
}

/// The memory of a process when its PSS was read, in KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPss {
    pub(super) image: Image,
    /// Anonymous memory beyond its proportional share: the part of other processes.
    shared_anon: u64,
    pss_anon: u64,
    pss_file: u64,
    pss_shmem: u64,
}

/// The memory of the tree, in bytes, with shared memory counted about once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeduplicatedMemory {
    pub(super) resident: u64,
    /// The same without pages of files, which the kernel can read again.
    pub(super) without_file: u64,
    /// The sum of the PSS of the processes that were read, as it was then.
    pub(super) pss: u64,
}

/// Buffers that are kept from tick to tick.
#[derive(Default)]
pub(super) struct MemoryDeduplicator {
    /// Processes whose PSS is not known yet.
    unread: Vec<CurrentMemory>,
    /// The first process with each stack address. A fork has the address of its parent until it runs another program.
    first: HashMap<u64, CurrentMemory>,
}

impl CurrentMemory {
    /// The memory of a member, on a machine with pages of this size. Memory beyond what its last `status` shows counts
    /// as anonymous.
    pub(super) fn new(member: &Member, page: u64) -> Self {
        let memory = member.status.unwrap_or_default().memory;
        let rss = member.stat.rss.saturating_mul(page);
        let file = memory.file.unwrap_or(0).min(rss);
        let shmem = memory.shmem.unwrap_or(0).min(rss - file);
        Self { image: member.stat.image(), anon: rss - file - shmem, file, shmem }
    }

    fn resident(&self) -> u64 {
        self.anon + self.file + self.shmem
    }
}

impl ProcessPss {
    /// From `Rss`, `Pss`, `Anonymous`, and `Pss_Anon` and `Pss_Shmem`, which Linux has from 5.3 on. Without those two,
    /// shared memory counts as pages of files first, then as anonymous memory.
    pub(super) fn new(image: Image, rss: u64, pss: u64, anon: Option<u64>, kinds: Option<(u64, u64)>) -> Self {
        let anon = anon.unwrap_or(rss).min(rss);
        let (pss_anon, pss_shmem) = kinds.unwrap_or_else(|| {
            let shared = rss.saturating_sub(pss);
            (anon - shared.saturating_sub(rss - anon).min(anon), 0)
        });
        let pss_file = pss.saturating_sub(pss_anon).saturating_sub(pss_shmem);
        Self { image, shared_anon: anon.saturating_sub(pss_anon), pss_anon, pss_file, pss_shmem }
    }
}

impl MemoryDeduplicator {
    /// Anonymous memory counts in full, less what PSS showed to be shared. A fork whose PSS is not known yet counts
    /// only what exceeds the process that it was forked from, while both run the same program. Pages of files and
    /// shared memory count once per tree: as much as PSS showed, or as the process with the most has now. The sum is at
    /// least the largest process. In `alive`, parents come before their children.
    pub(super) fn sum(
        &mut self,
        alive: impl Iterator<Item = CurrentMemory> + Clone,
        readings: &[ProcessPss],
    ) -> DeduplicatedMemory {
        let Self { unread, first } = self;
        let (mut anon, mut seen, mut most, mut largest) = (0_u64, [0_u64; 3], [0, 0], [0, 0]);
        unread.clear();
        for process in alive.clone() {
            most = [most[0].max(process.file), most[1].max(process.shmem)];
            largest = [largest[0].max(process.resident()), largest[1].max(process.anon + process.shmem)];
            match readings.binary_search_by_key(&process.image, |reading| reading.image) {
                Ok(index) => {
                    let reading = &readings[index];
                    anon = anon.saturating_add(process.anon.saturating_sub(bytes(reading.shared_anon)));
                    let kinds = [reading.pss_file, reading.pss_shmem, reading.pss_anon].map(bytes);
                    seen.iter_mut().zip(kinds).for_each(|(sum, kind)| *sum = sum.saturating_add(kind));
                }
                Err(_) => unread.push(process),
            }
        }
        if !unread.is_empty() {
            first.clear();
            alive.for_each(|process| _ = first.entry(process.image.stack).or_insert(process));
        }
        let own = |process: &CurrentMemory| match first.get(&process.image.stack) {
            Some(origin) if process.image.stack != 0 && origin.image != process.image => {
                process.anon.saturating_sub(origin.anon)
            }
            _ => process.anon,
        };
        let anon = unread.iter().map(own).fold(anon, u64::saturating_add);
        let [file, shmem] = [seen[0].max(most[0]), seen[1].max(most[1])];
        let without_file = anon.saturating_add(shmem);
        DeduplicatedMemory {
            resident: without_file.saturating_add(file).max(largest[0]),
            without_file: without_file.max(largest[1]),
            pss: seen.into_iter().fold(0, u64::saturating_add),
        }
    }
}

fn bytes(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Stat;

    const MIB: u64 = 1 << 20;

    /// A process of a program, which has so many MiB of anonymous memory.
    fn process(pid: i32, stack: u64, anon: u64) -> CurrentMemory {
        let stat = Stat { pid, stack, ..Stat::default() };
        CurrentMemory { image: stat.image(), anon: anon * MIB, file: 0, shmem: 0 }
    }

    fn with(process: CurrentMemory, file: u64, shmem: u64) -> CurrentMemory {
        CurrentMemory { file: file * MIB, shmem: shmem * MIB, ..process }
    }

    fn read(process: CurrentMemory, [anon, file, shmem]: [u64; 3]) -> ProcessPss {
        let pss = (anon + file + shmem) << 10;
        let kinds = Some((anon << 10, shmem << 10));
        ProcessPss::new(process.image, process.resident() >> 10, pss, Some(process.anon >> 10), kinds)
    }

    fn sum(alive: &[CurrentMemory], readings: &[ProcessPss]) -> [u64; 2] {
        let counted = MemoryDeduplicator::default().sum(alive.iter().copied(), readings);
        [counted.resident, counted.without_file].map(|bytes| bytes / MIB)
    }

    #[test]
    fn what_was_not_shared_counts_when_it_grows() {
        let shell = with(process(1, 10, 1), 3, 0);
        let readings = [read(shell, [1, 1, 0])];
        assert_eq!(sum(&[shell], &readings), [4, 1], "as much as the largest");
        let grown = with(process(1, 10, 201), 3, 0);
        assert_eq!(sum(&[grown, with(process(2, 20, 2), 3, 0)], &readings), [206, 203], "both have the same files");
        assert_eq!(sum(&[process(1, 11, 204)], &readings), [204, 204], "it is another program now");
    }

    #[test]
    fn a_fork_shares_with_the_one_that_it_comes_from() {
        let parent = process(1, 10, 200);
        let workers = |mib: u64| [parent, process(2, 10, mib), process(3, 10, mib), process(4, 20, 30)];
        assert_eq!(sum(&workers(199), &[]), [230; 2], "a program that one of them became shares nothing");
        assert_eq!(sum(&workers(250), &[]), [330; 2]);
        let alone = read(parent, [200, 0, 0]);
        assert_eq!(sum(&workers(199), &[alone]), [230; 2], "the parent was read before");
        let readings =
            [read(parent, [67, 0, 0]), read(process(2, 10, 199), [66, 0, 0]), read(process(3, 10, 199), [66, 0, 0])];
        assert_eq!(sum(&workers(199), &readings), [67 + 66 + 66 + 30; 2]);
        assert_eq!(sum(&[parent], &readings), [200; 2], "the others have ended");
    }

    /// Workers that come to use more and more of the memory that they share.
    #[test]
    fn shared_memory_and_files_count_once_also_when_some_have_more_of_them() {
        let all =
            |shmem: u64| [10, 11, 12, 13].map(|pid| with(process(pid, 10, 5), 20, if pid == 10 { 200 } else { shmem }));
        assert_eq!(sum(&all(0), &[]), [225, 205]);
        assert_eq!(sum(&all(200), &[]), [225, 205]);
        let readings = all(8).map(|process| read(process, [2, 5, if process.image.pid == 10 { 194 } else { 2 }]));
        for shmem in [8, 50, 200] {
            assert_eq!(sum(&all(shmem), &readings), [4 * 2 + 200 + 20, 4 * 2 + 200], "{shmem}");
        }
        // Segments that nobody else has.
        let own = [20, 21].map(|pid| with(process(pid, u64::from(pid.unsigned_abs()), 5), 20, 100));
        let readings = own.map(|process| read(process, [5, 10, 100]));
        assert_eq!(sum(&own, &readings), [230, 210]);
    }

    #[test]
    fn an_old_kernel_does_not_tell_what_is_shared() {
        let shared = |rss, pss, anon| ProcessPss::new(process(1, 10, 0).image, rss, pss, anon, None);
        let kinds = |reading: ProcessPss| (reading.shared_anon, reading.pss_anon, reading.pss_file);
        assert_eq!(kinds(shared(100, 60, Some(50))), (0, 50, 10), "files first");
        assert_eq!(kinds(shared(100, 30, Some(50))), (20, 30, 0));
        assert_eq!(kinds(shared(100, 30, None)), (70, 30, 0));
        assert_eq!(kinds(shared(0, 30, Some(7))), (0, 0, 30));
    }

    #[test]
    fn who_may_not_be_traced_shares_nothing() {
        assert_eq!(sum(&[process(1, 0, 100), process(2, 0, 50)], &[]), [150; 2]);
    }
}
