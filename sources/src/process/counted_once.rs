//! Memory of the tree, in which memory that processes share counts about once. The newest PSS shows how much each
//! process shared; its current memory shows what has changed since.

use std::collections::HashMap;

use crate::job::{Image, Member};

/// The memory of a process at this tick, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentMemory {
    image: Image,
    /// Whether it runs the program that it was forked in.
    is_fork: bool,
    /// What its minor faults so far can have made private or new.
    faulted: u64,
    resident: u64,
    /// Pages of files and shared memory; `None` while its `status` was not read.
    mapped: Option<Mapped>,
    swap: u64,
    hugetlb: u64,
}

/// Resident memory that other programs can have as well, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Mapped {
    file: u64,
    shmem: u64,
}

/// Memory that a process has for itself, or in common with its forks, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Own {
    anon: u64,
    swap: u64,
    hugetlb: u64,
}

impl Own {
    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn less(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            anon: combine(self.anon, other.anon),
            swap: combine(self.swap, other.swap),
            hugetlb: combine(self.hugetlb, other.hugetlb),
        }
    }
}

/// The memory of the tree, in bytes, with shared memory counted about once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeduplicatedMemory {
    pub(super) resident: u64,
    /// The same without pages of files, which the kernel can read again, and without processes of which it is not known
    /// yet how much of them that is.
    pub(super) without_file: u64,
    /// Swap and huge pages, which are not resident and in no `memory.stat`.
    pub(super) not_charged: u64,
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

/// A process whose PSS is to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PssQuestion {
    pub(super) image: Image,
    /// Its pages of files and shared memory by then, in bytes; `None` while they are not known.
    mapped: Option<u64>,
}

/// The memory of a process when its PSS was read, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPss {
    image: Image,
    /// What its minor faults by then can have made private or new.
    faulted: u64,
    /// Whether it maps as much as when its PSS was asked for. Processes are read one after the other: what one of them
    /// maps meanwhile, those that were read before have counted as their own.
    is_steady: bool,
    anon: u64,
    mapped: u64,
    /// The part of `anon`, swap and huge pages that is beyond its proportional share, and so that of other processes.
    shared: Own,
    pss: Mapped,
    pss_anon: u64,
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
    pub(super) swap: u64,
    pub(super) swap_pss: u64,
    pub(super) shared_hugetlb: u64,
}

/// By so much, in bytes, what a process maps may differ and still counts as the same.
const STEADY: u64 = 1 << 20;

impl CurrentMemory {
    /// The memory of a member, on a machine with pages of this size.
    pub(super) fn new(member: &Member, page: u64) -> Self {
        let memory = member.status.map(|status| status.memory);
        let resident = member.stat.rss.saturating_mul(page);
        let known = memory.unwrap_or_default();
        Self {
            image: member.stat.image(),
            is_fork: member.stat.is_fork,
            faulted: member.stat.minor_faults.saturating_mul(page),
            resident,
            mapped: memory.map(|_| Mapped { file: known.file.unwrap_or(0), shmem: known.shmem.unwrap_or(0) }),
            swap: known.swap.unwrap_or(0),
            hugetlb: known.hugetlb.unwrap_or(0),
        }
    }

    /// What to read of it.
    pub(super) fn question(&self) -> PssQuestion {
        PssQuestion { image: self.image, mapped: self.mapped.map(|mapped| mapped.file.saturating_add(mapped.shmem)) }
    }

    /// With so much that is mapped, as far as it is resident. Memory beyond that counts as anonymous.
    fn split(&self, mapped: Mapped) -> (Own, Mapped) {
        let file = mapped.file.min(self.resident);
        let shmem = mapped.shmem.min(self.resident - file);
        let anon = self.resident - file - shmem;
        (Own { anon, swap: self.swap, hugetlb: self.hugetlb }, Mapped { file, shmem })
    }
}

