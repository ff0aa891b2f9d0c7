//! The C library's allocator.

/// Lets all threads share one heap. The C library gives each a heap of its own, for speed that nothing here needs: what
/// one thread frees, another one uses.
pub(crate) fn share_one() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number, before there is a second thread.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}
