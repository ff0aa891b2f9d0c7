//! The named files, each of which is read once, and the parts that must be read before them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use resource_tracker_sinks::{set_aside_from, set_aside_of};

/// The files that the user named.
pub(crate) struct NamedFiles {
    /// By canonical path.
    files: BTreeMap<PathBuf, NamedFile>,
    /// Those that were set aside, by the file that they were set aside of and by number.
    parts: BTreeMap<(PathBuf, u64), PathBuf>,
}

struct NamedFile {
    path: PathBuf,
    is_taken: bool,
}

/// A file that is read before another one.
pub(crate) struct Part {
    /// As the user named it, if named.
    pub(crate) path: PathBuf,
    pub(crate) is_named: bool,
}

impl NamedFiles {
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let file =
            |path: &PathBuf| Some((path.canonicalize().ok()?, NamedFile { path: path.clone(), is_taken: false }));
        let files: BTreeMap<_, _> = paths.iter().filter_map(file).collect();
        let parts = files.keys().filter_map(|path| Some((set_aside_from(path)?, path.clone()))).collect();
        Self { files, parts }
    }

    /// Takes a file. False if it was taken before.
    pub(crate) fn take(&mut self, path: &Path) -> bool {
        let file = path.canonicalize().ok().and_then(|path| self.files.get_mut(&path));
        file.is_none_or(|file| !std::mem::replace(&mut file.is_taken, true))
    }

    /// Takes the parts to read before a file that begins in the middle of a run, the oldest first: named ones with
    /// lower numbers, and those that were set aside of the file.
    ///
    /// # Errors
    /// When the file or its folder cannot be looked at.
    pub(crate) fn take_before(&mut self, path: &Path) -> io::Result<Vec<Part>> {
        let set = path.canonicalize().ok().and_then(|path| set_aside_from(&path));
        let before = set.iter().flat_map(|(of, number)| self.parts.range((of.clone(), 0)..(of.clone(), *number)));
        let mut before: Vec<PathBuf> = before.map(|(_, path)| path.clone()).collect();
        before.extend(set_aside_of(path)?);
        before.retain(|path| self.take(path));
        Ok(before.into_iter().map(|path| self.part(path)).collect())
    }

    fn part(&self, path: PathBuf) -> Part {
        let named = self.files.get(&path).map(|file| file.path.clone());
        Part { is_named: named.is_some(), path: named.unwrap_or(path) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{Kinds, Summary, read_runs};

    use super::*;

    /// Writes a run, a sample of a minute in each of the files `names`, and reads these files in `order`.
    fn runs(names: &[&str], order: &[&str], first: &str, last: &str) -> Vec<Summary> {
        let folder = tempfile::tempdir().unwrap();
        for (number, name) in names.iter().enumerate() {
            let begin = if number == 0 { first } else { "" };
            let end = if number + 1 == names.len() { last } else { "" };
            let at = 1_700_000_000_000_u64 + 60_000 * number as u64;
            let line = format!("{{\"timestamp_ms\": {at}, \"elapsed_secs\": 60{begin}{end}}}\n");
            fs::write(folder.path().join(name), line).unwrap();
        }
        let paths: Vec<PathBuf> = order.iter().map(|name| folder.path().join(name)).collect();
        let mut runs = Vec::new();
        let mut take = |run: crate::RecordedRun| {
            runs.push(run.summary);
            Ok(())
        };
        read_runs(&paths, &Kinds::of_schema(|| serde_json::json!({})), &mut take).unwrap();
        runs
    }

    const FIRST: &str = r#", "run": {"id": "1", "command": [], "started_ms": 1, "interval_secs": 60, "version": "1", "labels": {}, "tags": {}}"#;
    const LAST: &str =
        r#", "outcome": {"exit_code": 0, "signal": null, "wall_secs": 720, "samples": 12, "missed_samples": 0}"#;

    #[test]
    fn parts_in_any_order_are_one_run() {
        let mut names: Vec<String> = (1..12).map(|number| format!("run.{number}.jsonl")).collect();
        names.push("run.jsonl".into());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // As a shell lists them: 1, 10, 11, 2.
        let mut order = names.clone();
        order.sort_unstable();
        let mut twice = names.clone();
        twice.rotate_right(1);
        twice.push("run.jsonl");
        for order in [order, twice, vec!["run.jsonl"]] {
            let found = runs(&names, &order, FIRST, LAST);
            let found: Vec<_> = found.iter().map(|run| (run.times.samples, run.is_whole, &run.problems[..])).collect();
            assert_eq!(found, [(12, true, &[][..])], "{order:?}");
        }
    }

    #[test]
    fn a_run_without_its_beginning_is_not_whole() {
        let names = ["run.7.jsonl", "run.8.jsonl", "run.jsonl"];
        let [run] = &runs(&names, &["run.jsonl"], "", "")[..] else { panic!("one run") };
        assert!(!run.is_whole && run.problems[0].starts_with("its beginning is not here"), "{:?}", run.problems);
        assert_eq!(run.times.samples, 3);
    }

    #[test]
    fn what_is_no_part_of_the_recording_is_left_out_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let line = |ms: u64, more: &str| format!("{{\"timestamp_ms\": {ms}, \"elapsed_secs\": 60{more}}}\n");
        fs::write(at("run.1.jsonl"), line(1_700_000_000_000, FIRST)).unwrap();
        fs::write(at("run.2.jsonl"), "{\"text\": \"of a data set\"}\n").unwrap();
        fs::write(at("run.3.jsonl"), "").unwrap();
        fs::write(at("run.jsonl"), line(1_700_000_060_000, &LAST.replace("12", "2"))).unwrap();
        let mut runs = Vec::new();
        let mut take = |run: crate::RecordedRun| {
            runs.push(run.summary);
            Ok(())
        };
        read_runs(&[at("run.jsonl")], &Kinds::of_schema(|| serde_json::json!({})), &mut take).unwrap();
        let [run] = &runs[..] else { panic!("one run") };
        assert_eq!((run.times.samples, run.is_whole, run.problems.len()), (2, true, 2), "{:?}", run.problems);
        for (problem, part) in run.problems.iter().zip(["run.2.jsonl is no recording", "run.3.jsonl is no recording"]) {
            assert!(problem.contains(part) && problem.ends_with("it is left out"), "{problem}");
        }
    }
}
