//! Who shares how much memory with whom: PSS, read rarely enough to stay within a budget, on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_core::background::Background;
use rustix::param::page_size;

use super::counted_once::{DeduplicatedMemory, MemoryDeduplicator, ProcessPss, Rollup};
use super::current_memory::CurrentMemory;
use crate::job::{Image, JobDetails, Stat, folder_of_process};
use crate::procfile::read_into;
use resource_tracker_scan::{number, value_of, words};

pub(super) struct PssReader {
    procfs: PathBuf,
    /// Begun when it is first needed; the inner one is missing where there is no thread for it.
    reader: Option<Option<Background<Vec<Image>, Reading>>>,
    budget: Budget,
    newest: Option<(Reading, Instant)>,
    deduplicator: MemoryDeduplicator,
    /// Whether memory that was shared may be copies by now.
    is_doubtful: bool,
}

#[derive(Debug, Clone)]
struct Reading {
    /// Of those who could be read, in order.
    sizes: Arc<[ProcessPss]>,
    took: Duration,
}

/// How much time readings may take. Half of it is for readings when something has changed, and is saved until then.
struct Budget {
    /// Share of time.
    share: f64,
    began: Option<Instant>,
    asked: Option<Instant>,
    spent: Duration,
    last: Duration,
}

impl Budget {
    /// Readings may take so much in any run.
    const ALWAYS: Duration = Duration::from_millis(10);

    fn spend(&mut self, took: Duration) {
        self.spent += took;
        self.last = took;
    }

    /// Whether there is time for one more reading, which may take as long as the last one.
    fn allows(&self, now: Instant, is_urgent: bool) -> bool {
        let Some((began, asked)) = self.began.zip(self.asked) else { return true };
        let earned = |since: Instant| now.saturating_duration_since(since).as_secs_f64() * self.share;
        match is_urgent {
            true => (self.spent + self.last).saturating_sub(Self::ALWAYS).as_secs_f64() <= earned(began),
            false => 2.0 * self.last.as_secs_f64() <= earned(asked),
        }
    }
}

impl PssReader {
    /// `budget`: the share of time that reading may take.
    pub(super) fn new(host: &Host, budget: f64) -> Self {
        let none = Duration::ZERO;
        Self {
            procfs: host.procfs.clone(),
            reader: None,
            budget: Budget { share: budget, began: None, asked: None, spent: none, last: none },
            newest: None,
            deduplicator: MemoryDeduplicator::default(),
            is_doubtful: false,
        }
    }

    /// Takes over the newest reading, and has a new one made when the budget allows.
    pub(super) fn refresh(&mut self, job: &JobDetails, now: Instant) {
        let Self { procfs, budget, .. } = self;
        let reader = self.reader.get_or_insert_with(|| if budget.share > 0.0 { begin(procfs.clone()) } else { None });
        let Some(reader) = reader else { return };
        let before = self.newest.as_ref().map(|(_, at)| *at);
        self.newest = reader.answer();
        if let Some((reading, _)) = self.newest.as_ref().filter(|(_, at)| Some(*at) != before) {
            budget.spend(reading.took);
        }
        if !reader.is_busy() && budget.allows(now, self.is_doubtful) {
            reader.ask(alive(job).map(|process| process.image).collect());
            budget.began.get_or_insert(now);
            budget.asked = Some(now);
        }
    }

    /// How old the newest reading is. `None` when nobody could be read.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        let (_, at) = self.newest.as_ref().filter(|(reading, _)| !reading.sizes.is_empty())?;
        Some(now.saturating_duration_since(*at))
    }

    /// What the living have now, where what some share counts about once.
    pub(super) fn counted_once(&mut self, job: &JobDetails) -> DeduplicatedMemory {
        let sizes = self.newest.as_ref().map_or(&[][..], |(reading, _)| &reading.sizes);
        let counted = self.deduplicator.sum(alive(job), sizes);
        self.is_doubtful = counted.doubtful > counted.resident / DOUBT;
        counted
    }
}

/// So large a part of the memory may be in doubt before it is read sooner.
const DOUBT: u64 = 50;

fn alive(job: &JobDetails) -> impl Iterator<Item = CurrentMemory> + Clone {
    let page = page_size() as u64;
    job.alive().map(move |member| CurrentMemory::new(member, page))
}

