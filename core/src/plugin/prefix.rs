//! Structs of the contract that begin with their size, as its writer knows it: a reader copies what both sides know.

use std::mem::MaybeUninit;

use super::abi::{DerivationTable, PluginTable, SinkTable, SourceTable, TickTable};

/// A struct that begins with its size.
///
/// # Safety
/// The first field is the size, a `usize`, and all zeros is a value: what an older writer does not have is 0 or null.
pub(super) unsafe trait SizePrefixed: Copy {}

// SAFETY: each begins with its size, and consists of numbers, pointers and functions that may be null.
unsafe impl SizePrefixed for PluginTable {}
// SAFETY: the same.
unsafe impl SizePrefixed for SourceTable {}
// SAFETY: the same.
unsafe impl SizePrefixed for SinkTable {}
// SAFETY: the same.
unsafe impl SizePrefixed for DerivationTable {}
// SAFETY: the same.
unsafe impl SizePrefixed for TickTable {}

/// The size that the writer says.
///
/// # Safety
/// `table` points to a struct that begins with its size.
pub(super) unsafe fn size_of_table<T: SizePrefixed>(table: *const T) -> usize {
    // SAFETY: the caller's promise.
    unsafe { table.cast::<usize>().read() }
}

/// Copies as much as both sides know. The rest is zero.
///
/// # Safety
/// `table` points to a struct that begins with its size, and has so many bytes.
pub(super) unsafe fn known_part<T: SizePrefixed>(table: *const T) -> T {
    let mut known = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller's promise; zeros behind the bytes that are copied are a value.
    unsafe {
        let size = size_of_table(table).min(size_of::<T>());
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), known.as_mut_ptr().cast(), size);
        known.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    const TICK: TickTable = TickTable {
        size: size_of::<TickTable>(),
        number: 7,
        timestamp_ns: 1,
        elapsed_ns: 2,
        flags: 3,
        root_pid: 4,
        pids: std::ptr::null(),
        pid_count: 0,
        interval_ns: 5,
    };

    #[test]
    fn what_an_older_writer_does_not_have_is_zero() {
        let older = TickTable { size: offset_of!(TickTable, interval_ns), ..TICK };
        // SAFETY: it is there, and is longer than it says.
        let known = unsafe { known_part(&older) };
        assert_eq!((known.number, known.root_pid, known.interval_ns), (7, 4, 0));
    }

    #[test]
    fn what_a_newer_writer_has_on_top_is_left_out() {
        #[repr(C)]
        struct Newer {
            tick: TickTable,
            more: [u64; 4],
        }
        let newer = Newer { tick: TickTable { size: size_of::<Newer>(), ..TICK }, more: [9; 4] };
        assert_eq!(newer.more.len(), 4);
        // SAFETY: it begins with its size, and has so many bytes.
        let known = unsafe { known_part((&raw const newer).cast::<TickTable>()) };
        assert_eq!((known.size, known.interval_ns), (size_of::<Newer>(), 5));
    }
}
