//! What the tree used in an interval, when its members come and go.

use std::collections::HashMap;

use resource_tracker_metrics::ProcessAccounting;

use crate::job::{Gone, Heir, Io, Member, Reaped, Stat};

/// Counters of the tree. CPU times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) cpu: u64,
    /// The part of `cpu` in user mode.
    pub(super) user: u64,
    pub(super) major_faults: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl Totals {
    /// What the kernel hands on when a process is waited for: its parent's `cutime`, `cstime`, `cmajflt` and I/O include
    /// the children that it has waited for. So the sum over a tree does not change when a member of it is reaped.
    fn of(member: &Member, tick: u64) -> Self {
        let (stat, io) = (&member.stat, member.io.unwrap_or_default());
        let own = stat.utime + stat.stime;
        let own_cpu = member.clock.map_or(own * tick, |clock| clock.as_nanos() as u64);
        // The clock is finer than the two times, which only say how to divide it.
        let own_user = match own {
            0 => own_cpu,
            own => (u128::from(own_cpu) * u128::from(stat.utime) / u128::from(own)) as u64,
        };
        Self {
            cpu: own_cpu + stat.children_time() * tick,
            user: own_user + stat.children_utime * tick,
            major_faults: stat.major_faults + stat.children_major_faults,
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
        }
    }

    /// The part of it that came from children. (I/O is not kept apart.)
    fn taken_over(stat: &Stat, io: Option<Io>, tick: u64) -> Self {
        let io = io.unwrap_or_default();
        Self {
            cpu: stat.children_time() * tick,
            user: stat.children_utime * tick,
            major_faults: stat.children_major_faults,
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
        }
    }

    fn reaped(reaped: &Reaped) -> Self {
        let usage = &reaped.usage;
        let (user, system) = (usage.utime.as_nanos() as u64, usage.stime.as_nanos() as u64);
        Self {
            cpu: user + system,
            user,
            major_faults: usage.major_faults,
            read_bytes: usage.read_bytes,
            write_bytes: usage.write_bytes,
        }
    }

    fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu: combine(self.cpu, other.cpu),
            user: combine(self.user, other.user),
            major_faults: combine(self.major_faults, other.major_faults),
            read_bytes: combine(self.read_bytes, other.read_bytes),
            write_bytes: combine(self.write_bytes, other.write_bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }
}

/// CPU time of a cgroup, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GroupTime {
    pub(super) cpu: u64,
    pub(super) user: u64,
}

#[derive(Debug)]
pub(super) struct Account {
    /// Nanoseconds of a clock tick.
    tick: u64,
    /// What members left behind that nobody in the tree took over.
    settled: Totals,
    /// What ended members used that their heirs did not take over, although they live. An estimate from below.
    lost: Totals,
    /// The most that was ever counted. A reading between a death and its reaping can be lower for a moment.
    counted: Totals,
    reaped_before: Totals,
    /// Those that were found gone at the reading before, by who takes over.
    waiting: HashMap<Heir, Inheritance>,
    next_waiting: HashMap<Heir, Inheritance>,
    begun: bool,
}

/// What an heir should take over, if its children are waited for.
#[derive(Debug, Clone, Copy, Default)]
struct Inheritance {
    used: Totals,
    /// What it had taken over before.
    base: Totals,
}

