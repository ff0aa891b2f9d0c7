//! CPU time of a cgroup: `cpu.stat` of v2, `cpuacct.usage` and `cpuacct.stat` of v1.

use resource_tracker_scan::{number, value_of, words};

/// Times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuStat {
    pub(crate) used: u64,
    /// The part of `used` in user mode.
    pub(crate) user: u64,
    /// Where there is a quota, or could be one. In v1 it is in a file of its own.
    pub(crate) throttling: Option<Throttling>,
}

/// How often and for how long a quota held tasks up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Throttling {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
    pub(crate) time: u64,
}

impl CpuStat {
    /// `cpu.stat`, in microseconds.
    pub(crate) fn parse_v2(text: &[u8]) -> Option<Self> {
        let nanos = |key| value_of(text, key)?.checked_mul(1000);
        let used = nanos("usage_usec")?;
        let user = nanos("user_usec").unwrap_or(used);
        let throttling = || Throttling::new(text, nanos("throttled_usec")?);
        Some(Self { used, user, throttling: throttling() })
    }

    /// `cpuacct.usage`, in nanoseconds, and `cpuacct.stat`, whose clock ticks say how to divide it.
    pub(crate) fn parse_v1(usage: &[u8], stat: &[u8]) -> Option<Self> {
        let used = number(words(usage).next()?)?;
        let (user, system) = (value_of(stat, "user")?, value_of(stat, "system")?);
        let ticks = u128::from(user) + u128::from(system);
        let user = (u128::from(used) * u128::from(user)).checked_div(ticks).unwrap_or(u128::from(used));
        Some(Self { used, user: u64::try_from(user).ok()?, throttling: None })
    }
}

impl Throttling {
    /// `cpu.stat` of v1, in nanoseconds.
    pub(crate) fn parse_v1(text: &[u8]) -> Option<Self> {
        Self::new(text, value_of(text, "throttled_time")?)
    }

    fn new(text: &[u8], time: u64) -> Option<Self> {
        Some(Self { periods: value_of(text, "nr_periods")?, throttled: value_of(text, "nr_throttled")?, time })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn v2() {
        let text = b"usage_usec 9000\nuser_usec 1\nsystem_usec 2\nnr_periods 10\nnr_throttled 4\nthrottled_usec 70\n";
        let throttling = Some(Throttling { periods: 10, throttled: 4, time: 70_000 });
        let stat = CpuStat { used: 9_000_000, user: 1000, throttling };
        assert_eq!(CpuStat::parse_v2(text), Some(stat));
        let without_quota = b"usage_usec 9000\nuser_usec 1\nsystem_usec 2\n";
        assert_eq!(CpuStat::parse_v2(without_quota), Some(CpuStat { throttling: None, ..stat }));
    }

    #[test]
    fn v1() {
        let stat = CpuStat::parse_v1(b"4500\n", b"user 30\nsystem 10\n");
        assert_eq!(stat, Some(CpuStat { used: 4500, user: 3375, throttling: None }));
        let stat = CpuStat::parse_v1(b"4500\n", b"user 0\nsystem 0\n");
        assert_eq!(stat, Some(CpuStat { used: 4500, user: 4500, throttling: None }));
        assert_eq!(CpuStat::parse_v1(b"\n", b"user 1\nsystem 1\n"), None);
        let text = b"nr_periods 10\nnr_throttled 4\nthrottled_time 70\n";
        assert_eq!(Throttling::parse_v1(text), Some(Throttling { periods: 10, throttled: 4, time: 70 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            CpuStat::parse_v2(&bytes);
            CpuStat::parse_v1(&bytes, &bytes);
            Throttling::parse_v1(&bytes);
        }
    }
}
