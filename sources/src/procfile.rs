//! A file of procfs that stays open and is read again at each tick.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::buffer::spare_capacity;
use rustix::io::{pread, read};

use resource_tracker_scan::words;

/// `seq_file` fills a page as long as the next record fits, so a read that leaves this much of the smallest page is
/// the last one, and the read that would only say "end of file" is saved. No record of the files read so is longer.
const RECORD: usize = 1024;
const PAGE: usize = 4096;

/// Room for most files: a page of memory is shared by several of them.
const SMALL: usize = 1024;

#[derive(Debug)]
pub(crate) struct ProcFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Whether it was said that nothing can be made of it.
    has_said: bool,
}

impl ProcFile {
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { path, file, buffer: Vec::new(), has_said: false })
    }

    /// The file, or `None` where this kernel has none.
    pub(crate) fn open_if_present(path: PathBuf) -> Option<Self> {
        Self::open(path).ok()
    }

    /// What the file says now.
    pub(crate) fn read(&mut self) -> anyhow::Result<&[u8]> {
        self.read_until(PAGE - RECORD)
    }

    /// The same of a file whose records can be of any length, until it says that it is at its end.
    pub(crate) fn read_to_end(&mut self) -> anyhow::Result<&[u8]> {
        self.read_until(1)
    }

    /// What `parse` makes of what it says now; `None` where nothing can be made of it, which is said once.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn try_parse<T>(&mut self, parse: impl FnOnce(&[u8]) -> Option<T>) -> anyhow::Result<Option<T>> {
        self.read()?;
        let parsed = parse(&self.buffer);
        if parsed.is_none() && !std::mem::replace(&mut self.has_said, true) {
            log::warn!("{} says what cannot be read; what is taken from it is null", self.path.display());
        }
        Ok(parsed)
    }

    /// The same, and `None` as well when it cannot be read.
    pub(crate) fn parse<T>(&mut self, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        self.try_parse(parse).ok()?
    }

    fn read_until(&mut self, less_than: usize) -> anyhow::Result<&[u8]> {
        let read = read_until(&self.file, &mut self.buffer, less_than);
        read.with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(&self.buffer)
    }
}

/// That a line of a file cannot be read, by its first word: the rest can be another one every time, and is to be said once.
pub(crate) fn unreadable(file: &str, line: &[u8]) -> anyhow::Error {
    let name = String::from_utf8_lossy(words(line).next().unwrap_or_default());
    anyhow::anyhow!("{file}: the line {name:?} cannot be read")
}

/// Reads a whole file of procfs from its beginning into `buffer`, in place of what is there.
pub(crate) fn read_at(file: &File, buffer: &mut Vec<u8>) -> io::Result<()> {
    read_until(file, buffer, PAGE - RECORD)
}

/// Up to the read that gives `less_than` so many bytes.
fn read_until(file: &File, buffer: &mut Vec<u8>, less_than: usize) -> io::Result<()> {
    read_all(buffer, less_than, |buffer| {
        let offset = buffer.len() as u64;
        Ok(pread(file, spare_capacity(buffer), offset)?)
    })
}

/// The same of anything that `read` adds more of to the buffer, as far as there is room in it.
fn read_all(
    buffer: &mut Vec<u8>,
    less_than: usize,
    mut read: impl FnMut(&mut Vec<u8>) -> io::Result<usize>,
) -> io::Result<()> {
    buffer.clear();
    loop {
        if buffer.capacity() == 0 {
            buffer.reserve_exact(SMALL);
        } else if !buffer.is_empty() && buffer.capacity() - buffer.len() < PAGE {
            // What is not written to takes no memory.
            buffer.reserve(2 * PAGE);
        }
        let room = buffer.capacity() - buffer.len();
        match read(buffer) {
            Ok(count) if count < less_than.min(room) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => (),
        }
    }
}

/// Reads a file that is not kept open into `buffer`.
pub(crate) fn read_into<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    read_at(&File::open(path)?, buffer)?;
    Ok(buffer)
}

