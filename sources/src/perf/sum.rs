//! Events, counted for each thread that was there, and for all that these start.

use std::collections::BTreeSet;
use std::io;

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, CountAndTime, Counter};

use super::pmu::Pmu;

/// The threads whose events are counted.
pub(super) struct Events<'a> {
    threads: &'a BTreeSet<i32>,
    /// Whether work in the kernel is left out.
    pub(super) user_only: bool,
}

impl<'a> Events<'a> {
    pub(super) fn of(threads: &'a BTreeSet<i32>) -> Self {
        let whole = Self { threads, user_only: false };
        let mut opened = threads.iter().map(|tid| whole.event(Software::TASK_CLOCK, None, *tid).build());
        let can = opened.find(|opened| !opened.as_ref().is_err_and(has_ended)).is_none_or(|opened| opened.is_ok());
        Self { user_only: !can, ..whole }
    }

    fn event(&self, event: impl Event, pmu: Option<&Pmu>, tid: i32) -> Builder<'static> {
        let mut builder = Builder::new(event);
        // `PERF_PMU_TYPE_SHIFT`
        builder.attrs_mut().config |= pmu.map_or(0, |pmu| u64::from(pmu.number) << 32);
        builder.observe_pid(tid).any_cpu().inherit(true).exclude_kernel(self.user_only).enabled(true);
        builder
    }

    /// Calls `open` for each thread and PMU. A thread that has ended has nothing to be counted.
    fn each<T>(&self, pmus: &[Pmu], open: impl Fn(Option<&Pmu>, i32) -> io::Result<T>) -> io::Result<Vec<T>> {
        let pmus: Vec<Option<&Pmu>> = if pmus.is_empty() { vec![None] } else { pmus.iter().map(Some).collect() };
        let all = self.threads.iter().flat_map(|tid| pmus.iter().map(|pmu| (*pmu, *tid)));
        let opened = all.map(|(pmu, tid)| open(pmu, tid)).filter(|opened| !opened.as_ref().is_err_and(has_ended));
        let opened = opened.collect::<io::Result<Vec<T>>>()?;
        if opened.is_empty() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(opened) }
    }
}

/// Whether there is no such thread any more.
pub(super) fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// One event.
pub(super) struct Sum {
    /// The error is that of a thread that is there and cannot be counted: the sum would be of some threads only.
    counters: io::Result<Vec<Counter>>,
    /// How many of them have the time of one thread.
    pmus: u64,
    before: Counted,
}

impl Sum {
    pub(super) fn open(events: &Events, pmus: &[Pmu], event: impl Event + Clone) -> Self {
        Self::new(events.each(pmus, |pmu, tid| events.event(event.clone(), pmu, tid).build()), pmus)
    }

    fn new(counters: io::Result<Vec<Counter>>, pmus: &[Pmu]) -> Self {
        Self { counters, pmus: pmus.len().max(1) as u64, before: Counted::default() }
    }

    pub(super) fn error(&self) -> Option<&io::Error> {
        self.counters.as_ref().err()
    }

    /// For how long the threads had run when it was read last, in nanoseconds, if all of them are counted.
    pub(super) fn enabled(&self) -> Option<u64> {
        self.counters.as_ref().ok().map(|_| self.before.enabled / self.pmus)
    }

    /// What was added since the last time; `None` when a part of the sum cannot be read, or nothing of it was counted.
    pub(super) fn read(&mut self) -> Option<u64> {
        self.advance()?.whole(self.pmus)
    }

    fn advance(&mut self) -> Option<Counted> {
        let mut counts = self.counters.as_mut().ok()?.iter_mut().map(|counter| counter.read_count_and_time().ok());
        let now = counts.try_fold(Counted::default(), |sum, read| Some(sum.and(&read?)))?;
        Some(now.since(&std::mem::replace(&mut self.before, now)))
    }
}

/// Cycles, and the instructions of the same cycles: both are counted at the same times or not at all.
pub(super) struct Cycles {
    cycles: Sum,
    instructions: Sum,
}

