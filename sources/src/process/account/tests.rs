use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::job::{Io, Stat, Usage};

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

fn gone(last: Member, heir: Heir) -> FormerMember {
    FormerMember { last, heir }
}

fn reaped(ticks: u64, root: bool) -> Reaped {
    Reaped { usage: Usage { utime: Duration::from_nanos(ticks * TICK), ..Usage::default() }, root }
}

/// Ticks of the interval, and how they were counted.
fn advance(
    account: &mut Account,
    members: &[Member],
    gone: &[FormerMember],
    reaped: Reaped,
) -> (u64, ProcessAccounting) {
    let counted = account.advance(members, gone, &reaped, None, true, u64::MAX);
    assert!(
        counted.used.user <= counted.used.cpu && counted.is_whole == (counted.accounting == ProcessAccounting::Exact)
    );
    (counted.used.cpu / TICK, counted.accounting)
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
    assert_eq!(advance(&mut account, &[member(1, 0, 16, 0)], &[], reaped(104, false)), (1, ProcessAccounting::Exact));
}

#[test]
fn an_orphan_that_ends_in_the_interval_of_its_parent_counts_once() {
    for root_ends in [false, true] {
        let mut account = Account::new();
        advance(&mut account, &[member(1, 0, 10, 0), member(7, 1, 5, 0), member(8, 7, 100, 0)], &[], alone());
        // Its parent was its heir when it was last seen.
        let both = [gone(member(7, 1, 5, 0), ROOT), gone(member(8, 7, 100, 0), ROOT)];
        assert_eq!(advance(&mut account, &[after(1, 0, 10, 0, 5)], &both, reaped(104, false)).0, 4);
        let counted = match root_ends {
            false => advance(&mut account, &[member(1, 0, 11, 5)], &[], reaped(104, false)),
            true => advance(&mut account, &[], &[gone(member(1, 0, 10, 5), Heir::Tracker)], reaped(104 + 16, true)),
        };
        assert_eq!(counted, (1, ProcessAccounting::Exact));
    }
}

#[test]
fn faults_and_io_are_counted_as_cpu_time_is() {
    let mut account = Account::new();
    let counters = |own: u64, of_children: u64| {
        let mut member = member(1, 0, 10, 0);
        (member.stat.minor_faults, member.stat.children_minor_faults) = (own, of_children);
        (member.stat.major_faults, member.stat.children_major_faults) = (own, of_children);
        let n = own + of_children;
        let bytes = Io { read_chars: n, write_chars: n, read_bytes: n, write_bytes: n, cancelled_write_bytes: n };
        member.io = Some(bytes);
        (member, Totals { cpu: 10 * TICK, user: 10 * TICK, minor_faults: n, major_faults: n, io: bytes })
    };
    let (member, sum) = counters(3, 4);
    let counted = account.advance(&[member], &[], &alone(), None, true, u64::MAX);
    assert_eq!((counted.used, counted.is_whole), (sum, true));
    let (member, more) = counters(4, 9);
    let counted = account.advance(&[member], &[], &alone(), None, true, u64::MAX);
    assert_eq!((counted.used, counted.is_whole), (more.minus(sum), true));
    // Nobody is left who would tell.
    let (last, _) = counters(4, 9);
    let counted = account.advance(&[], &[gone(last, Heir::Nobody)], &alone(), None, true, u64::MAX);
    assert_eq!((counted.used, counted.is_whole), (Totals::default(), false));
}

/// One whose I/O is so many bytes as far as it was ever read, and is hidden now where it `hides` it.
fn reads(pid: i32, parent: i32, bytes: Option<u64>, hides: bool) -> Member {
    let mut member = member(pid, parent, 0, 0);
    member.io = bytes.map(|read_bytes| Io { read_bytes, ..Io::default() });
    (member.io_before, member.hides_io) = (member.io, hides);
    member
}

/// Bytes of the interval, and whether nothing is missing.
fn advance_io(account: &mut Account, members: &[Member], gone: &[FormerMember], reaped: Reaped) -> (u64, bool) {
    let counted = account.advance(members, gone, &reaped, None, true, u64::MAX);
    (counted.used.io.read_bytes, counted.is_whole)
}

