//! The mark that tells children that this program forks, including those of plugins and libraries, from orphans of the
//! command: a soft `RLIMIT_RSS` that no other process has.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The mark lies below this number: it is more memory than a process ever has, so the limit is harmless even if it is
/// enforced.
const CEILING: u64 = 1 << 50;

/// The mark, which is set.
pub(crate) struct ForkMark {
    value: u64,
    inherited: Rlimit,
}

impl ForkMark {
    /// Sets it, before anything is forked. `None` where there is no room for it below the hard limit.
    pub(crate) fn set() -> Option<Self> {
        let inherited = getrlimit(Resource::Rss);
        let value = below(inherited.maximum, std::process::id())?;
        setrlimit(Resource::Rss, Rlimit { current: Some(value), maximum: inherited.maximum }).ok()?;
        Some(Self { value, inherited })
    }

    /// The soft limit that marked processes have.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// Removes the mark from the calling process. Async-signal-safe.
    pub(crate) fn take_off(&self) {
        let _ = setrlimit(Resource::Rss, self.inherited);
    }
}

/// An odd number, because people and programs set whole KiB; and another one for each process.
fn below(hard_limit: Option<u64>, pid: u32) -> Option<u64> {
    let ceiling = hard_limit.map_or(CEILING, |limit| limit.min(CEILING)) & !1;
    ceiling.checked_sub(2 * u64::from(pid) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_own_below_the_hard_limit() {
        for hard in [None, Some(u64::MAX), Some(1 << 50), Some(1 << 30), Some((1 << 30) + 1)] {
            let marks = [1, 2, 1 << 22].map(|pid| below(hard, pid).unwrap());
            assert!(marks[0] > marks[1] && marks[1] > marks[2], "{marks:?}");
            assert!(marks.iter().all(|mark| mark % 2 == 1 && *mark < hard.unwrap_or(u64::MAX)), "{marks:?}");
        }
        assert_eq!([below(Some(0), 1), below(Some(100), 50)], [None, None]);
    }
}