impl Cycles {
    pub(super) fn open(events: &Events, pmus: &[Pmu]) -> Self {
        let pairs = events.each(pmus, |pmu, tid| {
            let mut cycles = events.event(Hardware::CPU_CYCLES, pmu, tid).build()?;
            let instructions = events.event(Hardware::INSTRUCTIONS, pmu, tid).build_with_group(&mut cycles)?;
            Ok((cycles, instructions))
        });
        let (cycles, instructions) = match pairs.map(|pairs| pairs.into_iter().unzip()) {
            Ok((cycles, instructions)) => (Ok(cycles), Ok(instructions)),
            Err(error) => (Err(error.kind().into()), Err(error)),
        };
        Self { cycles: Sum::new(cycles, pmus), instructions: Sum::new(instructions, pmus) }
    }

    pub(super) fn error(&self) -> Option<&io::Error> {
        self.instructions.error()
    }

    /// Cycles, instructions, and instructions per cycle.
    pub(super) fn read(&mut self) -> (Option<u64>, Option<u64>, Option<f64>) {
        let (cycles, instructions) = (self.cycles.advance(), self.instructions.advance());
        let whole = |sum: &Sum, counted: Option<Counted>| counted.and_then(|counted| counted.whole(sum.pmus));
        let ipc = cycles.zip(instructions).and_then(|(cycles, instructions)| {
            (cycles.count > 0).then(|| instructions.count as f64 / cycles.count as f64)
        });
        (whole(&self.cycles, cycles), whole(&self.instructions, instructions), ipc)
    }
}

/// What counters have counted, how long their threads ran, and how long of that they were counted: those that share a
/// register take turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counted {
    count: u64,
    enabled: u64,
    running: u64,
}

impl Counted {
    fn and(self, read: &CountAndTime) -> Self {
        Self {
            count: self.count.saturating_add(read.count),
            enabled: self.enabled.saturating_add(read.time_enabled),
            running: self.running.saturating_add(read.time_running),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            enabled: self.enabled.saturating_sub(before.enabled),
            running: self.running.saturating_sub(before.running),
        }
    }

    /// The count as if every thread had been counted the whole time, which each of its PMUs tells. `None` when threads ran, and
    /// none of that was counted.
    fn whole(&self, pmus: u64) -> Option<u64> {
        let enabled = self.enabled / pmus;
        match self.running {
            0 => (enabled == 0).then_some(0),
            running => u64::try_from(u128::from(self.count) * u128::from(enabled) / u128::from(running)).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(count: u64, enabled: u64, running: u64) -> Counted {
        Counted { count, enabled, running }
    }

    #[test]
    fn a_count_is_scaled_to_the_time_that_threads_ran_meanwhile() {
        let before = counted(1000, 50, 10);
        let until = |now: Counted| now.since(&before).whole(1);
        // It was counted the whole time now, which a share of all the time so far would not say.
        assert_eq!(until(counted(1600, 110, 70)), Some(600));
        assert_eq!(until(counted(1600, 110, 30)), Some(1800), "a third of it");
        assert_eq!(until(counted(1000, 110, 10)), None, "the others had their turn");
        assert_eq!(until(before), Some(0), "nobody ran");
        assert_eq!(until(counted(0, 0, 0)), Some(0), "what goes back is no count");
    }

    /// A thread that ran for 100, of which 30 on a fast core and 70 on a frugal one.
    #[test]
    fn cores_of_two_kinds_share_the_time_of_a_thread() {
        let [fast, frugal] = [counted(900, 100, 30), counted(700, 100, 70)];
        let both = counted(fast.count + frugal.count, fast.enabled + frugal.enabled, fast.running + frugal.running);
        assert_eq!(both.whole(2), Some(1600), "nothing is guessed");
        assert_eq!(counted(800, 200, 50).whole(2), Some(1600), "they were counted half of the time");
    }

    /// A thread that has ended is no part of it; one that is there and cannot be counted is.
    #[test]
    fn a_sum_with_a_part_that_is_missing_is_null() {
        let own = BTreeSet::from([std::process::id() as i32]);
        let open = |threads: &BTreeSet<i32>| Sum::open(&Events { threads, user_only: true }, &[], Software::TASK_CLOCK);
        let mut sum = open(&own);
        if sum.error().is_some() {
            eprintln!("skipped: perf events are not permitted here");
            return;
        }
        assert!(sum.read().is_some());
        let gone = BTreeSet::from([own.first().copied().unwrap(), 1 << 23]);
        assert!(open(&gone).read().is_some(), "a thread that has ended");
        assert_eq!(open(&BTreeSet::from([1 << 23])).read(), None);
        sum.counters = Err(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(sum.read(), None, "there was no descriptor for one more");
    }
}
