//! A new file when this one is full or old: `run.jsonl` becomes `run.1.jsonl`, the next one `run.2.jsonl`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::output::Output;

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

    pub(super) fn is_due(&self, output: &Output) -> bool {
        let is_full = self.bytes > 0 && output.len() >= self.bytes;
        let is_old = !self.age.is_zero() && output.age() >= self.age && output.len() > 0;
        is_full || is_old
    }

    pub(super) fn rotate(&self, output: &mut Output) -> anyhow::Result<()> {
        let mut rotated = numbered(output.path());
        let next = rotated.last().map_or(1, |(number, _)| number + 1);
        let target = with_number(output.path(), next);
        std::fs::rename(output.path(), &target).with_context(|| format!("cannot rename to {}", target.display()))?;
        output.reopen()?;
        rotated.push((next, target));
        if self.keep > 0 && rotated.len() > self.keep {
            for (_, path) in &rotated[..rotated.len() - self.keep] {
                std::fs::remove_file(path).with_context(|| format!("cannot delete {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Splits `run.csv.gz` into `run` and `csv.gz`, so that a number can stand between.
fn split(path: &Path) -> (OsString, OsString) {
    let name = path.file_name().unwrap_or_default().to_owned();
    let lossy = name.to_string_lossy();
    let stem = lossy.strip_suffix(".gz").unwrap_or(&lossy);
    let length = stem.rfind('.').filter(|dot| *dot > 0).unwrap_or(stem.len());
    match name.to_str() {
        Some(name) => (name[..length].into(), name[length..].into()),
        None => (name, OsString::new()),
    }
}

fn with_number(path: &Path, number: u64) -> PathBuf {
    let (stem, suffix) = split(path);
    let mut name = stem;
    name.push(format!(".{number}"));
    name.push(suffix);
    path.with_file_name(name)
}

/// The files that were rotated before, oldest first.
fn numbered(path: &Path) -> Vec<(u64, PathBuf)> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (stem, suffix) = split(path);
    let (stem, suffix) = (format!("{}.", stem.to_string_lossy()), suffix.to_string_lossy().into_owned());
    let number = |name: &str| -> Option<u64> { name.strip_prefix(&stem)?.strip_suffix(&suffix)?.parse().ok() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
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
        assert_eq!(name(".hidden"), ".hidden.7");
    }
}