/// A shell, in which a program of another user waits for one that reads.
#[test]
fn what_a_hidden_heir_takes_over_counts_once() {
    const HIDDEN: Heir = Heir::Member((2, 2));
    // It was hidden from the start, or became it after it was read.
    for seen in [None, Some(20)] {
        let (mut account, hidden) = (Account::new(), || reads(2, 1, seen, true));
        let mut advance = |bytes, others: Vec<Member>, gone: &[FormerMember]| {
            let members: Vec<_> = [reads(1, 0, Some(bytes), false)].into_iter().chain(others).collect();
            advance_io(&mut account, &members, gone, alone())
        };
        let own = seen.unwrap_or(0);
        assert_eq!(advance(0, vec![hidden(), reads(3, 2, Some(1000), false)], &[]), (1000 + own, false));
        assert_eq!(advance(0, vec![hidden()], &[gone(reads(3, 2, Some(1000), false), HIDDEN)]), (0, false));
        // What others do meanwhile is not taken for it.
        assert_eq!(advance(7, vec![hidden()], &[]), (7, false));
        assert_eq!(advance(7, vec![], &[gone(hidden(), ROOT)]), (0, false), "the shell was read before it waited");
        // With 33 that nobody was told.
        assert_eq!(advance(7 + 1000 + own + 33, vec![], &[]), (33, true));
        assert_eq!(advance(7 + 1000 + own + 33, vec![], &[]), (0, true));
    }
}

#[test]
fn what_a_hidden_heir_never_hands_on_is_kept() {
    const HIDDEN: Heir = Heir::Member((2, 2));
    let mut account = Account::new();
    let shell = || reads(1, 0, Some(5), false);
    let hidden = || reads(2, 1, None, true);
    advance_io(&mut account, &[shell(), hidden(), reads(3, 2, Some(1000), false)], &[], alone());
    advance_io(&mut account, &[shell(), hidden()], &[gone(reads(3, 2, Some(1000), false), HIDDEN)], alone());
    advance_io(&mut account, &[shell(), hidden()], &[], alone());
    // The shell ignores SIGCHLD.
    for ended in [Some(gone(hidden(), ROOT)), None, None] {
        assert_eq!(advance_io(&mut account, &[shell()], ended.as_slice(), alone()).0, 0);
    }
    let more = advance_io(&mut account, &[reads(1, 0, Some(8), false)], &[], alone());
    assert_eq!((more, account.counted.io.read_bytes), ((3, false), 1008));
}

#[test]
fn what_is_hidden_no_more_counts_once() {
    const HIDDEN: Heir = Heir::Member((2, 2));
    let mut account = Account::new();
    let shell = || reads(1, 0, Some(5), false);
    let hidden = || reads(2, 1, None, true);
    advance_io(&mut account, &[shell(), hidden(), reads(3, 2, Some(1000), false)], &[], alone());
    advance_io(&mut account, &[shell(), hidden()], &[gone(reads(3, 2, Some(1000), false), HIDDEN)], alone());
    advance_io(&mut account, &[shell(), hidden()], &[], alone());
    // It became one of ours.
    let counted = advance_io(&mut account, &[shell(), reads(2, 1, Some(1030), false)], &[], alone());
    assert_eq!(counted, (30, true));
}

#[test]
fn at_the_end_what_was_hidden_is_the_kernel_s() {
    let mut account = Account::new();
    let hidden = || reads(1, 0, Some(0), true);
    assert_eq!(advance_io(&mut account, &[hidden()], &[], alone()), (0, false));
    let usage = Usage { io: Io { read_bytes: 512, ..Io::default() }, ..Usage::default() };
    let all = [gone(hidden(), Heir::Tracker)];
    assert_eq!(advance_io(&mut account, &[], &all, Reaped { usage, root: true }), (512, true));
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
    let group = |ticks: u64| Some(CpuStat { used: ticks * TICK, user: ticks * TICK / 2, throttling: None });
    let root = [member(1, 0, 10, 0)];
    let Counted { used, accounting, is_whole } = account.advance(&root, &[], &alone(), group(50), true, u64::MAX);
    assert_eq!((used.cpu, used.user), (50 * TICK, 25 * TICK));
    assert_eq!((accounting, is_whole), (ProcessAccounting::Cgroup, true));
    let moved_out = [member(1, 0, 70, 0)];
    let Counted { used, accounting, .. } = account.advance(&moved_out, &[], &alone(), group(50), true, u64::MAX);
    assert_eq!((used.cpu, accounting), (20 * TICK, ProcessAccounting::Exact));
}

#[test]
fn what_comes_late_makes_no_spike() {
    let mut account = Account::new();
    let mut used = |own, reaped: &Reaped| {
        account.advance(&[member(1, 0, own, 0)], &[], reaped, None, true, 4 * TICK).used.cpu / TICK
    };
    assert_eq!([used(1, &alone()), used(8, &alone()), used(9, &alone())], [1, 4, 4]);
    assert_eq!(used(0, &reaped(20, true)), 11, "the last interval has all that is left");
}

#[test]
fn a_tree_that_was_there_before_counts_from_now() {
    let mut account = Account::new();
    let mut used =
        |own| account.advance(&[member(1, 0, own, 500)], &[], &alone(), None, false, u64::MAX).used.cpu / TICK;
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
