//! A new file when this one is full or old: `run.jsonl` becomes `run.1.jsonl`, the next one `run.2.jsonl`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::contents::Contents;
use super::location::Location;

pub(super) struct Rotation {
    bytes: u64,
    age: Duration,
    keep: usize,
}

impl Rotation {
    /// Zero turns a limit off.
    pub(super) fn new(bytes: u64, age: Duration, keep: u32) -> Self {
        Self { bytes, age, keep: keep as usize }
    }

    pub(super) fn is_on(&self) -> bool {
        self.bytes > 0 || !self.age.is_zero()
    }

    /// Whether a file of this length and age is to be followed by a new one.
    pub(super) fn is_due(&self, length: u64, age: Duration) -> bool {
        let is_full = self.bytes > 0 && length >= self.bytes;
        let is_old = !self.age.is_zero() && age >= self.age && length > 0;
        is_full || is_old
    }

    /// Deletes the oldest files that were set aside, of those that hold what `contents` says and are the user's. One
    /// with a torn end stays: a warning has said that it is kept.
    pub(super) fn delete_old(&self, location: &Location, contents: Contents) -> anyhow::Result<()> {
        if self.keep == 0 {
            return Ok(());
        }
        let mut old = set_aside_before(location);
        old.retain(|(_, name)| location.look_at(name).is_some_and(|file| contents.are_in(&file)));
        for (_, name) in &old[..old.len().saturating_sub(self.keep)] {
            if let Some(file) = location.look_at(name)
                && contents.are_in(&file)
                && contents.end_whole(&file).unwrap_or(false)
            {
                location.remove(name, &file)?;
            }
        }
        Ok(())
    }
}

/// Gives the file the next name with a number that is free, and returns it.
pub(super) fn set_aside(location: &Location) -> anyhow::Result<PathBuf> {
    let path = location.path();
    let mut number = set_aside_before(location).last().map_or(0, |(number, _)| *number);
    loop {
        number = number.checked_add(1).with_context(|| format!("no number is left for {}", path.display()))?;
        let name = with_number(location.name(), number);
        match location.rename_to_new(&name) {
            Ok(()) => return Ok(path.with_file_name(name)),
            Err(Errno::EXIST) => (),
            Err(error) => bail!("cannot rename {} to {}: {error}", path.display(), name.display()),
        }
    }
}

/// Splits `run.csv.gz` into `run` and `.csv.gz`, so that a number can stand between.
fn split(name: &OsStr) -> (&[u8], &[u8]) {
    let name = name.as_bytes();
    let stem = name.strip_suffix(b".gz").unwrap_or(name);
    let dot = stem.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    name.split_at(dot.unwrap_or(stem.len()))
}

fn with_number(name: &OsStr, number: u64) -> OsString {
    let (stem, suffix) = split(name);
    OsString::from_vec([stem, format!(".{number}").as_bytes(), suffix].concat())
}

/// The files of the user beside this one whose names `with_number` makes, the oldest first. Files of other users do not
/// count: one of them could have the last number.
fn set_aside_before(location: &Location) -> Vec<(u64, OsString)> {
    let of = location.name();
    let names = location.names(|name| number(of, name).is_some());
    let mut found: Vec<_> = names.into_iter().filter_map(|name| Some((number(of, &name)?, name))).collect();
    found.sort_unstable();
    found
}

/// The number with which `with_number` makes `name` from `of`.
fn number(of: &OsStr, name: &OsStr) -> Option<u64> {
    let (stem, suffix) = split(of);
    let between = name.as_bytes().strip_prefix(stem)?.strip_prefix(b".")?.strip_suffix(suffix)?;
    let number: u64 = std::str::from_utf8(between).ok()?.parse().ok()?;
    // `with_number` never makes `007` or `+7`.
    (number > 0 && number.to_string().as_bytes() == between).then_some(number)
}

