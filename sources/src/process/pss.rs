//! Who shares how much memory with whom: PSS, read rarely enough to stay within a budget, on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_core::background::Background;

use super::counted_once::{CurrentMemory, DeduplicatedMemory, MemoryDeduplicator, ProcessPss, PssQuestion, Rollup};
use crate::job::{JobDetails, Stat};
use crate::procfile::{folder_of_process, read_into};
use crate::scan::value_of;

pub(super) struct PssReader {
    procfs: PathBuf,
    /// Begun when it is first needed; the inner one is missing where there is no thread for it.
    reader: Option<Option<Background<Vec<PssQuestion>, Reading>>>,
    /// Share of time.
    budget: f64,
    asked: Option<Instant>,
    newest: Option<(Reading, Instant)>,
    deduplicator: MemoryDeduplicator,
}

#[derive(Debug, Clone)]
struct Reading {
    /// Of those who could be read, in order.
    sizes: Arc<[ProcessPss]>,
    took: Duration,
}

impl PssReader {
    pub(super) fn new(host: &Host, budget: f64) -> Self {
        let procfs = host.procfs.clone();
        Self { procfs, reader: None, budget, asked: None, newest: None, deduplicator: MemoryDeduplicator::default() }
    }

    /// Takes over the newest reading, and has a new one made when the budget allows.
    pub(super) fn refresh(&mut self, job: &JobDetails, now: Instant) {
        let alive = || alive(job).map(|process| process.question());
        let Self { procfs, budget, .. } = self;
        let reader = self.reader.get_or_insert_with(|| if *budget > 0.0 { begin(procfs.clone()) } else { None });
        let Some(reader) = reader else { return };
        self.newest = reader.answer();
        let pause = self.newest.as_ref().map_or(0.0, |(reading, _)| reading.took.as_secs_f64() / self.budget);
        let rested = self.asked.is_none_or(|asked| now.saturating_duration_since(asked).as_secs_f64() >= pause);
        if rested && !reader.is_busy() {
            reader.ask(alive().collect());
            self.asked = Some(now);
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
        self.deduplicator.sum(alive(job), sizes)
    }
}

fn alive(job: &JobDetails) -> impl Iterator<Item = CurrentMemory> + Clone {
    let page = rustix::param::page_size() as u64;
    job.alive().map(move |member| CurrentMemory::new(member, page))
}

fn begin(procfs: PathBuf) -> Option<Background<Vec<PssQuestion>, Reading>> {
    let mut buffer = Vec::new();
    let read = move |questions: Vec<PssQuestion>| {
        let start = Instant::now();
        let mut sizes: Vec<ProcessPss> =
            questions.into_iter().filter_map(|question| size_of(&procfs, question, &mut buffer)).collect();
        sizes.sort_unstable_by_key(ProcessPss::image);
        Reading { sizes: sizes.into(), took: start.elapsed() }
    };
    Background::spawn("pss", read).ok()
}

fn size_of(procfs: &Path, question: PssQuestion, buffer: &mut Vec<u8>) -> Option<ProcessPss> {
    let path = folder_of_process(procfs, question.image.pid).join("smaps_rollup");
    let text = read_into(&path, buffer).ok()?;
    let kib = |name| value_of(text, name);
    let rollup = Rollup {
        rss: kib("Rss")?,
        pss: kib("Pss")?,
        anon: kib("Anonymous"),
        kinds: kib("Pss_Anon").zip(kib("Pss_Shmem")),
        swap: kib("Swap").unwrap_or(0),
        swap_pss: kib("SwapPss").or(kib("Swap")).unwrap_or(0),
        shared_hugetlb: kib("Shared_Hugetlb").unwrap_or(0),
    };
    let stat = Stat::parse(read_into(&procfs.join(format!("{}/stat", question.image.pid)), buffer).ok()?)?;
    let faulted = stat.minor_faults.saturating_mul(rustix::param::page_size() as u64);
    Some(ProcessPss::new(question, &rollup, faulted))
}
