//! A new file when this one is full or old: `run.jsonl` becomes `run.1.jsonl`, the next one `run.2.jsonl`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::contents::Contents;
use super::output::Output;

/// As many links as the kernel follows.
const LINKS: usize = 40;

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

    pub(super) fn is_due(&self, output: &Output) -> bool {
        let is_full = || self.bytes > 0 && output.len() >= self.bytes;
        let is_old = || !self.age.is_zero() && output.age() >= self.age && output.len() > 0;
        is_full() || is_old()
    }

    /// Deletes the oldest files that were set aside, of those that hold what `contents` says and are the user's.
    pub(super) fn delete_old(&self, path: &Path, contents: Contents) -> anyhow::Result<()> {
        if self.keep == 0 {
            return Ok(());
        }
        let mut old = set_aside_before(&resolve(path)?);
        old.retain(|(_, path)| contents.are_in(path));
        for (_, path) in &old[..old.len().saturating_sub(self.keep)] {
            match fs::remove_file(path) {
                // Another tracker was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                result => result.with_context(|| format!("cannot delete {}", path.display()))?,
            }
        }
        Ok(())
    }
}

/// Gives the file the next name with a number, which nothing has, and returns it.
pub(super) fn set_aside(path: &Path) -> anyhow::Result<PathBuf> {
    let path = resolve(path)?;
    let mut number = set_aside_before(&path).last().map_or(0, |(number, _)| *number);
    loop {
        number = number.checked_add(1).with_context(|| format!("no number is left for {}", path.display()))?;
        let target = with_number(&path, number);
        match rename_to_new(&path, &target) {
            Ok(()) => return Ok(target),
            Err(Errno::EXIST) => (),
            Err(error) => bail!("cannot rename {} to {}: {error}", path.display(), target.display()),
        }
    }
}

/// Renames, but never over something.
fn rename_to_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS and some FUSE file systems: a link does not replace anything either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_to_new(from, to),
        result => result,
    }
}

fn link_to_new(from: &Path, to: &Path) -> Result<(), Errno> {
    linkat(CWD, from, CWD, to, AtFlags::empty())?;
    unlinkat(CWD, from, AtFlags::empty()).inspect_err(|_| {
        // The file keeps its name, and only that.
        let _ = unlinkat(CWD, to, AtFlags::empty());
    })
}

/// Where the file itself is that a path leads to, also when it does not exist yet.
///
/// # Errors
/// When it has no name to change, because the path is one of a descriptor, such as `/dev/stdout`.
pub(super) fn resolve(path: &Path) -> anyhow::Result<PathBuf> {
    let mut resolved = path.to_owned();
    for _ in 0..LINKS {
        let name = resolved.file_name().with_context(|| format!("{} is no file", path.display()))?;
        let folder = match resolved.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => parent.canonicalize(),
            None => Path::new(".").canonicalize(),
        };
        let folder = folder.with_context(|| format!("cannot find the folder of {}", path.display()))?;
        if folder.starts_with("/proc") {
            bail!("{} is a descriptor and has no name that can be changed", path.display());
        }
        let here = folder.join(name);
        match fs::read_link(&here) {
            Ok(target) => resolved = folder.join(target),
            Err(_) => return Ok(here),
        }
    }
    bail!("{} leads through too many links", path.display());
}

/// Splits `run.csv.gz` into `run` and `.csv.gz`, so that a number can stand between.
fn split(name: &OsStr) -> (&[u8], &[u8]) {
    let name = name.as_bytes();
    let stem = name.strip_suffix(b".gz").unwrap_or(name);
    let dot = stem.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    name.split_at(dot.unwrap_or(stem.len()))
}

fn with_number(path: &Path, number: u64) -> PathBuf {
    let (stem, suffix) = split(path.file_name().unwrap_or_default());
    let name = [stem, format!(".{number}").as_bytes(), suffix].concat();
    path.with_file_name(OsString::from_vec(name))
}

/// The names beside `path` that `with_number` makes, the oldest first.
fn set_aside_before(path: &Path) -> Vec<(u64, PathBuf)> {
    let (stem, suffix) = split(path.file_name().unwrap_or_default());
    let number = |name: &OsStr| -> Option<u64> {
        let between = name.as_bytes().strip_prefix(stem)?.strip_prefix(b".")?.strip_suffix(suffix)?;
        let number: u64 = std::str::from_utf8(between).ok()?.parse().ok()?;
        // `007` and `+7` are somebody else's.
        (number > 0 && number.to_string().as_bytes() == between).then_some(number)
    };
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> =
        entries.filter_map(|entry| Some((number(&entry.file_name())?, entry.path()))).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_before_the_suffixes() {
        let name = |path: &str| with_number(Path::new(path), 7).display().to_string();
        assert_eq!(name("/x/run.jsonl"), "/x/run.7.jsonl");
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
        let found = set_aside_before(&directory.path().join("run.jsonl"));
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 10]);
    }

    #[test]
    fn a_name_that_is_taken_is_not_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        for rename in [rename_to_new, link_to_new] {
            let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
            fs::write(&from, "rows").unwrap();
            fs::write(&to, "theirs").unwrap();
            assert_eq!(rename(&from, &to), Err(Errno::EXIST));
            assert_eq!(
                (fs::read_to_string(&from).unwrap(), fs::read_to_string(&to).unwrap()),
                ("rows".into(), "theirs".into())
            );
            fs::remove_file(&to).unwrap();
            assert_eq!(rename(&from, &to), Ok(()));
            assert_eq!((from.exists(), fs::read_to_string(&to).unwrap()), (false, "rows".into()));
        }
    }

    #[test]
    fn the_last_number_and_names_of_any_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(OsStr::from_bytes(b"r\xff.jsonl"));
        for _ in 0..3 {
            fs::write(&path, "").unwrap();
            set_aside(&path).unwrap();
        }
        assert_eq!(set_aside_before(&path).len(), 3);
        fs::write(with_number(&path, u64::MAX), "").unwrap();
        fs::write(&path, "").unwrap();
        assert!(set_aside(&path).unwrap_err().to_string().starts_with("no number is left"));
        assert!(path.exists());
    }

    #[test]
    fn links_are_resolved_and_descriptors_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().canonicalize().unwrap();
        fs::create_dir(folder.join("data")).unwrap();
        std::os::unix::fs::symlink("data/run.jsonl", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
        assert_eq!(resolve(&folder.join("link")).unwrap(), folder.join("data/run.jsonl"));
        assert!(resolve(&folder.join("loop")).unwrap_err().to_string().contains("too many links"));
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            assert!(resolve(Path::new(path)).unwrap_err().to_string().contains("descriptor"), "{path}");
        }
    }
}
