//! Memory of the tree, in which memory that processes share counts about once, and never more than there is: the newest
//! PSS shows how much each process shared, and that stays out until a later PSS shows something else.

use super::current_memory::{CurrentMemory, Resident};
use super::inheritance::Inheritance;
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
    inheritance: Inheritance,
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
        let inherited = self.inheritance.of(&self.forks, alive);
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

#[cfg(test)]
mod tests {
    use super::super::current_memory::Kinds;
    use super::*;
    use crate::job::Stat;

    const MIB: u64 = 1 << 20;

    /// A fork of process 1, or of another one, with so many MiB of anonymous memory.
    fn process(pid: i32, stack: u64, anon: u64) -> CurrentMemory {
        let stat = Stat { pid, stack, ..Stat::default() };
        CurrentMemory {
            image: stat.image(),
            parent: 1,
            is_fork: pid != 1,
            faulted: 0,
            resident: anon * MIB,
            most: anon * MIB,
            kinds: Some(Kinds { anon: anon * MIB, shmem: 0 }),
            swap: 0,
            hugetlb: 0,
        }
    }

    fn with(process: CurrentMemory, file: u64, shmem: u64) -> CurrentMemory {
        let kinds = Some(Kinds { anon: process.resident, shmem: shmem * MIB });
        let resident = process.resident + (file + shmem) * MIB;
        CurrentMemory { resident, kinds, most: process.most.max(resident), ..process }
    }

    /// Another program.
    fn program(process: CurrentMemory) -> CurrentMemory {
        CurrentMemory { is_fork: false, ..process }
    }

    fn rollup(process: &CurrentMemory, [anon, file, shmem]: [u64; 3]) -> Rollup {
        Rollup {
            rss: process.resident >> 10,
            pss: (anon + file + shmem) << 10,
            anon: Some(process.split().anon >> 10),
            kinds: Some((anon << 10, shmem << 10)),
            ..Rollup::default()
        }
    }

    fn read(process: CurrentMemory, pss: [u64; 3]) -> ProcessPss {
        let now = process.split();
        ProcessPss::new(process.image, now.file + now.shmem, &rollup(&process, pss), process.faulted)
    }

    fn counted(alive: &[CurrentMemory], readings: &[ProcessPss]) -> DeduplicatedMemory {
        MemoryDeduplicator::default().sum(alive.iter().copied(), readings)
    }

    /// What is resident, and what is needed.
    fn sum(alive: &[CurrentMemory], readings: &[ProcessPss]) -> [u64; 2] {
        let counted = counted(alive, readings);
        [counted.resident, counted.needed].map(|bytes| bytes / MIB)
    }

    #[test]
    fn what_was_not_shared_counts_when_it_grows() {
        let shell = with(process(1, 10, 1), 3, 0);
        let readings = [read(shell, [1, 1, 0])];
        assert_eq!(sum(&[shell], &readings), [4, 1], "as much as the largest");
        let grown = with(process(1, 10, 201), 3, 0);
        let other = program(with(process(2, 20, 2), 3, 0));
        assert_eq!(sum(&[grown, other], &readings), [206, 203], "both have the same files");
        assert_eq!(sum(&[program(process(1, 11, 204))], &readings), [204, 204], "it is another program now");
    }

    #[test]
    fn a_fork_shares_with_the_one_that_it_comes_from() {
        let parent = process(1, 10, 200);
        let workers = |mib: u64| [parent, process(2, 10, mib), process(3, 10, mib), program(process(4, 20, 30))];
        assert_eq!(sum(&workers(199), &[]), [230; 2], "a program that one of them became shares nothing");
        assert_eq!(sum(&workers(250), &[]), [330; 2]);
        let alone = read(parent, [200, 0, 0]);
        assert_eq!(sum(&workers(199), &[alone]), [230; 2], "the parent was read before");
        let readings =
            [read(parent, [67, 0, 0]), read(process(2, 10, 199), [66, 0, 0]), read(process(3, 10, 199), [66, 0, 0])];
        assert_eq!(sum(&workers(199), &readings), [67 + 66 + 66 + 30; 2]);
        assert_eq!(sum(&[parent], &readings), [200; 2], "the others have ended");
    }

