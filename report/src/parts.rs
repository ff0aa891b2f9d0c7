//! The files that were named, each of which is read once, and those that are to be read before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use resource_tracker_sinks::{set_aside_from, set_aside_of};

/// The files that were named.
pub(crate) struct NamedFiles {
    /// By the paths that they have in truth.
    files: BTreeMap<PathBuf, NamedFile>,
    /// Those that were set aside, by what they were set aside of, and their numbers.
    parts: BTreeMap<(PathBuf, u64), PathBuf>,
}

struct NamedFile {
    path: PathBuf,
    is_taken: bool,
}

impl NamedFiles {
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let file =
            |path: &PathBuf| Some((path.canonicalize().ok()?, NamedFile { path: path.clone(), is_taken: false }));
        let files: BTreeMap<_, _> = paths.iter().filter_map(file).collect();
        let parts = files.keys().filter_map(|path| Some((set_aside_from(path)?, path.clone()))).collect();
        Self { files, parts }
    }

    /// Whether this one was not taken yet, which it is then.
    pub(crate) fn take(&mut self, path: &Path) -> bool {
        let file = path.canonicalize().ok().and_then(|path| self.files.get_mut(&path));
        file.is_none_or(|file| !std::mem::replace(&mut file.is_taken, true))
    }

    /// Takes what is to be read before a file that begins in the middle of a run: what was set aside of it, and what was named
    /// of the parts before it, the oldest first.
    ///
    /// # Errors
    /// When the file or its folder cannot be looked at.
    pub(crate) fn take_before(&mut self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let set = path.canonicalize().ok().and_then(|path| set_aside_from(&path));
        let before = set.iter().flat_map(|(of, number)| self.parts.range((of.clone(), 0)..(of.clone(), *number)));
        let mut before: Vec<PathBuf> = before.map(|(_, path)| path.clone()).collect();
        before.extend(set_aside_of(path)?);
        before.retain(|path| self.take(path));
        Ok(before.into_iter().map(|path| self.name_of(path)).collect())
    }

    /// As it was named, if it was.
    fn name_of(&self, path: PathBuf) -> PathBuf {
        self.files.get(&path).map_or(path, |file| file.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{Kinds, Summary, read_runs};

    use super::*;

    /// Runs of the samples of a minute each, one in a file, which the names are given of in this order.
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
}
