//! How much the counters of devices grew during a run. A device counts from the moment it came up.

use std::collections::BTreeMap;

/// More devices than any machine has; those that come after are not counted.
pub(crate) const DEVICES: usize = 16_384;

/// The sum of what the counters of several devices grew by.
#[derive(Debug, Default)]
pub(crate) struct CounterSum {
    last: BTreeMap<String, u64>,
    sum: Option<u64>,
    has_more: bool,
}

impl CounterSum {
    /// Adds the reading of a device's counter. The first reading has none before it to compare with: the rate says how
    /// much the counter grew. Without a counter or a rate, nothing is added.
    pub(crate) fn add(
        &mut self,
        device: &str,
        counter: impl Into<Option<u64>>,
        rate: impl Into<Option<f64>>,
        secs: f64,
    ) {
        let (Some(counter), Some(rate)) = (counter.into(), rate.into()) else { return };
        let by_rate = |counter: u64| ((rate * secs).round() as u64).min(counter);
        let grown = match self.last.get_mut(device) {
            // After a reset, or where lines are out of order, only the rate says how much it grew.
            Some(last) => {
                let before = std::mem::replace(last, counter);
                counter.checked_sub(before).unwrap_or_else(|| by_rate(counter))
            }
            None => {
                if self.last.len() == DEVICES {
                    self.has_more = true;
                    return;
                }
                self.last.insert(device.to_owned(), counter);
                by_rate(counter)
            }
        };
        self.sum = Some(self.sum.unwrap_or(0).saturating_add(grown));
    }

    /// Takes a reading of a device of which it is not known yet whether it is in sums: if it is, what it counts from now on is added.
    pub(crate) fn remember(&mut self, device: &str, counter: impl Into<Option<u64>>) {
        if let Some(counter) = counter.into()
            && self.last.len() < DEVICES
        {
            self.last.entry(device.to_owned()).or_insert(counter);
        }
    }

    /// Whether there were more devices than are in the sum.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The sum. `None` when there was no device.
    pub(crate) fn sum(&self) -> Option<u64> {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counters_grew_by() {
        let mut sum = CounterSum::default();
        assert_eq!(sum.sum(), None);
        sum.add("sda", 1_000, 10.0, 2.0);
        sum.add("sdb", 5, 10.0, 2.0);
        assert_eq!(sum.sum(), Some(25), "not more than it has counted");
        sum.add("sda", 1_500, 0.0, 2.0);
        assert_eq!(sum.sum(), Some(525), "the counter is exact, and the rate is not");
        sum.add("sda", 900, 3.0, 2.0);
        assert_eq!(sum.sum(), Some(531), "it was reset");
        sum.remember("eth0", 100);
        sum.remember("eth0", 150);
        assert_eq!(sum.sum(), Some(531), "nobody knows whether it counts");
        sum.add("eth0", 175, 12.5, 2.0);
        assert_eq!(sum.sum(), Some(606));
    }

    #[test]
    fn what_is_too_much_is_said() {
        let mut sum = CounterSum::default();
        (0..DEVICES).for_each(|device| sum.add(&device.to_string(), 1, 1.0, 1.0));
        assert!(!sum.has_more());
        sum.add("one more", 1, 1.0, 1.0);
        assert!(sum.has_more() && sum.sum() == Some(DEVICES as u64));
    }
}
