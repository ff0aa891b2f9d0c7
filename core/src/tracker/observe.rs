//! The first stage of a tick: what is seen of the job.

use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::observer::{Moment, Observation, ObservedJob, Observer};
use crate::source::Tick;

/// Asks the observer of a run, if it has one.
pub(super) struct ObserverRunner {
    guard: Guard,
    observer: Option<Box<dyn Observer>>,
    /// When it last succeeded.
    last_observed: Option<Instant>,
}

impl ObserverRunner {
    pub(super) fn new(observer: Option<Box<dyn Observer>>) -> Self {
        Self { guard: Guard::new("observer of the job".into()), observer, last_observed: None }
    }

    /// What the sources are to see at this moment, whose `elapsed` is not known yet.
    pub(super) fn observe(&mut self, moment: Moment) -> Tick<'_> {
        Tick::of(&moment, self.look(moment))
    }

    fn look(&mut self, moment: Moment) -> Observation<'_> {
        let Self { guard, observer: Some(observer), last_observed } = self else { return Observation::default() };
        let elapsed = last_observed.map_or(Duration::ZERO, |last| moment.at.saturating_duration_since(last));
        let is_observed = guard.call(moment.at, || observer.observe(&Moment { elapsed, ..moment })).is_some();
        if is_observed {
            *last_observed = Some(moment.at);
        }
        // Nothing if it panicked: its state may be inconsistent.
        let seen = guard.run(|| observer.seen()).unwrap_or_default();
        match is_observed {
            true => seen,
            false => Observation { processes: None, job: seen.job.map(ObservedJob::without_details) },
        }
    }
}

impl Drop for ObserverRunner {
    fn drop(&mut self) {
        self.guard.end(self.observer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it was told of; fails and panics at these moments.
    #[derive(Default)]
    struct Counts {
        elapsed: Duration,
        members: Vec<i32>,
        fails: Vec<u64>,
        panics: Option<u64>,
        /// What it has seen cannot be told then.
        shows_no: Option<usize>,
    }

    impl Observer for Counts {
        fn observe(&mut self, moment: &Moment) -> anyhow::Result<()> {
            anyhow::ensure!(!self.fails.contains(&moment.number), "not now");
            if self.panics == Some(moment.number) {
                std::panic::panic_any("broken");
            }
            self.elapsed = moment.elapsed;
            self.members.push(moment.number as i32);
            Ok(())
        }

        fn seen(&self) -> Observation<'_> {
            if self.shows_no == Some(self.members.len()) {
                std::panic::panic_any("broken");
            }
            let job = ObservedJob::new(7, true, &self.members).with_details(&self.elapsed);
            Observation { processes: Some(&[1, 7]), job: Some(job) }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn moment(number: u64, start: Instant) -> Moment {
        let at = start + SECOND * number as u32;
        Moment { number, at, elapsed: Duration::ZERO, interval: SECOND, last: false, missed: 0 }
    }

    #[test]
    fn what_could_not_be_observed_is_as_it_was_and_has_no_details() {
        let mut runner = ObserverRunner::new(Some(Box::new(Counts { fails: vec![2], ..Counts::default() })));
        let start = Instant::now();
        let mut seen = |number| {
            let tick = runner.observe(moment(number, start));
            let job = tick.job.unwrap();
            (tick.processes.is_some(), job.members.len(), job.details::<Duration>().copied())
        };
        assert_eq!(seen(0), (true, 1, Some(Duration::ZERO)));
        assert_eq!(seen(1), (true, 2, Some(SECOND)));
        assert_eq!(seen(2), (false, 2, None));
        assert_eq!(seen(3), (true, 3, Some(SECOND * 2)), "both intervals");
    }

    #[test]
    fn after_a_panic_there_is_no_job() {
        let start = Instant::now();
        let panics = Counts { panics: Some(1), ..Counts::default() };
        for observer in [panics, Counts { shows_no: Some(2), ..Counts::default() }] {
            let mut runner = ObserverRunner::new(Some(Box::new(observer)));
            let mut has_job = |number| runner.observe(moment(number, start)).job.is_some();
            assert_eq!([0, 1, 2].map(&mut has_job), [true, false, false]);
        }
        assert!(ObserverRunner::new(None).observe(moment(0, start)).job.is_none());
    }

    #[test]
    fn details_are_for_those_who_know_their_type() {
        let details = 7u64;
        let job = ObservedJob::new(1, false, &[]).with_details(&details);
        assert_eq!((job.details::<u64>(), job.details::<u32>()), (Some(&7), None));
    }
}
