//! Memory of the tree in which what some share counts once. PSS tells it, read rarely enough to stay within a budget, on a thread of
//! its own; at a tick it follows from what each process has by now.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_core::background::Background;

use crate::job::{Image, JobDetails};
use crate::procfile::{folder_of_process, read_into};
use crate::scan::value_of;

pub(super) struct PssReader {
    procfs: PathBuf,
    /// Begun when it is first needed; the inner one is missing where there is no thread for it.
    reader: Option<Option<Background<Vec<Image>, Reading>>>,
    /// Share of time.
    budget: f64,
    asked: Option<Instant>,
    newest: Option<(Reading, Instant)>,
    counted_once: CountedOnce,
}

#[derive(Debug, Clone)]
struct Reading {
    /// Of those who could be read, in order.
    sizes: Arc<[Size]>,
    took: Duration,
}

/// What a process had when it was read.
#[derive(Debug, Clone, Copy)]
struct Size {
    image: Image,
    pss_kib: u64,
    rss_kib: u64,
}

impl PssReader {
    pub(super) fn new(host: &Host, budget: f64) -> Self {
        let procfs = host.procfs.clone();
        Self { procfs, reader: None, budget, asked: None, newest: None, counted_once: CountedOnce::default() }
    }

    /// Takes over the newest reading, and has a new one made when the budget allows.
    pub(super) fn refresh(&mut self, job: &JobDetails, now: Instant) {
        let alive = || job.alive().map(|member| member.stat.image());
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

    /// The sum of the newest reading, in KiB, and its age. `None` when nobody could be read.
    pub(super) fn newest(&self, now: Instant) -> Option<(u64, Duration)> {
        let (reading, at) = self.newest.as_ref().filter(|(reading, _)| !reading.sizes.is_empty())?;
        Some((reading.sizes.iter().map(|size| size.pss_kib).sum(), now.saturating_duration_since(*at)))
    }

    /// What the living have resident now, in bytes, where what some share counts about once.
    pub(super) fn resident(&mut self, job: &JobDetails) -> u64 {
        let page = rustix::param::page_size() as u64;
        let living = job.alive().map(|member| (member.stat.image(), member.stat.rss.saturating_mul(page)));
        let sizes = self.newest.as_ref().map_or(&[][..], |(reading, _)| &reading.sizes);
        self.counted_once.sum(living, sizes)
    }
}

/// Room that is kept from tick to tick.
#[derive(Default)]
struct CountedOnce {
    /// Those that were not read yet.
    unread: Vec<(Image, u64)>,
    /// The first process with a stack there.
    first: HashMap<u64, (Image, u64)>,
}

impl CountedOnce {
    /// Of a process that was read it is known how much it shared then; the rest of what it has is its own. One that was forked since
    /// has what it has more than the one that it comes from, as long as it is the same program. Nobody shares anything with
    /// himself: all have as much as the largest. The living are given as bytes that are resident, parents before their children.
    fn sum(&mut self, living: impl Iterator<Item = (Image, u64)> + Clone, sizes: &[Size]) -> u64 {
        let Self { unread, first } = self;
        let (mut sum, mut largest) = (0_u64, 0);
        unread.clear();
        for (image, rss) in living.clone() {
            largest = rss.max(largest);
            match sizes.binary_search_by_key(&image, |size| size.image) {
                Ok(index) => sum = sum.saturating_add(rss.saturating_sub(sizes[index].shared())),
                Err(_) => unread.push((image, rss)),
            }
        }
        if !unread.is_empty() {
            first.clear();
            living.for_each(|(image, rss)| _ = first.entry(image.stack).or_insert((image, rss)));
        }
        let own = |(image, rss): &(Image, u64)| match first.get(&image.stack) {
            Some((origin, shared)) if image.stack != 0 && origin != image => rss.saturating_sub(*shared),
            _ => *rss,
        };
        unread.iter().map(own).fold(sum, u64::saturating_add).max(largest)
    }
}

impl Size {
    /// In bytes.
    fn shared(&self) -> u64 {
        self.rss_kib.saturating_sub(self.pss_kib).saturating_mul(1024)
    }
}

fn begin(procfs: PathBuf) -> Option<Background<Vec<Image>, Reading>> {
    let mut buffer = Vec::new();
    let read = move |images: Vec<Image>| {
        let start = Instant::now();
        let mut sizes: Vec<Size> =
            images.into_iter().filter_map(|image| size_of(&procfs, image, &mut buffer)).collect();
        sizes.sort_unstable_by_key(|size| size.image);
        Reading { sizes: sizes.into(), took: start.elapsed() }
    };
    Background::spawn("pss", read).ok()
}

fn size_of(procfs: &Path, image: Image, buffer: &mut Vec<u8>) -> Option<Size> {
    let path = folder_of_process(procfs, image.pid).join("smaps_rollup");
    let text = read_into(&path, buffer).ok()?;
    Some(Size { image, pss_kib: value_of(text, "Pss")?, rss_kib: value_of(text, "Rss")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Stat;

    const MIB: u64 = 1 << 20;

    /// A process of a program, which has so many MiB.
    fn process(pid: i32, stack: u64, mib: u64) -> (Image, u64) {
        let stat = Stat { pid, stack, ..Stat::default() };
        (stat.image(), mib * MIB)
    }

    fn read(process: (Image, u64), pss_mib: u64) -> Size {
        let (image, bytes) = process;
        Size { image, pss_kib: pss_mib << 10, rss_kib: bytes >> 10 }
    }

    fn sum(living: &[(Image, u64)], sizes: &[Size]) -> u64 {
        CountedOnce::default().sum(living.iter().copied(), sizes) / MIB
    }

    #[test]
    fn what_was_not_shared_counts_when_it_grows() {
        let shell = read(process(1, 10, 4), 1);
        assert_eq!(sum(&[process(1, 10, 4)], &[shell]), 4, "as much as the largest");
        assert_eq!(sum(&[process(1, 10, 204), process(2, 20, 4)], &[shell]), 205);
        assert_eq!(sum(&[process(1, 11, 204)], &[shell]), 204, "it is another program now");
    }

    #[test]
    fn a_fork_shares_with_the_one_that_it_comes_from() {
        let parent = process(1, 10, 200);
        let workers = |mib: u64| [parent, process(2, 10, mib), process(3, 10, mib), process(4, 20, 30)];
        assert_eq!(sum(&workers(199), &[]), 230, "a program that one of them became shares nothing");
        assert_eq!(sum(&workers(250), &[]), 330);
        let alone = read(parent, 200);
        assert_eq!(sum(&workers(199), &[alone]), 230, "the parent was read before");
        let sizes = [read(parent, 67), read(process(2, 10, 199), 66), read(process(3, 10, 199), 66)];
        assert_eq!(sum(&workers(199), &sizes), 67 + 66 + 66 + 30);
        assert_eq!(sum(&[parent], &sizes), 200, "the others have ended");
    }

    #[test]
    fn who_may_not_be_traced_shares_nothing() {
        assert_eq!(sum(&[process(1, 0, 100), process(2, 0, 50)], &[]), 150);
    }
}