impl ProcessPss {
    /// Where it is not known by kind what is shared, that counts as pages of files first, then as anonymous memory.
    /// `faulted` is read after the rollup, so that no page counts as copied twice.
    pub(super) fn new(question: PssQuestion, rollup: &Rollup, faulted: u64) -> Self {
        let Rollup { rss, pss, .. } = *rollup;
        let anon = rollup.anon.unwrap_or(rss).min(rss);
        let (pss_anon, pss_shmem) = rollup.kinds.unwrap_or_else(|| {
            let shared = rss.saturating_sub(pss);
            (anon - shared.saturating_sub(rss - anon).min(anon), 0)
        });
        let pss_file = pss.saturating_sub(pss_anon).saturating_sub(pss_shmem);
        let mapped = bytes(rss - anon);
        Self {
            image: question.image,
            faulted,
            is_steady: question.mapped.is_some_and(|before| mapped <= before.saturating_add(STEADY.max(before / 64))),
            anon: bytes(anon),
            mapped,
            shared: Own {
                anon: bytes(anon.saturating_sub(pss_anon)),
                swap: bytes(rollup.swap.saturating_sub(rollup.swap_pss)),
                hugetlb: bytes(rollup.shared_hugetlb),
            },
            pss: Mapped { file: bytes(pss_file), shmem: bytes(pss_shmem) },
            pss_anon: bytes(pss_anon),
        }
    }

    pub(super) fn image(&self) -> Image {
        self.image
    }

    /// What it has for itself by now. A page that was shared and is written to becomes a copy of its own: that is a
    /// minor fault by which its memory does not grow.
    fn own(&self, now: &CurrentMemory, own: Own) -> Own {
        let faulted = now.faulted.saturating_sub(self.faulted);
        let copied = faulted.saturating_sub(now.resident.saturating_sub(self.anon.saturating_add(self.mapped)));
        let shared = Own { anon: self.shared.anon.saturating_sub(copied), ..self.shared };
        own.less(shared)
    }
}

impl MemoryDeduplicator {
    /// Anonymous memory, swap and huge pages count in full, less what PSS showed to be shared. A fork whose PSS is not
    /// known yet counts only what exceeds the process that it was forked from, or what it has written to since. Pages of
    /// files and shared memory count once per tree: as much as PSS showed and is still there, or as the process with the
    /// most has now. The sum is at least the largest process, and at most that of all. In `alive`, parents come before
    /// their children.
    pub(super) fn sum(
        &mut self,
        alive: impl Iterator<Item = CurrentMemory> + Clone,
        readings: &[ProcessPss],
    ) -> DeduplicatedMemory {
        let mut sum = Sum::default();
        self.unread.clear();
        for process in alive.clone() {
            match readings.binary_search_by_key(&process.image, ProcessPss::image) {
                Ok(index) => sum.add_read(&process, &readings[index]),
                Err(_) => self.unread.push(process),
            }
        }
        self.first.clear();
        if self.unread.iter().any(|process| process.is_fork && process.image.stack != 0) {
            alive.for_each(|process| _ = self.first.entry(process.image.stack).or_insert(process));
        }
        for process in &self.unread {
            let of_stack = Some(process.image.stack).filter(|stack| process.is_fork && *stack != 0);
            let origin = of_stack.and_then(|stack| self.first.get(&stack));
            sum.add_unread(process, origin.filter(|origin| origin.image != process.image));
        }
        sum.total()
    }
}

/// What the processes have together, and the most that one of them has.
#[derive(Default)]
struct Sum {
    own: Own,
    /// Anonymous memory of processes of which it is not known what is mapped.
    unknown: u64,
    pss: Mapped,
    pss_anon: u64,
    shared_hugetlb: u64,
    is_unsteady: bool,
    most: Mapped,
    largest: u64,
    largest_without_file: u64,
    all: u64,
    all_without_file: u64,
}

impl Sum {
    fn add_read(&mut self, process: &CurrentMemory, reading: &ProcessPss) {
        let mapped = process.mapped.unwrap_or(Mapped { file: reading.mapped, shmem: 0 });
        let (own, mapped) = process.split(mapped);
        self.add(process, own, mapped);
        self.is_unsteady |= !reading.is_steady;
        self.own = self.own.plus(reading.own(process, own));
        let of_file = process.mapped.map_or(u64::MAX, |_| mapped.file);
        let of_shmem = process.mapped.map_or(u64::MAX, |_| mapped.shmem);
        self.pss.file = self.pss.file.saturating_add(reading.pss.file.min(of_file));
        self.pss.shmem = self.pss.shmem.saturating_add(reading.pss.shmem.min(of_shmem));
        self.pss_anon = self.pss_anon.saturating_add(reading.pss_anon);
        self.shared_hugetlb = self.shared_hugetlb.max(reading.shared.hugetlb.min(process.hugetlb));
    }

