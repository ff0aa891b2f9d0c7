//! The C library's allocator, and what happens where it has no memory to give.
//!
//! Rust ends a program that gets no memory, and with it the exit code of the command would be lost. (A hook for that is
//! unstable, and an allocator may not panic.) So during a command, a thread that gets no memory waits for ever, and its
//! part of the recording stops. The first thread, which returns the command's exit code, gets its memory from a
//! reserve: it needs little, and soon gives it back. When the command has ended, so does the program.
//!
//! The C library, too, ends a program by `abort` if it gets no memory for the data of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::ending::Ending;
use crate::inherited::Inherited;

/// The allocator of a program that [`main!`](crate::main) defines.
#[derive(Debug)]
pub struct Heap;

/// Whether a command's exit code must not be lost.
static OUTLIVES_WANT: AtomicBool = AtomicBool::new(false);

/// Whether a thread got no memory.
static WANTS: AtomicBool = AtomicBool::new(false);

static RESERVE: Reserve = Reserve::new();

/// Code of a signal that a thread sent to a thread: of the kernel's `asm-generic/siginfo.h`.
const SI_TKILL: libc::c_int = -6;

/// How many heaps there are. With one, the threads that begin wait for one another more than they work.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

/// So much a heap has at least, in bytes. A run needs more than the C library's 128 KiB, and what it does not use costs nothing:
/// beyond it the heap of the threads grows page by page, with a system call for each.
#[cfg(target_env = "gnu")]
const LEAST: libc::c_int = 384 << 10;

/// What is not in use at its end is given back above this, and what is as large has a mapping of its own. (The C library finds
/// its own limits, unless one of these numbers is set.)
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 1 << 20;

/// Lets the threads share heaps. The C library gives each a heap of its own, for speed that nothing here needs: what one
/// thread frees, another one uses.
pub(crate) fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets numbers, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        libc::mallopt(libc::M_TOP_PAD, LEAST);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// From now on there may be a command: the first thread goes on where there is no memory.
pub(crate) fn outlive_want() {
    OUTLIVES_WANT.store(true, Ordering::Relaxed);
    // A SIGABRT that is ignored stays so: `exec` would not restore that for the command.
    if !Inherited::ignores(Signal::SIGABRT) {
        let action = SigAction::new(SigHandler::SigAction(at_abort), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler makes nothing but system calls.
        let _ = unsafe { sigaction(Signal::SIGABRT, &action) };
    }
}

/// There is no command: the program ends where there is no memory, as others do.
pub(crate) fn end_in_want_as_usual() {
    OUTLIVES_WANT.store(false, Ordering::Relaxed);
    Inherited::restore_abort();
}

/// The program ends by the signal when this returns, whoever sent it, unless it is the C library that gets no memory.
extern "C" fn at_abort(number: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over valid information, which has a sender where it has this code; the call returns a number.
    let is_own = unsafe { (*info).si_code == SI_TKILL && (*info).si_pid() == libc::getpid() };
    let may_wait = !is_first_thread() || Ending::settled().is_some();
    if is_own && OUTLIVES_WANT.load(Ordering::Relaxed) && may_wait && has_no_room() {
        wait_for_ever();
    }
    Inherited::restore_abort();
    // It is blocked until this returns.
    // SAFETY: a system call on a number.
    unsafe { libc::raise(number) };
}

/// Whether the C library's allocator cannot grow.
fn has_no_room() -> bool {
    const SIZE: usize = 1 << 20;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: it is new memory at a place of the kernel's choice, which nobody uses.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), SIZE, access, kind, -1, 0);
        memory == libc::MAP_FAILED || libc::munmap(memory, SIZE) != 0
    }
}