    /// A program forks a trainer, which grows, and forks workers.
    #[test]
    fn a_fork_is_compared_with_its_parent_and_not_with_the_first() {
        let worker = |pid: i32| CurrentMemory { parent: 2, ..process(pid, 10, 1000) };
        let all = [process(1, 10, 100), process(2, 10, 1000), worker(3), worker(4)];
        assert_eq!(sum(&all, &[]), [1000; 2]);
        let readings = [read(all[0], [50, 0, 0]), read(process(2, 10, 100), [50, 0, 0])];
        assert_eq!(sum(&all, &readings), [50 + 950; 2]);
    }

    #[test]
    fn a_parent_that_gives_memory_back_had_it_when_it_forked() {
        let parent = CurrentMemory { resident: 10 * MIB, ..process(1, 10, 900) };
        assert_eq!(sum(&[parent, process(2, 10, 900), process(3, 10, 900)], &[]), [900; 2]);
        // And one that has ended had it as well.
        let [one, other] = [2, 3].map(|pid| CurrentMemory { parent: 7, ..process(pid, 10, 900) });
        assert_eq!(sum(&[one, other], &[]), [900; 2]);
        // What it cannot have been given is its own.
        let workers = [2, 3].map(|pid| CurrentMemory { most: 100 * MIB, ..process(pid, 10, 100) });
        let mut deduplicator = MemoryDeduplicator::default();
        let mut told = |workers: [CurrentMemory; 2]| {
            let alive = [parent, workers[0], workers[1]];
            deduplicator.sum(alive.into_iter(), &[]).resident / MIB
        };
        assert_eq!(told(workers), 100);
        assert_eq!(told([2, 3].map(|pid| process(pid, 10, 600))), 10 + 2 * 500);
        // What they come to have later is theirs.
        let mut deduplicator = MemoryDeduplicator::default();
        let mut told = |mib: u64| {
            let now = |process: CurrentMemory| CurrentMemory {
                resident: mib * MIB,
                kinds: Some(Kinds { anon: mib * MIB, shmem: 0 }),
                ..process
            };
            deduplicator.sum([now(one), now(other)].into_iter(), &[]).resident / MIB
        };
        assert_eq!([900, 950, 1200].map(&mut told), [900, 950, 1200]);
        assert_eq!(told(1900), 2 * 1000);
    }

    /// Workers that come to use more and more of the memory that they share.
    #[test]
    fn shared_memory_and_files_count_once_also_when_some_have_more_of_them() {
        let all = |shmem: u64| {
            [10, 11, 12, 13].map(|pid| {
                let size = if pid == 10 { 200 } else { shmem };
                with(CurrentMemory { parent: 10, is_fork: pid != 10, ..process(pid, 10, 5) }, 20, size)
            })
        };
        assert_eq!(sum(&all(0), &[]), [225, 205]);
        assert_eq!(sum(&all(200), &[]), [225, 205]);
        let readings = all(8).map(|process| read(process, [2, 5, if process.image.pid == 10 { 194 } else { 2 }]));
        for shmem in [8, 50, 200] {
            assert_eq!(sum(&all(shmem), &readings), [4 * 2 + 200 + 20, 4 * 2 + 200], "{shmem}");
        }
        // Segments that nobody else has.
        let own = [20, 21].map(|pid| program(with(process(pid, u64::from(pid.unsigned_abs()), 5), 20, 100)));
        let readings = own.map(|process| read(process, [5, 10, 100]));
        assert_eq!(sum(&own, &readings), [230, 210]);
    }

