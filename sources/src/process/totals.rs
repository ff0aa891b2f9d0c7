//! Counters of processes, and how they add up.

use crate::job::{Io, Member, Reaped, Stat, Usage};

/// What some processes used together. CPU times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) cpu: u64,
    /// The part of `cpu` in user mode.
    pub(super) user: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) io: Io,
}

impl Totals {
    /// What a process used itself, and what the children used that it has waited for. `tick` is the length of a clock tick in
    /// nanoseconds.
    pub(super) fn of(member: &Member, tick: u64) -> Self {
        let stat = &member.stat;
        let in_ticks = stat.utime + stat.stime;
        let own_cpu = member.clock.map_or(in_ticks * tick, |clock| clock.as_nanos() as u64);
        // The clock is finer than the two times, which only say how to divide it.
        let own_user = match in_ticks {
            0 => own_cpu,
            ticks => (u128::from(own_cpu) * u128::from(stat.utime) / u128::from(ticks)) as u64,
        };
        let of_children = Self::of_children(stat, member.io, tick);
        Self {
            cpu: own_cpu + of_children.cpu,
            user: own_user + of_children.user,
            minor_faults: stat.minor_faults + of_children.minor_faults,
            major_faults: stat.major_faults + of_children.major_faults,
            ..of_children
        }
    }

    /// What the children used that a process has waited for. The kernel does not keep their I/O apart from its own.
    pub(super) fn of_children(stat: &Stat, io: Option<Io>, tick: u64) -> Self {
        Self {
            cpu: stat.children_time() * tick,
            user: stat.children_utime * tick,
            minor_faults: stat.children_minor_faults,
            major_faults: stat.children_major_faults,
            io: io.unwrap_or_default(),
        }
    }

    /// What the processes used that the tracker has waited for.
    pub(super) fn of_reaped(reaped: &Reaped) -> Self {
        let usage = &reaped.usage;
        let (user, system) = (usage.utime.as_nanos() as u64, usage.stime.as_nanos() as u64);
        let Usage { minor_faults, major_faults, io, .. } = *usage;
        Self { cpu: user + system, user, minor_faults, major_faults, io }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Never below 0.
    pub(super) fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu: combine(self.cpu, other.cpu),
            user: combine(self.user, other.user),
            minor_faults: combine(self.minor_faults, other.minor_faults),
            major_faults: combine(self.major_faults, other.major_faults),
            io: self.io.each(other.io, combine),
        }
    }
}
