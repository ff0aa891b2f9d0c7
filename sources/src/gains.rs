//! What counters gained.

/// What the counters of a source gained since they were read before. That one of them began anew is said once.
#[derive(Debug)]
pub(crate) struct Gains {
    source: &'static str,
    has_said: bool,
}

impl Gains {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, has_said: false }
    }

    /// What a counter of `device` gained; `None` when it fell, because then nobody knows.
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

    /// The same of one whose last value is kept: `None` as well the first time, and where it is not known now.
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
        let mut gains = Gains::new("test");
        assert_eq!((gains.of("it", 7, 5), gains.of("it", 7, 7), gains.has_said()), (Some(2), Some(0), false));
        assert_eq!((gains.of("it", 6, 7), gains.has_said()), (None, true));
    }
}
