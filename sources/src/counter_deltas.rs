//! By how much counters grew.

/// By how much the counters of a source grew since they were last read. It warns once when a counter starts again.
#[derive(Debug)]
pub(crate) struct CounterDeltas {
    source: &'static str,
    has_said: bool,
}

impl CounterDeltas {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, has_said: false }
    }

    /// By how much a counter of `device` grew; `None` when it fell, because its growth is not known then.
    pub(crate) fn of(&mut self, device: &str, now: u64, before: u64) -> Option<u64> {
        let gained = now.checked_sub(before);
        if gained.is_none() && !std::mem::replace(&mut self.has_said, true) {
            log::warn!(
                "source {}: a counter of {device} fell from {before} to {now}, so it began anew; what it counted \
                 meanwhile is left out",
                self.source
            );
        }
        gained
    }

    /// The same of a counter whose last value is kept in `before`: also `None` the first time, and where `now` is not
    /// known.
    pub(crate) fn since(&mut self, device: &str, now: Option<u64>, before: &mut Option<u64>) -> Option<u64> {
        let now = now?;
        self.of(device, now, before.replace(now)?)
    }

    #[cfg(test)]
    pub(crate) fn has_said(&self) -> bool {
        self.has_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_falls_has_gained_nobody_knows_what() {
        let mut deltas = CounterDeltas::new("test");
        assert_eq!((deltas.of("it", 7, 5), deltas.of("it", 7, 7), deltas.has_said()), (Some(2), Some(0), false));
        assert_eq!((deltas.of("it", 6, 7), deltas.has_said()), (None, true));
    }
}