    #[test]
    fn an_old_kernel_does_not_tell_what_is_shared() {
        let shared = |rss, pss, anon| {
            let rollup = Rollup { rss, pss, anon, ..Rollup::default() };
            ProcessPss::new(process(1, 10, 0).image, u64::MAX, &rollup, 0)
        };
        let kinds = |reading: ProcessPss| (reading.shared.all() >> 10, reading.pss >> 10, reading.file >> 10);
        assert_eq!(kinds(shared(100, 60, Some(50))), (0, 60, 10), "files first");
        assert_eq!(kinds(shared(100, 30, Some(50))), (20, 30, 0));
        assert_eq!(kinds(shared(100, 30, None)), (70, 30, 0));
        assert_eq!(kinds(shared(0, 30, Some(7))), (0, 30, 30));
    }

    #[test]
    fn who_may_not_be_traced_shares_nothing() {
        assert_eq!(sum(&[process(1, 0, 100), process(2, 0, 50)], &[]), [150; 2]);
    }

    /// A parent and its workers write to what they had in common, or map and unmap other memory all the time: their faults
    /// do not tell which.
    #[test]
    fn copies_count_once_pss_shows_them() {
        let all = [1, 2, 3].map(|pid| process(pid, 10, 300));
        let readings = all.map(|process| read(process, [100, 0, 0]));
        let wrote = |mib: u64| all.map(|process| CurrentMemory { faulted: mib * MIB, ..process });
        let told = |mib: u64| {
            let counted = counted(&wrote(mib), &readings);
            [counted.resident, counted.needed, counted.doubtful].map(|bytes| bytes / MIB)
        };
        assert_eq!(told(0), [300, 300, 0]);
        assert_eq!(told(50), [300, 300, 150]);
        assert_eq!(told(5000), [300, 300, 600], "no more than is shared");
        assert_eq!(counted(&all[..2], &readings).doubtful / MIB, 400, "one that shared it has ended");
        let later = wrote(50).map(|process| read(process, [150, 0, 0]));
        assert_eq!(sum(&wrote(50), &later), [450; 2]);
        let grown = all.map(|process| with(CurrentMemory { resident: 370 * MIB, ..process }, 0, 0));
        assert_eq!(sum(&grown, &readings), [510; 2], "it is new memory");
    }

    #[test]
    fn what_is_not_there_any_more_does_not_count() {
        let before = with(process(1, 10, 5), 0, 1000);
        let readings = [read(before, [5, 0, 1000])];
        assert_eq!(sum(&[process(1, 10, 1005)], &readings), [1005; 2], "it has memory of another kind");
        assert_eq!(sum(&[process(1, 10, 5)], &readings), [5; 2]);
    }

    /// Many processes come at once or map more, and `status` is read of some.
    #[test]
    fn what_is_of_no_known_kind_counts_as_pages_of_files() {
        let server = with(process(1, 10, 5), 20, 8000);
        let unknown = |pid: i32| CurrentMemory { kinds: None, ..with(process(pid, 10, 6), 20, 8000) };
        assert_eq!(sum(&[server, unknown(2), unknown(3), program(unknown(4))], &[]), [8005 + 8026, 8005]);
        let workers = [2, 3, 4].map(|pid| {
            let worker = program(with(process(pid, 20 + pid as u64, 10), 30, 0));
            CurrentMemory { resident: worker.resident + 900 * MIB, ..worker }
        });
        assert_eq!(sum(&workers, &[]), [3 * 10 + 930, 30], "they walk through one file");
        // Nobody's kinds can ever be read.
        let hidden = [1, 2].map(|pid| program(CurrentMemory { kinds: None, ..process(pid, pid as u64, 100) }));
        assert_eq!(sum(&hidden, &[]), [200; 2]);
    }

    #[test]
    fn programs_whose_addresses_are_not_random_are_no_forks() {
        let ranks = [1, 2].map(|pid| program(process(pid, 10, 100)));
        assert_eq!(sum(&ranks, &[]), [200; 2]);
    }

