//! Values that are shared for a while and then filled anew, so that a warm tick allocates nothing.

use std::sync::Arc;

/// After so many fills, values that none of them needed are dropped: a sink that stood still does not cost memory for ever.
const PERIOD: u32 = 1024;

/// A set of values. Those that nothing else holds can be filled again.
pub(crate) struct Pool<T> {
    items: Vec<Arc<T>>,
    fills: u32,
    /// So many of the items were needed since `fills` was zero.
    needed: usize,
}

impl<T: Default> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), fills: 0, needed: 0 }
    }

    /// Lets `fill` write into a value that nothing else holds, and shares it.
    ///
    /// What an earlier use left in the value is still there: its buffers are what the pool is for.
    pub(crate) fn fill<R>(&mut self, fill: impl FnOnce(&mut T) -> R) -> (Arc<T>, R) {
        let free = self.items.iter().position(|item| Arc::strong_count(item) == 1);
        let index = free.unwrap_or_else(|| {
            self.items.push(Arc::default());
            self.items.len() - 1
        });
        self.needed = self.needed.max(index + 1);
        let item = &mut self.items[index];
        // A weak reference is never made, so a count of one is the only one there is.
        let result = match Arc::get_mut(item) {
            Some(value) => fill(value),
            None => {
                let mut value = T::default();
                let result = fill(&mut value);
                *item = Arc::new(value);
                result
            }
        };
        let shared = Arc::clone(item);
        self.fills += 1;
        if self.fills == PERIOD {
            self.items.truncate(self.needed);
            (self.fills, self.needed) = (0, 0);
        }
        (shared, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_reused_only_when_nobody_holds_it() {
        let mut pool: Pool<Vec<u8>> = Pool::new();
        let (first, ()) = pool.fill(|bytes| bytes.push(1));
        let (second, ()) = pool.fill(|bytes| bytes.push(2));
        assert_eq!((&first[..], &second[..]), (&[1][..], &[2][..]));
        drop(first);
        let (third, ()) = pool.fill(|bytes| bytes.push(3));
        assert_eq!(&third[..], &[1, 3]);
        assert_eq!(pool.items.len(), 2);
    }

    #[test]
    fn what_was_needed_once_is_dropped_when_it_is_not_needed_again() {
        let mut pool: Pool<u32> = Pool::new();
        let held: Vec<_> = (0..500).map(|number| pool.fill(|value| *value = number).0).collect();
        drop(held);
        for _ in 0..2 * PERIOD {
            pool.fill(|value| *value += 1);
        }
        assert_eq!(pool.items.len(), 1);
    }
}
