#![allow(clippy::unwrap_used, reason = "it is a test")]

use proptest::prelude::*;

use super::Width::{Bits32, Bits64};
use super::{Count, Total, Width, added};

/// The total after each of these readings, a second apart.
fn totals(width: Width, readings: &[u64]) -> Vec<u64> {
    let mut total = Total::default();
    readings.iter().map(|now| total.advance(Some(*now), width, 1.0).unwrap().total).collect()
}

#[test]
fn thirty_two_bits_wrap_and_sixty_four_do_not() {
    assert_eq!(totals(Bits32, &[4_294_967_290, 94]), [4_294_967_290, 4_294_967_390]);
    assert_eq!(totals(Bits64, &[4_294_967_290, 94]), [4_294_967_290, 4_294_967_384]);
    assert_eq!(totals(Bits64, &[u64::MAX - 3, 5]), [u64::MAX - 3, u64::MAX]);
}

#[test]
fn one_that_was_reset_is_no_wrap() {
    // Far from its end.
    assert_eq!(totals(Bits32, &[1_000_000, 7]), [1_000_000, 1_000_007]);
    // At its end, where it had stopped.
    assert_eq!(totals(Bits32, &[u32::MAX.into(), u32::MAX.into(), 7]), [4_294_967_295, 4_294_967_295, 4_294_967_302]);
    assert_eq!(totals(Bits64, &[9_000_000_000_000, 25, 30]), [9_000_000_000_000, 9_000_000_000_025, 9_000_000_000_030]);
}

#[test]
fn a_rate_covers_the_time_since_the_reading_before() {
    let mut total = Total::default();
    assert_eq!(total.advance(None, Bits64, 1.0), None);
    assert_eq!(total.advance(Some(10), Bits64, 1.0), Some(Count { total: 10, per_sec: None }));
    assert_eq!(total.advance(None, Bits64, 1.0), None);
    assert_eq!(total.advance(None, Bits64, 1.0), None);
    assert_eq!(total.advance(Some(40), Bits64, 2.0), Some(Count { total: 40, per_sec: Some(7.5) }));
    assert_eq!(total.advance(Some(50), Bits64, 0.0), Some(Count { total: 50, per_sec: None }));
}

proptest! {
    /// A counter of 32 bits that wraps counts what was truly carried, as long as less than half its range is carried
    /// from one reading to the next. (Where it shows its very end, it cannot be told from one that has stopped.)
    #[test]
    fn a_counter_that_wraps_loses_nothing(first in 0..u32::MAX, steps in prop::collection::vec(0..1_u64 << 31, 1..50)) {
        let mut truth = u64::from(first);
        let mut total = Total::default();
        total.advance(Some(truth), Bits32, 1.0);
        for step in steps {
            truth += step;
            truth -= u64::from(truth as u32 == u32::MAX);
            let count = total.advance(Some(u64::from(truth as u32)), Bits32, 1.0);
            prop_assert_eq!(count.map(|count| count.total), Some(truth));
        }
    }

    /// One of 64 bits counts what was truly carried since the reading before or the reset.
    #[test]
    fn a_reset_adds_only_what_came_since(rounds in prop::collection::vec((0..1_u64 << 40, any::<bool>()), 1..50)) {
        let (mut shown, mut truth) = (0, 0);
        let mut total = Total::default();
        total.advance(Some(shown), Bits64, 1.0);
        for (step, reset) in rounds {
            // A reset is only seen when less was carried after it than before.
            let reset = reset && step < shown;
            shown = if reset { step } else { shown + step };
            truth += step;
            let count = total.advance(Some(shown), Bits64, 1.0);
            prop_assert_eq!(count.map(|count| count.total), Some(truth));
        }
    }

    /// Whatever is read, the total never falls and no rate is negative.
    #[test]
    fn whatever_is_read(readings in prop::collection::vec((any::<Option<u64>>(), any::<bool>()), 0..50)) {
        let (mut total, mut before) = (Total::default(), 0);
        for (now, wide) in readings {
            let width = if wide { Bits64 } else { Bits32 };
            let Some(count) = total.advance(now, width, 1.0) else { continue };
            prop_assert!(count.total >= before && count.per_sec.is_none_or(|rate| rate >= 0.0));
            before = count.total;
        }
    }

    /// A fall adds at most what is shown, or half of 32 bits.
    #[test]
    fn no_step_is_larger_than_what_can_be(before: u64, now: u64) {
        prop_assert!(added(before, now, Bits64) <= now);
        prop_assert!(added(before, now, Bits32) <= now.max(1 << 31));
    }
}