    fn add_unread(&mut self, process: &CurrentMemory, origin: Option<&CurrentMemory>) {
        let mapped = process.mapped.or_else(|| origin?.mapped);
        let (own, is) = process.split(mapped.unwrap_or_default());
        self.add(process, own, is);
        let own = origin.map_or(own, |origin| {
            let (before, _) = origin.split(origin.mapped.unwrap_or_default());
            let more = own.less(before);
            // A fork begins without what it maps of files and shared memory, and gets up to 16 pages of a file by a fault.
            let written = process.faulted.saturating_sub(is.shmem + is.file / 16);
            Own { anon: more.anon.max(own.anon.min(written)), ..more }
        });
        self.own = self.own.plus(own);
        if mapped.is_none() {
            self.unknown = self.unknown.saturating_add(own.anon);
        }
    }

    fn add(&mut self, process: &CurrentMemory, own: Own, mapped: Mapped) {
        let without_file = own.anon + mapped.shmem;
        self.most = Mapped { file: self.most.file.max(mapped.file), shmem: self.most.shmem.max(mapped.shmem) };
        self.largest = self.largest.max(process.resident);
        self.largest_without_file =
            self.largest_without_file.max(if process.mapped.is_some() { without_file } else { 0 });
        self.all = self.all.saturating_add(process.resident);
        self.all_without_file = self.all_without_file.saturating_add(without_file);
    }