/// Whether this is the thread that returns the command's exit code.
fn is_first_thread() -> bool {
    // SAFETY: both return a number.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Whether a thread of this program waits for ever.
pub(crate) fn is_in_want() -> bool {
    WANTS.load(Ordering::Relaxed)
}

// SAFETY: memory is the system's or the reserve's, goes back where it came from, and neither panics.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { in_want(layout) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = in_want(layout);
        if !memory.is_null() {
            // SAFETY: it is of this size. It can have been in use before.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !RESERVE.holds(memory) {
            // SAFETY: the caller's promise, and it is the system's.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's promise: the alignment is one, and the size is in bounds. Where there is no memory the old
        // one stays; else it is copied as far as both reach, and goes back.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if RESERVE.holds(memory) {
            RESERVE.give_back();
        } else {
            // SAFETY: the caller's promise, and it is the system's.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}

/// The memory of a thread that gets none from the system.
#[cold]
fn in_want(layout: Layout) -> *mut u8 {
    if !OUTLIVES_WANT.load(Ordering::Relaxed) {
        return std::ptr::null_mut();
    }
    if is_first_thread() {
        let piece = RESERVE.take(layout);
        if !piece.is_null() || Ending::settled().is_none() {
            return piece;
        }
    }
    wait_for_ever()
}

/// Waits for ever, or until the command has ended.
fn wait_for_ever() -> ! {
    if !WANTS.swap(true, Ordering::Relaxed) {
        say();
    }
    if let Some(ending) = Ending::settled() {
        ending.end_at_once();
    }
    loop {
        // SAFETY: it returns when a handler of a signal has.
        unsafe { libc::pause() };
    }
}

/// Warns without the logger, which would ask for memory.
fn say() {
    const TEXT: &str =
        concat!(env!("CARGO_PKG_NAME"), ": warning: there is no memory left to record the command with\n");
    // SAFETY: a system call on a constant text. What cannot be said is not.
    unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
}

/// Memory that is handed out from one end, and whole again when all of it was given back.
struct Reserve {
    memory: UnsafeCell<[u8; Reserve::SIZE]>,
    /// How many pieces are out, in the upper half, and where the next one begins.
    state: AtomicU64,
}

// SAFETY: nobody uses the memory but through pieces that were handed out, each once.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// It takes no memory before it is used.
    const SIZE: usize = 256 << 10;
    const PIECE: u64 = 1 << 32;

    const fn new() -> Self {
        Self { memory: UnsafeCell::new([0; Self::SIZE]), state: AtomicU64::new(0) }
    }

    /// A piece; null when there is none of that size.
    fn take(&self, layout: Layout) -> *mut u8 {
        let first = self.memory.get().cast::<u8>();
        let begin = |state: u64| {
            let next = first.wrapping_add((state % Self::PIECE) as usize);
            next.addr().next_multiple_of(layout.align()) - first.addr()
        };
        let taken = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let end = begin(state).checked_add(layout.size()).filter(|end| *end <= Self::SIZE)?;
            Some((state / Self::PIECE + 1) * Self::PIECE + end as u64)
        });
        taken.map_or(std::ptr::null_mut(), |state| first.wrapping_add(begin(state)))
    }

    fn holds(&self, memory: *mut u8) -> bool {
        memory.addr().wrapping_sub(self.memory.get().addr()) < Self::SIZE
    }

    /// Gives a piece back.
    fn give_back(&self) {
        let one_less = |state: u64| if state / Self::PIECE == 1 { 0 } else { state - Self::PIECE };
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(one_less(state)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_whole_again_when_all_was_given_back() {
        let reserve = Box::new(Reserve::new());
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        for _ in 0..2 {
            let pieces = [layout(3, 1), layout(8, 8), layout(100, 64), layout(1 << 10, 4096)].map(|layout| {
                let piece = reserve.take(layout);
                assert!(reserve.holds(piece) && piece.addr().is_multiple_of(layout.align()));
                // SAFETY: it is of this size, and nobody else's.
                unsafe { piece.write_bytes(layout.size() as u8, layout.size()) };
                (piece, layout.size())
            });
            for (piece, size) in pieces {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(piece, size) };
                assert!(bytes.iter().all(|byte| *byte == size as u8), "no other piece lies in it");
            }
            assert!(reserve.take(layout(Reserve::SIZE, 1)).is_null() && reserve.take(layout(1 << 40, 1)).is_null());
            pieces.iter().for_each(|_| reserve.give_back());
        }
        let whole = reserve.take(layout(Reserve::SIZE, 1));
        assert!(reserve.holds(whole) && !reserve.holds(whole.wrapping_add(Reserve::SIZE)));
        assert!(!reserve.holds(whole.wrapping_sub(1)) && !reserve.holds(std::ptr::null_mut()));
        assert!(reserve.take(layout(1, 1)).is_null());
    }

    #[test]
    fn memory_moves_from_the_reserve_to_the_system() {
        let layout = Layout::from_size_align(16, 8).unwrap();
        let memory = RESERVE.take(layout);
        // SAFETY: each is used as the layout says and goes back once.
        unsafe {
            memory.write_bytes(7, 16);
            let moved = Heap.realloc(memory, layout, 32);
            assert!(!RESERVE.holds(moved) && std::slice::from_raw_parts(moved, 16) == [7; 16]);
            let shorter = Heap.realloc(moved, Layout::from_size_align(32, 8).unwrap(), 8);
            Heap.dealloc(shorter, Layout::from_size_align(8, 8).unwrap());
        }
        assert_eq!(RESERVE.state.load(Ordering::Relaxed), 0);
    }
}
