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
