//! Resident memory: what only the start needed is given back once the run has settled.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use nix::libc;
use rustix::event::{PollFd, Timespec, poll};

/// By then every source has been read and every sink has written.
const SETTLED: Duration = Duration::from_secs(2);

/// The kernel brings in 64 KiB around each page that is used, but nothing beyond a mapping. The few functions of a tick lie
/// scattered over the program, and would have nearly all of it counted as resident; so it is divided into mappings of
/// this size.
const NEIGHBOURS: usize = 32 << 10;

/// A program that waits, and gives back what it needs no more in between.
pub(crate) struct Footprint {
    due: Option<Instant>,
}

impl Footprint {
    pub(crate) fn new() -> Self {
        Self { due: Some(Instant::now() + SETTLED) }
    }

    /// Waits until one of these is ready, or a signal interrupts.
    pub(crate) fn wait(&mut self, ready: &mut [PollFd<'_>]) -> rustix::io::Result<()> {
        if let Some(due) = self.due {
            let left = due.saturating_duration_since(Instant::now());
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            if poll(ready, Some(&limit))? > 0 {
                return Ok(());
            }
            self.due = None;
            give_back();
        }
        poll(ready, None).map(drop)
    }
}

/// Lets all threads share one heap. The C library gives each a heap of its own, for speed that nothing here needs.
pub(crate) fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Takes the pages of programs and libraries that cannot be written to out of this process. They stay in the page cache, and
/// those that are used again come back from there.
fn give_back() {
    // SAFETY: the callback keeps to what the loader promises about its argument.
    unsafe { libc::dl_iterate_phdr(Some(give_back_object), std::ptr::null_mut()) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives back what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

unsafe extern "C" fn give_back_object(info: *mut libc::dl_phdr_info, _: libc::size_t, _: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, whose headers it keeps for as long as the object is loaded.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let page = rustix::param::page_size();
    // Segments that can be written to hold what the loader relocated, also where it is read-only afterwards.
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0) {
        let start = (base + header.p_vaddr as usize) & !(page - 1);
        let end = base + header.p_vaddr as usize + header.p_memsz as usize;
        // SAFETY: the range is a segment that was mapped from a file and never written to, so its pages are the same
        // when they are read again. A failure leaves it as it is.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        for block in (start..end).step_by(2 * NEIGHBOURS) {
            // SAFETY: the advice is of core dumps, which leave such segments out anyway; what it does is divide the
            // mapping.
            unsafe { libc::madvise(block as *mut c_void, NEIGHBOURS.min(end - block), libc::MADV_DONTDUMP) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::event::PollFlags;

    use super::*;

    #[test]
    fn the_program_goes_on_after_its_pages_were_given_back() -> anyhow::Result<()> {
        let texts: Vec<String> = (0..100).map(|number| format!("{number:04}")).collect();
        give_back();
        assert_eq!(texts.concat().len(), 400);
        let (reader, mut writer) = std::io::pipe()?;
        let mut footprint = Footprint { due: Some(Instant::now()) };
        writer.write_all(b"x")?;
        footprint.wait(&mut [PollFd::new(&reader, PollFlags::IN)])?;
        Ok(())
    }
}
