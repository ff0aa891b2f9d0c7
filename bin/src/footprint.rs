//! Resident memory: what only the start needed is given back once the run has settled.

use std::ffi::{c_int, c_void};
use std::ops::Range;
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

/// Takes the pages of programs and libraries out of this process. They stay in the page cache, and those that are used again
/// come back from there.
fn give_back() {
    for mapping in clean(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()) {
        advise(&mapping, libc::MADV_DONTNEED);
        for start in mapping.clone().step_by(2 * NEIGHBOURS) {
            // It is advice on core dumps, which leave such mappings out anyway; what it does is divide the mapping.
            advise(&(start..mapping.end.min(start + NEIGHBOURS)), libc::MADV_DONTDUMP);
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives back what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The mappings of files that cannot be written to and have not been: whose pages are the same when they are read again.
/// (What the loader has relocated is not, although it may be read-only by now.)
fn clean(smaps: &str) -> Vec<Range<usize>> {
    let mut clean = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        match line.strip_prefix("Anonymous:") {
            Some(size) if size.trim() == "0 kB" => clean.extend(mapping.take()),
            Some(_) => mapping = None,
            None => mapping = of_file(line).or(mapping),
        }
    }
    clean
}

/// `7f2c4a428000-7f2c4a5bd000 r-xp 00028000 fe:00 262151   /usr/lib/x86_64-linux-gnu/libc.so.6`
fn of_file(line: &str) -> Option<Range<usize>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (mode, rest) = rest.split_once(' ')?;
    let is_private_and_constant = mode.starts_with('r') && mode[1..].starts_with('-') && mode.ends_with('p');
    let has_file = rest.split_once(" /").is_some();
    let address = |text| usize::from_str_radix(text, 16).ok();
    (is_private_and_constant && has_file).then_some(address(start)?..address(end)?)
}

fn advise(range: &Range<usize>, advice: c_int) {
    // SAFETY: the range is a mapping of a file that nobody has written to, which both kinds of advice leave as it is.
    // A failure changes nothing.
    unsafe { libc::madvise(range.start as *mut c_void, range.len(), advice) };
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::event::PollFlags;

    use super::*;

    const SMAPS: &str = "\
55d0c0a00000-55d0c0b72000 r--p 00000000 fe:00 5506039                    /usr/bin/a program
Size:               1480 kB
Rss:                 512 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
55d0c0b72000-55d0c0e4b000 r-xp 00172000 fe:00 5506039                    /usr/bin/a program
Anonymous:             4 kB
55d0c0e4b000-55d0c0e6c000 r--p 0044a000 fe:00 5506039                    /usr/bin/a program
Anonymous:           132 kB
55d0c0e6c000-55d0c0e6e000 rw-p 0046a000 fe:00 5506039                    /usr/bin/a program
Anonymous:             0 kB
7f1e00000000-7f1e00021000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f1e0a428000-7f1e0a5bd000 r-xp 00028000 fe:00 262151                     /usr/lib/libc.so.6
Anonymous:             0 kB
7f1e0b000000-7f1e0b001000 r--s 00000000 fe:00 262152                     /var/cache/shared
Anonymous:             0 kB
7ffd5a5f0000-7ffd5a5f2000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_what_is_the_same_in_the_file_is_given_back() {
        assert_eq!(clean(SMAPS), [0x55d0c0a00000..0x55d0c0b72000, 0x7f1e0a428000..0x7f1e0a5bd000]);
        for cut in 0..SMAPS.len() {
            clean(&SMAPS[cut..]);
        }
    }

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