/// A file of procfs or sysfs that is read once, whatever its records are; nothing where there is none. (`fs::read` asks for its
/// length, which the kernel does not know, and then for a few bytes at a time.)
pub(crate) fn read_once(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    read_until(&File::open(path).ok()?, &mut text, 1).ok()?;
    Some(text)
}

/// The text of a small sysfs attribute, trimmed; `None` when it is missing, unreadable or empty.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    // One read gives all of it: an attribute is a page at most.
    let mut page = [MaybeUninit::uninit(); PAGE];
    let (text, _) = read(File::open(path).ok()?, &mut page).ok()?;
    let text = String::from_utf8_lossy(text);
    Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()).filter(|text| !text.is_empty())
}

/// Bytes of a sector in `/proc/diskstats` and sysfs, whatever the drive's own sectors are.
pub(crate) const SECTOR: u64 = 512;

/// What says little about a shorter time is not read more often, whatever the interval. (A little less than 100 ms, so
/// that a tick of that interval that comes early counts.)
pub(crate) const FASTEST: Duration = Duration::from_millis(95);

/// How long the first sample waits for what a background thread finds out, so that even a short run has it.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_millis(20);

/// Sets `target` without an allocation when nothing changed.
pub(crate) fn assign<T: Clone + PartialEq>(target: &mut T, value: &T) {
    if target != value {
        target.clone_from(value);
    }
}

/// The rate of a counter over `secs`: 0 without a time, or when the counter was reset.
pub(crate) fn rate(now: u64, before: u64, secs: f64) -> f64 {
    if secs > 0.0 { now.saturating_sub(before) as f64 / secs } else { 0.0 }
}

/// Bytes as MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// `part` of `whole` in percent; 0 when there is no whole.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Records as `seq_file` gives them: whole ones, as many as fit a page.
    struct Records(Vec<Vec<u8>>);

    impl Records {
        fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
            let (offset, room) = (buffer.len(), buffer.capacity() - buffer.len());
            let (mut begin, mut page) = (0, Vec::new());
            for record in &self.0 {
                let end = begin + record.len();
                let rest = record.get(offset.saturating_sub(begin)..).unwrap_or_default();
                if end > offset && !page.is_empty() && page.len() + rest.len() > PAGE {
                    break;
                }
                page.extend(rest);
                begin = end;
            }
            let count = page.len().min(room);
            buffer.extend(&page[..count]);
            Ok(count)
        }
    }

    #[test]
    fn long_records_are_read_to_the_end() -> anyhow::Result<()> {
        let records = Records((0..8).map(|cpu| vec![b'0' + cpu; 1500]).collect());
        let mut buffer = Vec::new();
        read_all(&mut buffer, 1, |buffer| records.read(buffer))?;
        assert_eq!(buffer, records.0.concat());
        let mut buffer = Vec::with_capacity(PAGE);
        read_all(&mut buffer, PAGE - RECORD, |buffer| records.read(buffer))?;
        assert_eq!(buffer.len(), 3000, "too early");
        Ok(())
    }

    proptest! {
        /// Whatever the room is: the first time, and when the file has grown since.
        #[test]
        fn records_of_any_number_are_read_whole(
            lengths in prop::collection::vec(1..=RECORD, 0..20),
            capacity in 0..3 * PAGE,
            to_the_end: bool,
        ) {
            let records = Records(lengths.into_iter().enumerate().map(|(n, length)| vec![n as u8; length]).collect());
            let mut buffer = Vec::with_capacity(capacity);
            for _ in 0..2 {
                let less_than = if to_the_end { 1 } else { PAGE - RECORD };
                read_all(&mut buffer, less_than, |buffer| records.read(buffer)).unwrap();
                prop_assert_eq!(&buffer, &records.0.concat());
            }
        }
    }

    #[test]
    fn a_file_of_many_pages_is_read_whole_and_again() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("file");
        for length in [0, 1, PAGE - RECORD, PAGE, 5 * PAGE + 7] {
            std::fs::write(&path, vec![b'x'; length])?;
            let mut file = ProcFile::open(path.clone())?;
            assert_eq!(file.read()?.len(), length);
            assert_eq!(file.read()?.len(), length);
        }
        Ok(())
    }
}