fn begin(procfs: PathBuf) -> Option<Background<Vec<Image>, Reading>> {
    let mut buffer = Vec::new();
    let read = move |images: Vec<Image>| {
        let start = Instant::now();
        // All of these first: what is written or mapped from here on can be in no reading, or in several.
        let questions = images.into_iter().filter_map(|image| Question::of(&procfs, image, &mut buffer));
        let questions: Vec<Question> = questions.collect();
        let mut spaces = Vec::new();
        let sizes = questions.iter().filter_map(|question| {
            let Question { image, is_fork, folder, faulted, mapped } = question;
            let mut rollup = rollup(read_into(&folder.join("smaps_rollup"), &mut buffer).ok()?)?;
            if rollup.swap > 0 {
                // `Swap` counts shared memory as well; `SwapPss` and this one do not.
                let status = read_into(&folder.join("status"), &mut buffer).ok()?;
                rollup.swap = rollup.swap.min(value_of(status, "VmSwap").unwrap_or(0));
            }
            // Processes that have one address space (`vfork`, or `CLONE_VM`) have nothing apart: PSS knows only that space.
            let space = (image.stack, rollup.rss, rollup.pss);
            match rollup.shares_nothing() {
                true if *is_fork && spaces.contains(&space) => rollup.disown(),
                true => spaces.push(space),
                false => (),
            }
            Some(ProcessPss::new(*image, *mapped, &rollup, *faulted))
        });
        let mut sizes: Vec<ProcessPss> = sizes.collect();
        sizes.sort_unstable_by_key(ProcessPss::image);
        Reading { sizes: sizes.into(), took: start.elapsed() }
    };
    Background::spawn("pss", read).ok()
}

/// A process that is about to be read.
struct Question {
    image: Image,
    is_fork: bool,
    folder: PathBuf,
    /// What its minor faults can have made private or new, and its pages of files and shared memory, in bytes.
    faulted: u64,
    mapped: u64,
}

impl Question {
    fn of(procfs: &Path, image: Image, buffer: &mut Vec<u8>) -> Option<Self> {
        let folder = procfs.join(image.pid.to_string());
        let stat = Stat::parse(read_into(&folder.join("stat"), buffer).ok()?).filter(|stat| stat.image() == image)?;
        let folder = if stat.has_lost_leader() { folder_of_process(procfs, image.pid) } else { folder };
        let shared: u64 = words(read_into(&folder.join("statm"), buffer).ok()?).nth(2).and_then(number)?;
        let bytes = |pages: u64| pages.saturating_mul(page_size() as u64);
        let (faulted, mapped) = (bytes(stat.minor_faults), bytes(shared));
        Some(Self { image, is_fork: stat.is_fork, folder, faulted, mapped })
    }
}

fn rollup(text: &[u8]) -> Option<Rollup> {
    let kib = |name| value_of(text, name);
    Some(Rollup {
        rss: kib("Rss")?,
        pss: kib("Pss")?,
        anon: kib("Anonymous"),
        kinds: kib("Pss_Anon").zip(kib("Pss_Shmem")),
        swap: kib("Swap").unwrap_or(0),
        swap_pss: kib("SwapPss").or(kib("Swap")).unwrap_or(0),
        private_hugetlb: kib("Private_Hugetlb").unwrap_or(0),
        shared_hugetlb: kib("Shared_Hugetlb").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_budget_is_kept_for_what_changes() {
        let start = Instant::now();
        let (ms, at) = (Duration::from_millis, |secs: f64| start + Duration::from_secs_f64(secs));
        let mut budget = Budget { share: 0.01, began: None, asked: None, spent: ms(0), last: ms(0) };
        assert!(budget.allows(start, false), "the first one");
        (budget.began, budget.asked) = (Some(start), Some(start));
        budget.spend(ms(50));
        assert!(!budget.allows(at(8.9), true) && budget.allows(at(9.1), true), "50 ms and as much again, less 10");
        assert!(!budget.allows(at(9.9), false) && budget.allows(at(10.1), false));
        // Nothing changed for a while.
        for second in 1..100 {
            budget.asked = Some(at(f64::from(second) * 10.0));
            budget.spend(ms(50));
        }
        assert!(!budget.allows(at(992.0), false) && budget.allows(at(992.0), true));
    }

    #[test]
    fn what_is_read_of_a_process() {
        let text = b"55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:   2000 kB\nPss:   900 kB\nPss_Anon: 500 kB\n\
            Pss_File: 300 kB\nPss_Shmem: 100 kB\nAnonymous: 1000 kB\nSwap: 8 kB\nSwapPss: 4 kB\n\
            Shared_Hugetlb: 2048 kB\nPrivate_Hugetlb: 4096 kB\n";
        let read = rollup(text).unwrap();
        assert_eq!((read.rss, read.pss, read.anon, read.kinds), (2000, 900, Some(1000), Some((500, 100))));
        assert_eq!((read.swap, read.swap_pss), (8, 4));
        assert_eq!((read.shared_hugetlb, read.private_hugetlb), (2048, 4096));
        assert!(rollup(b"Rss: 3 kB\n").is_none());
    }
}