    #[test]
    fn huge_pages_and_swap_count_once() {
        let all = [1, 2, 3].map(|pid| CurrentMemory {
            swap: 30 * MIB,
            hugetlb: 400 * MIB,
            most: 40 * MIB,
            ..process(pid, 10, 10)
        });
        let told = |all: &[CurrentMemory], readings: &[ProcessPss]| counted(all, readings).not_charged / MIB;
        assert_eq!(told(&all, &[]), 430, "they are forks");
        let strangers = all.map(program);
        assert_eq!(told(&strangers, &[]), 3 * 30 + 400, "they may have the same huge pages");
        let reading = |process: CurrentMemory| {
            let (swap, swap_pss) = (30 << 10, 10 << 10);
            let (private_hugetlb, shared_hugetlb) = (100 << 10, 300 << 10);
            let rollup = Rollup { swap, swap_pss, private_hugetlb, shared_hugetlb, ..Rollup::default() };
            ProcessPss::new(process.image, 0, &rollup, 0)
        };
        let readings = all.map(reading);
        assert_eq!(told(&all, &readings), 3 * 10 + 3 * 100 + 300);
        assert_eq!(told(&all[..2], &readings), 2 * 10 + 2 * 100 + 300);
        let more = all.map(|process| CurrentMemory { hugetlb: 650 * MIB, ..process });
        assert_eq!(told(&more, &readings), 3 * 10 + 650, "they come to use more of the same");
        assert_eq!(told(&more, &readings[..1]), 10 + 650);
        assert_eq!(counted(&all, &readings).needed / MIB, 3 * 10 + 630);
    }

    /// What processes share goes to swap, and comes back, after PSS was read.
    #[test]
    fn shared_memory_counts_once_wherever_it_is() {
        let all = [1, 2, 3, 4].map(|pid| process(pid, 10, 1000));
        let readings = all.map(|process| read(process, [250, 0, 0]));
        let swapped = all.map(|process| CurrentMemory {
            resident: 200 * MIB,
            kinds: Some(Kinds { anon: 200 * MIB, shmem: 0 }),
            swap: 800 * MIB,
            ..process
        });
        assert_eq!(sum(&swapped, &readings), [200, 4 * 250]);
        let one = [all[0], swapped[1], swapped[2], swapped[3]];
        assert_eq!(sum(&one, &readings)[1], 1000, "one has all of it back");
    }

    /// A process that was begun by `vfork` and has not run its program yet.
    #[test]
    fn two_processes_of_one_address_space_have_it_once() {
        let [one, other] = [1, 2].map(|pid| with(process(pid, 10, 300), 20, 0));
        let mut rollup = rollup(&other, [300, 20, 0]);
        assert!(rollup.shares_nothing());
        rollup.disown();
        let same = ProcessPss::new(other.image, u64::MAX, &rollup, 0);
        assert_eq!(sum(&[one, other], &[read(one, [300, 20, 0]), same]), [320, 300]);
    }

    /// Processes that come to map the same while they are read one after the other.
    #[test]
    fn a_process_that_overtook_its_reading_has_no_share() {
        let all = [1, 2].map(|pid| program(with(process(pid, 10 + pid as u64, 5), 0, 100)));
        let reading = |index: usize, before: u64, pss: u64| {
            ProcessPss::new(all[index].image, before * MIB, &rollup(&all[index], [5, 0, pss]), 0)
        };
        assert_eq!(sum(&all, &[reading(0, 100, 100), reading(1, 40, 50)]), [110; 2]);
        assert_eq!(sum(&all, &[reading(0, 100, 50), reading(1, 100, 50)]), [110; 2]);
        assert_eq!(sum(&all, &[reading(0, 100, 100), reading(1, 100, 100)]), [210; 2], "two segments");
    }
}
