//! What the tree used in an interval, while its members come and go.
//!
//! The account rests on a sum that does not change when a member is reaped. It adds the counters of each member, which
//! include those of the children that it has waited for (`cutime`, `cstime`, `cminflt` and `cmajflt` of
//! `/proc/PID/stat`, and `/proc/PID/io`), and the counters of the processes that the tracker itself has waited for.
//! When a process is reaped, the kernel adds its counters to those of the process that waited for it, its heir: they
//! leave the sum in one place and come back in another, so the sum only grows, by what was used. Counters that no heir
//! takes over are kept beside the sum. `settled` has the last counters of members that ended without a parent in the
//! tree. `lost` has what an heir in the tree did not take over, because it ignores `SIGCHLD`. That is known one reading
//! after the death, because the first reading may have read the heir just before it waited; until then `waiting` has
//! what each heir should take over. `counted` is what all intervals so far add up to: an interval gets the sum less
//! `counted`, and never less than 0. So a sum that is too low for a moment, between a death and its reaping, is made up
//! for at the next reading, and nothing counts twice. The account is exact while `settled` and `lost` are empty, and
//! sampled from then on, because what those processes used after their last reading is not known. CPU time comes from a
//! cgroup where the job has one that counts at least as much as the members show.
//!
//! The I/O of some heirs cannot be read, such as programs of another user, so it does not show what they took over.
//! `held` has that while such an heir lives and stays unreadable. When it ends, its own heir should take that over with
//! the rest.

use std::collections::HashMap;

use resource_tracker_metrics::ProcessAccounting;

use super::totals::Totals;
use crate::job::{CpuStat, FormerMember, Heir, Identity, Io, Member, Reaped};

/// What was used in an interval, and how it was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) used: Totals,
    /// Of CPU time.
    pub(super) accounting: ProcessAccounting,
    /// Whether everything else is complete.
    pub(super) is_whole: bool,
}

#[derive(Debug)]
pub(super) struct Account {
    /// Nanoseconds of a clock tick.
    tick: u64,
    settled: Totals,
    /// A lower bound.
    lost: Totals,
    counted: Totals,
    waiting: HashMap<Heir, Handover>,
    /// For heirs with hidden I/O: the I/O that they should have taken over.
    held: HashMap<Identity, Totals>,
    /// The counters of what the tracker had waited for, at the reading before.
    reaped_before: Totals,
    has_begun: bool,
}

/// What an heir should take over, if it waits for its children.
#[derive(Debug, Clone, Copy, Default)]
struct Handover {
    /// What its children that ended had used.
    used: Totals,
    /// What the heir had taken over before they ended.
    base: Totals,
}

