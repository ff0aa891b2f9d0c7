//! Values that are shared for a while and then filled anew, so that a warm tick allocates nothing.

use std::sync::Arc;

/// A set of values. Those that nothing else holds can be filled again.
pub(crate) struct Pool<T> {
    items: Vec<Arc<T>>,
}

impl<T: Default> Pool<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// Lets `fill` write into a value that nothing else holds, and shares it.
    ///
    /// What an earlier use left in the value is still there: its buffers are what the pool is for.
    pub(crate) fn fill<R>(&mut self, fill: impl FnOnce(&mut T) -> R) -> (Arc<T>, R) {
        let free = self.items.iter().position(|item| Arc::strong_count(item) == 1);
        let mut item = match free {
            Some(index) => self.items.swap_remove(index),
            None => Arc::new(T::default()),
        };
        // A weak reference is never made, so a count of one is the only one there is.
        let result = match Arc::get_mut(&mut item) {
            Some(value) => fill(value),
            None => {
                let mut value = T::default();
                let result = fill(&mut value);
                item = Arc::new(value);
                result
            }
        };
        self.items.push(Arc::clone(&item));
        (item, result)
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
}