impl Inheritance {
    /// What it has not taken over, when it has `taken` this since it began.
    fn missing(&self, taken: Totals, tick: u64) -> Totals {
        // `cutime` and `cstime` are each cut to whole ticks.
        let slack = Totals { cpu: 2 * tick, user: tick, ..Totals::default() };
        self.used.minus(taken.minus(self.base).plus(slack))
    }
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            tick: 1_000_000_000 / rustix::param::clock_ticks_per_second(),
            settled: Totals::default(),
            lost: Totals::default(),
            counted: Totals::default(),
            reaped_before: Totals::default(),
            waiting: HashMap::new(),
            next_waiting: HashMap::new(),
            begun: false,
        }
    }

    /// What was used since the last call, and how it was counted. The first call counts from birth when the tree was
    /// `spawned` by the tracker, else from now. No more CPU time is given out than the machine's CPUs can have spent,
    /// which is what was `possible`; the rest, which belonged to earlier intervals, comes later.
    pub(super) fn advance(
        &mut self,
        members: &[Member],
        gone: &[Gone],
        reaped: &Reaped,
        group: Option<GroupTime>,
        spawned: bool,
        possible: u64,
    ) -> (Totals, ProcessAccounting) {
        let tick = self.tick;
        let taken = Totals::reaped(reaped);
        self.settle_late(members, gone, taken);
        self.wait_for_heirs(members, gone);
        if reaped.root {
            // There may be no next time.
            self.settle_late(members, &[], taken);
            self.waiting.clear();
        }
        self.reaped_before = taken;

        let exact = members.iter().fold(self.settled.plus(taken), |sum, member| sum.plus(Totals::of(member, tick)));
        let estimated = exact.plus(self.lost);
        let (live, accounting) = match group {
            // The tree can have more only when a part of it has left the cgroup. (The cgroup counts in microseconds.)
            Some(group) if group.cpu.saturating_add(tick) >= exact.cpu => {
                (Totals { cpu: group.cpu.max(exact.cpu), user: group.user, ..estimated }, ProcessAccounting::Cgroup)
            }
            _ if self.lost.cpu > 0 || self.settled.cpu > 0 => (estimated, ProcessAccounting::Sampled),
            _ => (estimated, ProcessAccounting::Exact),
        };
        (self.count(live, spawned, if reaped.root { u64::MAX } else { possible }), accounting)
    }

    /// The difference to what was counted before, never negative. The two parts of CPU time add up to the whole.
    fn count(&mut self, live: Totals, spawned: bool, possible: u64) -> Totals {
        if !std::mem::replace(&mut self.begun, true) && !spawned {
            self.counted = live;
            return Totals::default();
        }
        let mut used = live.minus(self.counted);
        used.cpu = used.cpu.min(possible);
        used.user = used.user.min(used.cpu);
        self.counted = self.counted.plus(used);
        used
    }

    /// Who was found gone at the reading before has been taken over by now, if it ever will be. (At that reading the
    /// heir could have been read before it waited.)
    fn settle_late(&mut self, members: &[Member], gone: &[Gone], reaped: Totals) {
        self.next_waiting.clear();
        let since = reaped.minus(self.reaped_before);
        let (mut missing, mut surplus) = (Totals::default(), since);
        if !self.waiting.is_empty() {
            for member in members {
                if let Some(due) = self.waiting.get(&Heir::Member(member.identity())) {
                    missing =
                        missing.plus(due.missing(Totals::taken_over(&member.stat, member.io, self.tick), self.tick));
                }
            }
            // An heir that is gone itself leaves what it did not take over to the next one.
            for gone in gone {
                if let Some(due) = self.waiting.get(&Heir::Member(gone.last.identity())) {
                    let rest = due.missing(Totals::taken_over(&gone.last.stat, gone.last.io, self.tick), self.tick);
                    let next = self.next_waiting.entry(gone.heir).or_default();
                    next.used = next.used.plus(rest);
                }
            }
            if let Some(due) = self.waiting.get(&Heir::Tracker) {
                missing = missing.plus(due.missing(reaped, self.tick));
                surplus = reaped.minus(due.base).minus(due.used);
            }
        }
        // An orphan can have been expected with a parent that ended before it.
        self.lost = self.lost.plus(missing.minus(surplus));
    }

    fn wait_for_heirs(&mut self, members: &[Member], gone: &[Gone]) {
        for gone in gone {
            let used = Totals::of(&gone.last, self.tick);
            if gone.heir == Heir::Nobody {
                self.settled = self.settled.plus(used);
            } else {
                let due = self.next_waiting.entry(gone.heir).or_default();
                due.used = due.used.plus(used);
            }
        }
        if !self.next_waiting.is_empty() {
            for member in members {
                if let Some(due) = self.next_waiting.get_mut(&Heir::Member(member.identity())) {
                    due.base = Totals::taken_over(&member.stat_before, member.io_before, self.tick);
                }
            }
            if let Some(due) = self.next_waiting.get_mut(&Heir::Tracker) {
                due.base = self.reaped_before;
            }
        }
        std::mem::swap(&mut self.waiting, &mut self.next_waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::job::Usage;

    const TICK: u64 = 10_000_000;

    fn alone() -> Reaped {
        Reaped::default()
    }

    /// A process whose reading before was the same, with times in ticks.
    fn member(pid: i32, parent: i32, own: u64, children: u64) -> Member {
        let stat = Stat {
            pid,
            parent,
            start_time: pid as u64,
            utime: own,
            children_utime: children,
            state: b'S',
            ..Stat::default()
        };
        let mut member = Member::default();
        (member.stat, member.stat_before, member.is_root) = (stat, stat, pid == 1);
        member
    }

    fn after(pid: i32, parent: i32, own: u64, children_before: u64, children: u64) -> Member {
        let mut member = member(pid, parent, own, children);
        member.stat_before.children_utime = children_before;
        member
    }

    fn gone(last: Member, heir: Heir) -> Gone {
        Gone { last, heir }
    }

    fn reaped(ticks: u64, root: bool) -> Reaped {
        Reaped { usage: Usage { utime: Duration::from_nanos(ticks * TICK), ..Usage::default() }, root }
    }

    /// Ticks of the interval, and how they were counted.
    fn advance(account: &mut Account, members: &[Member], gone: &[Gone], reaped: Reaped) -> (u64, ProcessAccounting) {
        let (used, accounting) = account.advance(members, gone, &reaped, None, true, u64::MAX);
        assert!(used.user <= used.cpu);
        (used.cpu / TICK, accounting)
    }

    const ROOT: Heir = Heir::Member((1, 1));

    #[test]
    fn a_child_that_its_parent_reaps_is_counted_once() {
        let mut account = Account::new();
        let child = || member(2, 1, 50, 0);
        assert_eq!(advance(&mut account, &[member(1, 0, 10, 0), child()], &[], alone()).0, 60);
        let reaps = [after(1, 0, 11, 0, 55)];
        assert_eq!(advance(&mut account, &reaps, &[gone(child(), ROOT)], alone()), (6, ProcessAccounting::Exact));
        assert_eq!(advance(&mut account, &[member(1, 0, 12, 55)], &[], alone()), (1, ProcessAccounting::Exact));
    }

    #[test]
    fn a_child_that_came_and_went_between_two_readings_counts() {
        let mut account = Account::new();
        advance(&mut account, &[member(1, 0, 10, 0)], &[], alone());
        assert_eq!(advance(&mut account, &[member(1, 0, 10, 30)], &[], alone()).0, 30);
    }

    #[test]
    fn a_child_that_is_reaped_while_the_tree_is_read_is_made_up_for() {
        let mut account = Account::new();
        let child = || member(2, 1, 500, 0);
        advance(&mut account, &[member(1, 0, 10, 0), child()], &[], alone());
        // The parent was read before it waited, the child after that.
        assert_eq!(advance(&mut account, &[member(1, 0, 10, 0)], &[gone(child(), ROOT)], alone()).0, 0);
        assert_eq!(advance(&mut account, &[after(1, 0, 10, 0, 505)], &[], alone()), (5, ProcessAccounting::Exact));
    }

    #[test]
    fn an_orphan_that_the_tracker_reaps_is_exact() {
        let mut account = Account::new();
        let orphan = || member(7, 99, 100, 0);
        advance(&mut account, &[member(1, 0, 10, 0), orphan()], &[], alone());
        let tracker = [gone(orphan(), Heir::Tracker)];
        assert_eq!(advance(&mut account, &[member(1, 0, 15, 0)], &tracker, reaped(104, false)).0, 9);
        assert_eq!(
            advance(&mut account, &[member(1, 0, 16, 0)], &[], reaped(104, false)),
            (1, ProcessAccounting::Exact)
        );
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_kept_as_it_was_last_seen() {
        let mut account = Account::new();
        advance(&mut account, &[member(1, 0, 10, 0), member(2, 1, 300, 0)], &[], alone());
        let vanished = [gone(member(2, 1, 300, 0), ROOT)];
        advance(&mut account, &[member(1, 0, 10, 0), member(3, 1, 40, 0)], &vanished, alone());
        let (_, accounting) = advance(&mut account, &[member(1, 0, 10, 0), member(3, 1, 90, 0)], &[], alone());
        assert_eq!(accounting, ProcessAccounting::Sampled);
        let sum = account.counted.cpu / TICK;
        assert!((398..=400).contains(&sum), "300 + 90 + 10, less the ticks that could be cut off: {sum}");
    }

    #[test]
    fn a_descendant_that_nobody_can_take_over_stays_counted() {
        let mut account = Account::new();
        advance(&mut account, &[member(1, 0, 10, 0), member(2, 1, 300, 0)], &[], alone());
        let vanished = [gone(member(2, 1, 300, 0), Heir::Nobody)];
        let counted = advance(&mut account, &[member(1, 0, 15, 0)], &vanished, alone());
        assert_eq!(counted, (5, ProcessAccounting::Sampled));
    }

    #[test]
    fn at_the_end_the_kernel_has_the_last_word() {
        let mut account = Account::new();
        advance(&mut account, &[member(1, 0, 10, 0), member(2, 1, 50, 0)], &[], alone());
        let all = [gone(member(1, 0, 10, 0), Heir::Tracker), gone(member(2, 1, 50, 0), Heir::Tracker)];
        assert_eq!(advance(&mut account, &[], &all, reaped(67, true)), (7, ProcessAccounting::Exact));
    }

    #[test]
    fn the_cgroup_knows_of_those_that_nobody_waited_for() {
        let mut account = Account::new();
        let group = |ticks: u64| Some(GroupTime { cpu: ticks * TICK, user: ticks * TICK / 2 });
        let root = [member(1, 0, 10, 0)];
        let (used, accounting) = account.advance(&root, &[], &alone(), group(50), true, u64::MAX);
        assert_eq!((used.cpu, used.user, accounting), (50 * TICK, 25 * TICK, ProcessAccounting::Cgroup));
        let moved_out = [member(1, 0, 70, 0)];
        let (used, accounting) = account.advance(&moved_out, &[], &alone(), group(50), true, u64::MAX);
        assert_eq!((used.cpu, accounting), (20 * TICK, ProcessAccounting::Exact));
    }

    #[test]
    fn what_comes_late_makes_no_spike() {
        let mut account = Account::new();
        let mut used = |own, reaped: &Reaped| {
            account.advance(&[member(1, 0, own, 0)], &[], reaped, None, true, 4 * TICK).0.cpu / TICK
        };
        assert_eq!([used(1, &alone()), used(8, &alone()), used(9, &alone())], [1, 4, 4]);
        assert_eq!(used(0, &reaped(20, true)), 11, "the last interval has all that is left");
    }

    #[test]
    fn a_tree_that_was_there_before_counts_from_now() {
        let mut account = Account::new();
        let mut used =
            |own| account.advance(&[member(1, 0, own, 500)], &[], &alone(), None, false, u64::MAX).0.cpu / TICK;
        assert_eq!([used(1000), used(1003)], [0, 3]);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_most_that_was_seen(readings in prop::collection::vec((0u64..1000, 0u64..1000), 1..20)) {
            let mut account = Account::new();
            let sum: u64 =
                readings.iter().map(|(own, of_children)| advance(&mut account, &[member(1, 0, *own, *of_children)], &[], alone()).0).sum();
            prop_assert_eq!(sum, readings.iter().map(|(a, b)| a + b).max().unwrap_or(0));
        }
    }
}