impl Handover {
    /// The part that the heir has not taken over, when it has taken over `taken` in all.
    fn missing(&self, taken: Totals, tick: u64) -> Totals {
        // The kernel cuts `cutime` and `cstime` to whole ticks each.
        let cut_off = Totals { cpu: 2 * tick, user: tick, ..Totals::default() };
        self.used.minus(taken.minus(self.base).plus(cut_off))
    }
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            tick: 1_000_000_000 / rustix::param::clock_ticks_per_second(),
            settled: Totals::default(),
            lost: Totals::default(),
            counted: Totals::default(),
            waiting: HashMap::new(),
            held: HashMap::new(),
            reaped_before: Totals::default(),
            has_begun: false,
        }
    }

    /// What was used since the last call, and how it was counted. The first call counts from birth when the tracker
    /// `spawned` the tree, else from now. An interval gets at most the CPU time that the machine's CPUs had, which is
    /// `possible`; the rest, which belongs to earlier intervals, comes later.
    pub(super) fn advance(
        &mut self,
        members: &[Member],
        gone: &[FormerMember],
        reaped: &Reaped,
        group: Option<CpuStat>,
        spawned: bool,
        possible: u64,
    ) -> Counted {
        let taken = Totals::of_reaped(reaped);
        // The I/O of an heir that can be read again includes what was held for it.
        let tells = |heir: &Identity| members.iter().any(|member| member.identity() == *heir && !member.hides_io);
        self.held.retain(|heir, _| !tells(heir));
        let passed_on = self.find_lost(members, gone, taken);
        self.wait_for_heirs(members, gone, passed_on);
        if reaped.root {
            // There may be no next reading.
            self.find_lost(members, &[], taken);
        }
        self.reaped_before = taken;
        let (sum, accounting) = self.sum(members, taken, group);
        // A process whose I/O is hidden may have ended after its heir was read, unless everything is known because the
        // root was reaped.
        let mut ended = gone.iter().map(|gone| &gone.last).filter(|_| !reaped.root);
        let is_told = !members.iter().any(|member| member.hides_io) && !ended.any(|last| last.hides_io);
        let is_whole = is_told && [self.lost, self.settled].iter().all(|missed| *missed == Totals::default());
        let possible = if reaped.root { u64::MAX } else { possible };
        Counted { used: self.give_out(sum, spawned, possible), accounting, is_whole }
    }

    /// The sum so far, and how its CPU time is known.
    fn sum(&self, members: &[Member], reaped: Totals, group: Option<CpuStat>) -> (Totals, ProcessAccounting) {
        let start = self.held.values().copied().fold(self.settled.plus(reaped), Totals::plus);
        let known = members.iter().fold(start, |sum, member| sum.plus(Totals::of(member, self.tick)));
        let estimated = known.plus(self.lost);
        match group {
            // The members show more than the cgroup only if a part of the tree has left it. (The cgroup counts in
            // microseconds.)
            Some(group) if group.used.saturating_add(self.tick) >= known.cpu => {
                let sum = Totals { cpu: group.used.max(known.cpu), user: group.user, ..estimated };
                (sum, ProcessAccounting::Cgroup)
            }
            _ if self.lost.cpu > 0 || self.settled.cpu > 0 => (estimated, ProcessAccounting::Sampled),
            _ => (estimated, ProcessAccounting::Exact),
        }
    }

    /// The part of the sum that no interval has yet. The two parts of CPU time add up to the whole.
    fn give_out(&mut self, sum: Totals, spawned: bool, possible: u64) -> Totals {
        if !std::mem::replace(&mut self.has_begun, true) && !spawned {
            self.counted = sum;
            return Totals::default();
        }
        let mut used = sum.minus(self.counted);
        used.cpu = used.cpu.min(possible);
        used.user = used.user.min(used.cpu);
        self.counted = self.counted.plus(used);
        used
    }

    /// Adds to `lost` what the heirs in `waiting` have not taken over. Their children ended before the last reading, so
    /// by now an heir has waited for them, if it ever does. An heir that has ended itself passes on what it had not
    /// taken over to its own heir: that is returned.
    fn find_lost(&mut self, members: &[Member], gone: &[FormerMember], reaped: Totals) -> HashMap<Heir, Handover> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut passed_on = HashMap::<Heir, Handover>::new();
        if waiting.is_empty() {
            return passed_on;
        }
        let missing_at = |heir: &Member| {
            let due = waiting.get(&Heir::Member(heir.identity()))?;
            Some(due.missing(Totals::of_children(&heir.stat, heir.io, self.tick), self.tick))
        };
        let due = waiting.get(&Heir::Tracker).copied().unwrap_or_default();
        // What the tracker took over unexpectedly: an orphan, which ended after its parent. Until then the parent was
        // its heir.
        let mut unexpected = reaped.minus(due.base).minus(due.used);
        for gone in gone {
            if let Some(rest) = missing_at(&gone.last) {
                let next = passed_on.entry(gone.heir).or_default();
                next.used = next.used.plus(rest.minus(unexpected));
                unexpected = unexpected.minus(rest);
            }
        }
        self.lost = self.lost.plus(due.missing(reaped, self.tick));
        for member in members {
            let Some(missing) = missing_at(member) else { continue };
            let mut rest = missing.minus(unexpected);
            unexpected = unexpected.minus(missing);
            if member.hides_io {
                let held = self.held.entry(member.identity()).or_default();
                held.io = held.plus(rest).io;
                rest.io = Io::default();
            }
            self.lost = self.lost.plus(rest);
        }
        passed_on
    }

    /// Puts the counters of members that ended into `waiting`, beside what heirs that ended have `passed_on`, or into
    /// `settled`.
    fn wait_for_heirs(&mut self, members: &[Member], gone: &[FormerMember], passed_on: HashMap<Heir, Handover>) {
        self.waiting = passed_on;
        for gone in gone {
            let held = self.held.remove(&gone.last.identity()).unwrap_or_default();
            let used = Totals::of(&gone.last, self.tick).plus(held);
            if gone.heir == Heir::Nobody {
                self.settled = self.settled.plus(used);
            } else {
                let due = self.waiting.entry(gone.heir).or_default();
                due.used = due.used.plus(used);
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        for member in members {
            if let Some(due) = self.waiting.get_mut(&Heir::Member(member.identity())) {
                due.base = Totals::of_children(&member.stat_before, member.io_before, self.tick);
            }
        }
        // The tracker may have waited for them in place of another heir.
        self.waiting.entry(Heir::Tracker).or_default().base = self.reaped_before;
    }
}

#[cfg(test)]
mod tests;