/// The files that were set aside of this one, the oldest first: those beside it with its name and a number, if the same user
/// owns them.
///
/// # Errors
/// When the file or its folder cannot be looked at.
pub fn set_aside_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let owner = fs::metadata(path)?.uid();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(number) = number(name, &entry.file_name())
            && entry.metadata().is_ok_and(|file| file.is_file() && file.uid() == owner)
        {
            found.push((number, path.with_file_name(entry.file_name())));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Opens a part of a recording that nobody named, as [`set_aside_of`] finds them. Who may write to its folder can have put
/// something else in its place by now: that is not followed, waited for or read.
///
/// # Errors
/// When it cannot be opened, or is not a regular file of this owner.
pub fn open_part(path: &Path, owner: u32) -> io::Result<fs::File> {
    let how = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = fs::File::options().read(true).custom_flags(how).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != owner {
        return Err(io::Error::other("it was replaced by something that is no part of the recording"));
    }
    Ok(file)
}

/// The file that this one was set aside of, going by its name, and its number: `run.jsonl` and 2 for `run.2.jsonl`.
pub fn set_aside_from(path: &Path) -> Option<(PathBuf, u64)> {
    let name = path.file_name()?;
    let parts: Vec<&[u8]> = name.as_bytes().split(|byte| *byte == b'.').collect();
    (1..parts.len()).find_map(|at| {
        let of = OsString::from_vec([&parts[..at], &parts[at + 1..]].concat().join(&b'.'));
        Some((path.with_file_name(&of), number(&of, name)?))
    })
}

#[cfg(test)]
mod tests {
    use super::super::location::tests::located;
    use super::*;

    #[test]
    fn the_number_stands_before_the_suffixes() {
        let name = |name: &str| with_number(OsStr::new(name), 7).display().to_string();
        assert_eq!(name("run.jsonl"), "run.7.jsonl");
        assert_eq!(name("my.run.csv.gz"), "my.run.7.csv.gz");
        assert_eq!(name("run"), "run.7");
        assert_eq!(name("run.gz"), "run.7.gz");
        assert_eq!(name(".hidden"), ".hidden.7");
    }

    #[test]
    fn only_names_of_ours_have_a_number() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["run.2.jsonl", "run.10.jsonl", "run.007.jsonl", "run.+3.jsonl", "run.x.jsonl", "run.0.jsonl"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::create_dir(directory.path().join("run.11.jsonl")).unwrap();
        let found = set_aside_before(&located(&directory.path().join("run.jsonl")));
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 10]);
        let path = directory.path().join("run.jsonl");
        assert!(set_aside_of(&path).is_err(), "it does not exist");
        fs::write(&path, "").unwrap();
        let set = ["run.2.jsonl", "run.10.jsonl"].map(|name| directory.path().join(name));
        assert_eq!(set_aside_of(&path).unwrap(), set);
    }

    #[test]
    fn what_took_the_place_of_a_part_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let [part, link, fifo] = ["run.1.jsonl", "run.2.jsonl", "run.3.jsonl"].map(|name| directory.path().join(name));
        fs::write(&part, "rows").unwrap();
        std::os::unix::fs::symlink(&part, &link).unwrap();
        let fifo_mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, fifo_mode, 0).unwrap();
        let owner = fs::metadata(&part).unwrap().uid();
        assert_eq!(open_part(&part, owner).and_then(io::read_to_string).unwrap(), "rows");
        for (path, owner) in [(&link, owner), (&fifo, owner), (&part, owner + 1)] {
            assert!(open_part(path, owner).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn a_name_with_a_number_tells_what_it_was_made_of() {
        for name in ["run.jsonl", "my.run.csv.gz", "run", "run.gz", ".hidden", "run.3.jsonl"] {
            let found = set_aside_from(&Path::new("a").join(with_number(OsStr::new(name), 7)));
            assert_eq!(found, Some((Path::new("a").join(name), 7)), "{name}");
        }
        for name in ["run.jsonl", "run.07.jsonl", "7.jsonl", "7", ".."] {
            assert_eq!(set_aside_from(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn the_last_number_and_names_of_any_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(OsStr::from_bytes(b"r\xff.jsonl"));
        let location = located(&path);
        for _ in 0..3 {
            fs::write(&path, "").unwrap();
            set_aside(&location).unwrap();
        }
        assert_eq!(set_aside_before(&location).len(), 3);
        fs::write(path.with_file_name(with_number(location.name(), u64::MAX)), "").unwrap();
        fs::write(&path, "").unwrap();
        assert!(set_aside(&location).unwrap_err().to_string().starts_with("no number is left"));
        assert!(path.exists());
    }
}
