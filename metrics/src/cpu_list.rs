//! Numbers of CPUs as the kernel writes them: `0-3,8`.

use std::ops::RangeInclusive;

/// The list of these numbers, which are in ascending order.
pub fn text(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// How many CPUs a list has.
pub fn count(list: &str) -> Option<u64> {
    let size = |range: RangeInclusive<u64>| (range.end() - range.start()).checked_add(1);
    ranges(list).map(|range| range.and_then(size)).try_fold(0u64, |sum, count| sum.checked_add(count?))
}

/// The numbers in a list, as far as it can be read. A short text can have more of them than there is room for.
pub fn numbers(list: &str) -> impl Iterator<Item = u64> + '_ {
    ranges(list).map_while(|range| range).flatten()
}

fn ranges(list: &str) -> impl Iterator<Item = Option<RangeInclusive<u64>>> + '_ {
    list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(first..=last)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        for (numbers, list) in [(&[][..], ""), (&[0], "0"), (&[0, 1, 2, 6, 8, 9], "0-2,6,8-9")] {
            assert_eq!(text(numbers.iter().copied()), list);
        }
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!([count("0"), count("0-3"), count("0-3,8,10-11")], [Some(1), Some(4), Some(7)]);
        assert_eq!([count(""), count("3-0"), count("x")], [None; 3]);
    }

    #[test]
    fn lists_have_numbers() {
        for (list, expected) in [("0-2,6", &[0, 1, 2, 6][..]), ("3", &[3]), ("", &[]), ("5-2", &[]), ("1,x,2", &[1])] {
            assert_eq!(numbers(list).collect::<Vec<_>>(), expected, "{list}");
        }
        assert_eq!(numbers("0-99999999999").take(3).count(), 3);
    }

    proptest! {
        #[test]
        fn what_is_written_is_counted(numbers in prop::collection::btree_set(0u64..5000, 1..50)) {
            let list = text(numbers.iter().copied());
            prop_assert_eq!(count(&list), Some(numbers.len() as u64));
            prop_assert!(super::numbers(&list).eq(numbers));
        }

        #[test]
        fn any_list_is_counted_or_refused(list in "[0-9,x -]{0,40}") {
            count(&list);
        }
    }
}
