//! PSS of the tree, read rarely enough to stay within a budget, on a thread of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_core::background::Background;

use crate::job::JobDetails;
use crate::procfile::{folder_of_process, read_into};
use crate::scan::value_of;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pss {
    pub(super) kib: u64,
    rss_kib: u64,
    pub(super) age: Duration,
}

impl Pss {
    /// What it is of RSS.
    pub(super) fn share(&self) -> f64 {
        if self.rss_kib > 0 { (self.kib as f64 / self.rss_kib as f64).min(1.0) } else { 1.0 }
    }
}

pub(super) struct PssReader {
    procfs: PathBuf,
    /// Begun when it is first needed; the inner one is missing where there is no thread for it.
    reader: Option<Option<Background<Vec<i32>, Reading>>>,
    /// Share of time.
    budget: f64,
    asked: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    /// PSS and RSS of those who could be read, in KiB.
    sizes: Option<(u64, u64)>,
    took: Duration,
}

impl PssReader {
    pub(super) fn new(host: &Host, budget: f64) -> Self {
        Self { procfs: host.procfs.clone(), reader: None, budget, asked: None }
    }

    /// The newest reading, and a new one under way when the budget allows. `None` when all members have ended.
    pub(super) fn read(&mut self, job: &JobDetails, now: Instant) -> Option<Pss> {
        let alive = || job.alive().map(|member| member.stat.pid);
        alive().next()?;
        let Self { procfs, budget, .. } = self;
        let reader =
            self.reader.get_or_insert_with(|| if *budget > 0.0 { begin(procfs.clone()) } else { None }).as_ref()?;
        let answer = reader.answer();
        let pause = answer.map_or(0.0, |(reading, _)| reading.took.as_secs_f64() / self.budget);
        let rested = self.asked.is_none_or(|asked| now.saturating_duration_since(asked).as_secs_f64() >= pause);
        if rested && !reader.is_busy() {
            reader.ask(alive().collect());
            self.asked = Some(now);
        }
        let (reading, at) = answer?;
        let (kib, rss_kib) = reading.sizes?;
        Some(Pss { kib, rss_kib, age: now.saturating_duration_since(at) })
    }
}

fn begin(procfs: PathBuf) -> Option<Background<Vec<i32>, Reading>> {
    let mut buffer = Vec::new();
    let read = move |pids: Vec<i32>| {
        let start = Instant::now();
        let each = pids.into_iter().filter_map(|pid| sizes_of(&procfs, pid, &mut buffer));
        let sizes = each.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1));
        Reading { sizes, took: start.elapsed() }
    };
    Background::spawn("pss", read).ok()
}

fn sizes_of(procfs: &Path, pid: i32, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
    let path = folder_of_process(procfs, pid).join("smaps_rollup");
    let text = read_into(&path, buffer).ok()?;
    Some((value_of(text, "Pss")?, value_of(text, "Rss")?))
}
