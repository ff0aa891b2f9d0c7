//! What the tree used in an interval, when its members come and go.

use std::collections::{HashMap, HashSet};

use super::tree::Member;

/// Counters of the tree. CPU times are in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) utime: u64,
    pub(super) stime: u64,
    pub(super) major_faults: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

impl Totals {
    /// What the kernel hands on when a process is reaped: a parent's `cutime`, `cstime`, `cmajflt` and I/O include
    /// the children it has waited for. So the sum over a tree does not change when a member of it is reaped.
    fn handed_on(member: &Member) -> Self {
        let (stat, io) = (&member.stat, member.io.unwrap_or_default());
        Self {
            utime: stat.utime + stat.children_utime,
            stime: stat.stime + stat.children_stime,
            major_faults: stat.major_faults + stat.children_major_faults,
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
            ..Self::default()
        }
    }

    fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            utime: combine(self.utime, other.utime),
            stime: combine(self.stime, other.stime),
            major_faults: combine(self.major_faults, other.major_faults),
            read_bytes: combine(self.read_bytes, other.read_bytes),
            write_bytes: combine(self.write_bytes, other.write_bytes),
            voluntary_switches: combine(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: combine(self.involuntary_switches, other.involuntary_switches),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }
}

#[derive(Debug, Default)]
pub(super) struct Account {
    /// What members left behind that nobody in the tree waited for.
    settled: Totals,
    /// The most that was ever counted. A reading between a death and its reaping can be lower for a moment.
    counted: Totals,
    members: HashMap<(i32, u64), Member>,
    begun: bool,
}

impl Account {
    /// What was used since the last call. The first call counts from birth when the tree was `spawned` by the
    /// tracker, else from now.
    pub(super) fn advance(&mut self, members: &[Member], spawned: bool) -> Totals {
        let alive: HashSet<(i32, u64)> = members.iter().map(Member::identity).collect();
        let pids: HashSet<i32> = members.iter().map(|member| member.stat.pid).collect();
        for gone in self.members.values().filter(|member| !alive.contains(&member.identity())) {
            if !pids.contains(&gone.stat.parent) {
                self.settled = self.settled.plus(Totals::handed_on(gone));
            }
        }
        let switched = members.iter().fold(Totals::default(), |sum, member| sum.plus(self.switches_since(member)));
        let live = members.iter().fold(self.settled, |sum, member| sum.plus(Totals::handed_on(member)));
        let mut used = live.each(self.counted, u64::saturating_sub);
        self.counted = live.each(self.counted, u64::max);
        used = used.plus(switched);
        self.members.clear();
        self.members.extend(members.iter().map(|member| (member.identity(), *member)));
        if std::mem::replace(&mut self.begun, true) || spawned { used } else { Totals::default() }
    }

    /// Switches are not handed on, so they are counted for each process alone.
    fn switches_since(&self, member: &Member) -> Totals {
        let before = self.members.get(&member.identity()).map(|before| before.switches).unwrap_or_default();
        Totals {
            voluntary_switches: member.switches.voluntary.saturating_sub(before.voluntary),
            involuntary_switches: member.switches.involuntary.saturating_sub(before.involuntary),
            ..Totals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::stat::{Stat, Switches};
    use super::*;

    fn member(pid: i32, parent: i32, utime: u64, children_utime: u64) -> Member {
        let stat = Stat { pid, parent, start_time: pid as u64, utime, children_utime, ..Stat::default() };
        Member { stat, io: None, switches: Switches::default(), is_root: pid == 1 }
    }

    #[test]
    fn a_child_that_its_parent_reaps_is_counted_once() {
        let mut account = Account::default();
        assert_eq!(account.advance(&[member(1, 0, 10, 0), member(2, 1, 50, 0)], true).utime, 60);
        assert_eq!(account.advance(&[member(1, 0, 11, 55)], true).utime, 6, "5 before its end, 1 of the parent");
    }

    #[test]
    fn a_child_that_came_and_went_between_two_readings_counts() {
        let mut account = Account::default();
        account.advance(&[member(1, 0, 10, 0)], true);
        assert_eq!(account.advance(&[member(1, 0, 10, 30)], true).utime, 30);
    }

    #[test]
    fn an_orphan_that_ends_takes_nothing_back() {
        let mut account = Account::default();
        account.advance(&[member(1, 0, 10, 0), member(7, 99, 100, 0)], true);
        assert_eq!(account.advance(&[member(1, 0, 15, 0)], true).utime, 5);
    }

    #[test]
    fn a_tree_that_was_there_before_counts_from_now() {
        let mut account = Account::default();
        assert_eq!(account.advance(&[member(1, 0, 1000, 500)], false), Totals::default());
        assert_eq!(account.advance(&[member(1, 0, 1003, 500)], false).utime, 3);
    }

    proptest! {
        #[test]
        fn the_sum_never_exceeds_the_most_that_was_seen(readings in prop::collection::vec((0u64..1000, 0u64..1000), 1..20)) {
            let mut account = Account::default();
            let sum: u64 = readings.iter().map(|(own, of_children)| account.advance(&[member(1, 0, *own, *of_children)], true).utime).sum();
            prop_assert_eq!(sum, readings.iter().map(|(a, b)| a + b).max().unwrap_or(0));
        }
    }
}
