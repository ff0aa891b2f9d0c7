//! Context switches of the tree. No file shows those of children that were waited for: only `wait4` gives them, for the
//! processes that the tracker waits for. So the sum is a lower bound while the root lives: what was seen of living
//! members, and of ended ones that a living member waited for. Once the root has ended and no member is left, it is
//! what the kernel counted.

use std::collections::HashMap;

use crate::job::{FormerMember, Heir, Identity, Member, Reaped, Switches};

#[derive(Debug, Default)]
pub(super) struct SwitchAccount {
    /// What was seen of ended members, by the living member that waited for them.
    handed_on: HashMap<Identity, Switches>,
    /// What was seen of ended members without an heir.
    settled: Switches,
    /// The sum of all calls so far.
    counted: Switches,
}

impl SwitchAccount {
    /// The switches since the last call, and whether the sum of all calls is complete.
    pub(super) fn advance(&mut self, members: &[Member], gone: &[FormerMember], reaped: &Reaped) -> (Switches, bool) {
        for FormerMember { last, heir } in gone {
            let seen = last.switches.plus(self.handed_on.remove(&last.identity()).unwrap_or_default());
            match heir {
                // Only the parent: if that has ended as well, the tracker may have waited for it.
                Heir::Member(heir) if heir.0 == last.stat.parent => {
                    let before = self.handed_on.entry(*heir).or_default();
                    *before = before.plus(seen);
                }
                Heir::Nobody => self.settled = self.settled.plus(seen),
                Heir::Member(_) | Heir::Tracker => (),
            }
        }
        let of_members = members.iter().map(|member| member.switches);
        let start = self.settled.plus(reaped.usage.switches);
        let sum = of_members.chain(self.handed_on.values().copied()).fold(start, Switches::plus);
        let new = sum.since(self.counted);
        self.counted = self.counted.plus(new);
        let all_ended = reaped.root && members.is_empty() && self.settled == Switches::default();
        (new, all_ended && self.counted == reaped.usage.switches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Stat, Usage};

    fn member(pid: i32, parent: i32, voluntary: u64) -> Member {
        let mut member = Member::default();
        member.stat = Stat { pid, parent, ..Stat::default() };
        member.switches.voluntary = voluntary;
        member
    }

    fn gone(pid: i32, parent: i32, voluntary: u64, heir: Heir) -> FormerMember {
        FormerMember { last: member(pid, parent, voluntary), heir }
    }

    fn reaped(voluntary: u64, root: bool) -> Reaped {
        let switches = Switches { voluntary, involuntary: 2 * voluntary };
        Reaped { usage: Usage { switches, ..Usage::default() }, root }
    }

    const ROOT: Heir = Heir::Member((1, 0));

    #[test]
    fn the_last_word_is_the_kernel_s() {
        let mut account = SwitchAccount::default();
        let mut advance = |members: &[Member], gone: &[FormerMember], reaped: &Reaped| {
            let (new, is_whole) = account.advance(members, gone, reaped);
            (new.voluntary, is_whole)
        };
        let nothing = reaped(0, false);
        assert_eq!(advance(&[member(1, 0, 10), member(2, 1, 5)], &[], &nothing), (15, false));
        // A child ends, and one of which nothing was seen.
        assert_eq!(advance(&[member(1, 0, 12)], &[gone(2, 1, 5, ROOT)], &nothing), (2, false));
        // A daemon is reaped, with its children.
        assert_eq!(advance(&[member(1, 0, 12)], &[], &reaped(40, false)), (40, false));
        let root = gone(1, 0, 12, Heir::Tracker);
        assert_eq!(advance(&[], &[root], &reaped(140, true)), (83, true));
    }

    #[test]
    fn what_the_tracker_has_waited_for_counts_once() {
        let mut account = SwitchAccount::default();
        let members = [member(1, 0, 10), member(2, 1, 5), member(3, 2, 100)];
        account.advance(&members, &[], &reaped(0, false));
        // The daemon ended in the interval of its parent, whose heir the root is.
        let both = [gone(2, 1, 5, ROOT), gone(3, 2, 100, ROOT)];
        assert_eq!(account.advance(&members[..1], &both, &reaped(100, false)).0.voluntary, 0);
        let (new, is_whole) = account.advance(&[], &[gone(1, 0, 10, Heir::Tracker)], &reaped(117, true));
        assert_eq!((new.voluntary, is_whole), (2, true));
    }

    #[test]
    fn without_the_kernel_s_word_it_is_sampled() {
        let mut account = SwitchAccount::default();
        account.advance(&[member(1, 0, 10)], &[], &reaped(0, false));
        // Nobody of the tracker's waited for it, as with `--pid`.
        let (new, is_whole) = account.advance(&[], &[gone(1, 0, 10, Heir::Nobody)], &reaped(0, false));
        assert_eq!((new, is_whole), (Switches::default(), false));
        // One who ignores SIGCHLD takes nothing over.
        let mut account = SwitchAccount::default();
        account.advance(&[member(1, 0, 10), member(2, 1, 90)], &[], &reaped(0, false));
        let all = [gone(1, 0, 10, Heir::Tracker), gone(2, 1, 90, Heir::Tracker)];
        let (new, is_whole) = account.advance(&[], &all, &reaped(10, true));
        assert_eq!((new.voluntary, is_whole), (0, false));
    }
}
