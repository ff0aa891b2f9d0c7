//! What versions of the driver do differently.

/// Branch and release of the driver, such as 535 and 54; `None` where it does not tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver(Option<(u32, u32)>);

impl Driver {
    pub(super) fn new(version: Option<&str>) -> Self {
        let mut numbers = version.unwrap_or_default().split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Self(next().zip(next()))
    }

    /// Whether the third version of the lists of processes writes entries of 32 bytes, where it writes 24 before and
    /// after: more than its caller has room for. The second version is the same everywhere.
    pub(super) fn has_long_entries(self) -> bool {
        self.0.is_none_or(|version| ((535, 43)..(535, 98)).contains(&version))
    }

    /// Whether the lists have process ids of the caller's pid namespace, but the memory of other processes: of those
    /// that have these ids on the host.
    pub(super) fn mistakes_memory(self) -> bool {
        self.0.is_some_and(|version| ((535, 113)..(565, 57)).contains(&version))
    }

    /// Whether the lists are of the caller's pid namespace, in its numbers and with the memory of each.
    pub(super) fn translates_lists(self) -> bool {
        self.0.is_some_and(|version| version >= (565, 57))
    }

    /// Whether samples of use name processes as the lists do.
    pub(super) fn translates_samples(self) -> bool {
        self.0.is_some_and(|version| version >= (575, 57))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `nvml.h` changed from release to release of nvidia-settings, and `gpu_rmapi.c` and `kern_perf_ctrl.c` of the
    /// open kernel module.
    #[test]
    fn versions_of_the_driver() {
        let is_long = |version| Driver::new(Some(version)).has_long_entries();
        assert_eq!(["535.43.02", "535.54.03", "535.86.05"].map(is_long), [true; 3]);
        assert_eq!(["530.41.03", "535.98", "535.104.05", "470.57", "580.65.06"].map(is_long), [false; 5]);
        let mistakes = |version| Driver::new(Some(version)).mistakes_memory();
        assert_eq!(["535.104.05", "535.113.01", "560.35.03", "565.57.01"].map(mistakes), [false, true, true, false]);
        let lists = |version| Driver::new(Some(version)).translates_lists();
        assert_eq!(["535.104.05", "560.35.03", "565.57.01", "570.86.15"].map(lists), [false, false, true, true]);
        let samples = |version| Driver::new(Some(version)).translates_samples();
        assert_eq!(["570.86.15", "575.51.02", "575.57.08", "580.65.06"].map(samples), [false, false, true, true]);
        for unknown in [None, Some(""), Some("535"), Some("R535 U1")] {
            let driver = Driver::new(unknown);
            assert!(driver.has_long_entries() && !driver.mistakes_memory());
            assert!(!driver.translates_lists() && !driver.translates_samples());
        }
    }
}