    fn total(&self) -> DeduplicatedMemory {
        // Else they are at least as much as the process with the most has.
        let read = if self.is_unsteady { Mapped::default() } else { self.pss };
        let (file, shmem) = (read.file.max(self.most.file), read.shmem.max(self.most.shmem));
        let without_file = self.own.anon.saturating_add(shmem).min(self.all_without_file);
        let resident = without_file.saturating_add(file).min(self.all);
        let not_charged = self.own.swap.saturating_add(self.own.hugetlb).saturating_add(self.shared_hugetlb);
        let pss = self.pss_anon.saturating_add(self.pss.file).saturating_add(self.pss.shmem);
        DeduplicatedMemory {
            resident: resident.max(self.largest),
            without_file: without_file.saturating_sub(self.unknown).max(self.largest_without_file),
            not_charged,
            pss,
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

    /// A process of a program, which has so many MiB of anonymous memory. The first one of a stack is that of the lowest id.
    fn process(pid: i32, stack: u64, anon: u64) -> CurrentMemory {
        let stat = Stat { pid, stack, ..Stat::default() };
        let mapped = Some(Mapped::default());
        CurrentMemory {
            image: stat.image(),
            is_fork: true,
            faulted: 0,
            resident: anon * MIB,
            mapped,
            swap: 0,
            hugetlb: 0,
        }
    }

    fn with(process: CurrentMemory, file: u64, shmem: u64) -> CurrentMemory {
        let mapped = Some(Mapped { file: file * MIB, shmem: shmem * MIB });
        CurrentMemory { resident: process.resident + (file + shmem) * MIB, mapped, ..process }
    }

    fn read(process: CurrentMemory, [anon, file, shmem]: [u64; 3]) -> ProcessPss {
        let (own, _) = process.split(process.mapped.unwrap_or_default());
        let rollup = Rollup {
            rss: process.resident >> 10,
            pss: (anon + file + shmem) << 10,
            anon: Some(own.anon >> 10),
            kinds: Some((anon << 10, shmem << 10)),
            ..Rollup::default()
        };
        ProcessPss::new(process.question(), &rollup, process.faulted)
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
        let shared = |rss, pss, anon| {
            ProcessPss::new(process(1, 10, 0).question(), &Rollup { rss, pss, anon, ..Rollup::default() }, 0)
        };
        let kinds = |reading: ProcessPss| (reading.shared.anon >> 10, reading.pss_anon >> 10, reading.pss.file >> 10);
        assert_eq!(kinds(shared(100, 60, Some(50))), (0, 50, 10), "files first");
        assert_eq!(kinds(shared(100, 30, Some(50))), (20, 30, 0));
        assert_eq!(kinds(shared(100, 30, None)), (70, 30, 0));
        assert_eq!(kinds(shared(0, 30, Some(7))), (0, 0, 30));
    }

    #[test]
    fn who_may_not_be_traced_shares_nothing() {
        assert_eq!(sum(&[process(1, 0, 100), process(2, 0, 50)], &[]), [150; 2]);
    }

    /// A parent and its workers, which write to what they had in common.
    #[test]
    fn what_is_written_to_after_a_fork_is_a_copy() {
        let all = [1, 2, 3].map(|pid| process(pid, 10, 300));
        let readings = all.map(|process| read(process, [100, 0, 0]));
        assert_eq!(sum(&all, &readings), [300; 2]);
        let wrote = |mib: u64| all.map(|process| CurrentMemory { faulted: mib * MIB, ..process });
        assert_eq!(sum(&wrote(50), &readings), [450; 2]);
        assert_eq!(sum(&wrote(5000), &readings), [900; 2], "no more than there is");
        let grown = all.map(|process| CurrentMemory { faulted: 70 * MIB, resident: 370 * MIB, ..process });
        assert_eq!(sum(&grown, &readings), [510; 2], "it is new memory that they touched");
        // Before the PSS of the workers is known.
        assert_eq!(sum(&wrote(120), &readings[..1]), [220 + 120 + 120; 2]);
    }

    #[test]
    fn what_is_not_there_any_more_does_not_count() {
        let before = with(process(1, 10, 5), 0, 1000);
        let readings = [read(before, [5, 0, 1000])];
        assert_eq!(sum(&[process(1, 10, 1005)], &readings), [1005; 2], "it has memory of another kind");
        assert_eq!(sum(&[process(1, 10, 5)], &readings), [5; 2]);
    }

    /// Many processes come at once, and `status` is read of some.
    #[test]
    fn of_a_process_that_was_not_read_its_origin_tells() {
        let server = with(process(1, 10, 5), 20, 8000);
        let backend = |pid: i32| CurrentMemory { mapped: None, ..with(process(pid, 10, 6), 20, 8000) };
        assert_eq!(sum(&[server, backend(2), backend(3)], &[]), [8027, 8007]);
        let other = CurrentMemory { is_fork: false, ..backend(4) };
        assert_eq!(sum(&[server, other], &[])[1], 8005, "nobody knows what of it is of files");
        // Programs that were started where addresses are not random.
        let ranks = [1, 2].map(|pid| CurrentMemory { is_fork: false, ..process(pid, 10, 100) });
        assert_eq!(sum(&ranks, &[]), [200; 2]);
    }

    #[test]
    fn huge_pages_and_swap_count_once() {
        let all = [1, 2, 3].map(|pid| CurrentMemory { swap: 30 * MIB, hugetlb: 400 * MIB, ..process(pid, 10, 10) });
        let sum = |readings: &[ProcessPss]| {
            MemoryDeduplicator::default().sum(all.iter().copied(), readings).not_charged / MIB
        };
        assert_eq!(sum(&[]), 430, "they are forks");
        let reading = |process: CurrentMemory| {
            let (swap, swap_pss, shared_hugetlb) = (30 << 10, 10 << 10, 300 << 10);
            ProcessPss::new(process.question(), &Rollup { swap, swap_pss, shared_hugetlb, ..Rollup::default() }, 0)
        };
        assert_eq!(sum(&all.map(reading)), 3 * 10 + 3 * 100 + 300);
    }

    /// Processes that come to map the same while they are read one after the other.
    #[test]
    fn a_reading_that_was_overtaken_makes_no_sum() {
        let all = [1, 2].map(|pid| with(process(pid, 10 + pid as u64, 5), 0, 100));
        let before = all.map(|process| with(CurrentMemory { resident: 5 * MIB, ..process }, 0, 40));
        let rollups = [[5, 0, 100], [5, 0, 50]];
        let reading = |index: usize, asked: &CurrentMemory| {
            let read = read(all[index], rollups[index]);
            ProcessPss {
                is_steady: ProcessPss::new(
                    asked.question(),
                    &Rollup { rss: 105 << 10, anon: Some(5 << 10), ..Rollup::default() },
                    0,
                )
                .is_steady,
                ..read
            }
        };
        let overtaken = [reading(0, &all[0]), reading(1, &before[1])];
        assert_eq!(sum(&all, &overtaken), [110; 2], "as much as the one with the most");
        let steady = [reading(0, &all[0]), reading(1, &all[1])];
        assert_eq!(sum(&all, &steady), [160; 2]);
    }
}
