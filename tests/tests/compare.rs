//! Recorded runs beside others, and limits for CI.

use std::fs;
use std::path::{Path, PathBuf};

use resource_tracker_tests::{samples, text, track};
use serde_json::{Value as Json, json};

/// Runs that were recorded once, with a peak of memory of so many MiB each.
fn runs(folder: &Path, name: &str, peaks: &[f64]) -> Vec<PathBuf> {
    let recorded = folder.join("recorded.jsonl");
    if !recorded.exists() {
        assert!(track(["-i", "50ms", "-o", recorded.to_str().unwrap(), "--", "sleep", "0.3"]).status.success());
    }
    let whole = samples(&fs::read(recorded).unwrap());
    let path = |index: usize| folder.join(format!("{name}-{index}.jsonl"));
    for (index, peak) in peaks.iter().enumerate() {
        let with_peak = whole.iter().cloned().map(|mut sample| {
            sample["cpu"]["process_peak_memory_mib"] = json!(peak);
            format!("{sample}\n")
        });
        fs::write(path(index), with_peak.collect::<String>()).unwrap();
    }
    (0..peaks.len()).map(path).collect()
}

/// The exit code and what was printed.
fn compare(files: &[PathBuf], arguments: &[&str]) -> (Option<i32>, String, String) {
    let files = files.iter().map(|file| file.to_str().unwrap());
    let output = track(["compare"].into_iter().chain(arguments.iter().copied()).chain(["--"]).chain(files));
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn limits_fail_a_job_of_ci() {
    let folder = tempfile::tempdir().unwrap();
    let both = [runs(folder.path(), "old", &[100.0]), runs(folder.path(), "new", &[115.0])].concat();
    for (limits, code) in [
        (&["--fail-if", "peak_memory > +10%"][..], 1),
        (&["--fail-if", "peak_memory > +20%"], 0),
        (&["--fail-if", "peak_memory < -5%"], 0),
        (&["--budget", "peak_memory < 120MiB"], 0),
        (&["--budget", "peak_memory < 0.1GiB"], 1),
        (&["--budget", "wall_time < 1min", "--fail-if", "exit_code != 0"], 0),
        (&["--fail-if", "mean_gpus > 0"], 1),
    ] {
        let (found, stdout, stderr) = compare(&both, limits);
        assert_eq!((found, stderr.lines().count()), (Some(code), code as usize), "{limits:?}: {stderr}");
        assert!(stdout.contains("peak_memory") && stdout.contains("+15.0 %"), "{stdout}");
    }
    let said = |limit: &str| compare(&both, &["--fail-if", limit]).2;
    let found = "failed, because peak_memory > +10%: it is +15.0 %, from 100 MiB to 115 MiB";
    assert!(said("peak_memory > +10%").contains(found), "{}", said("peak_memory > +10%"));
    assert!(said("peak_memory > 110M").contains("it is 115 MiB"), "{}", said("peak_memory > 110M"));
    assert!(said("peak_memory > 110M").contains("new-0.jsonl: failed, because "), "{}", said("peak_memory > 110M"));
    // A value needs nothing to be compared with; a change does.
    assert_eq!(compare(&both[1..], &["--budget", "peak_memory < 120MiB"]).0, Some(0));
    for (files, limits, problem) in [
        (&both[1..], &["--budget", "peak_memory < +5%"][..], "one file is nothing to compare"),
        (&both[1..], &[], "one file is nothing to compare"),
        (&both[..], &["--fail-if", "memory > 5"], "is no figure; there are wall_time, cpu_time"),
        (&both[..], &["--fail-if", "cpu_time > 5 parsecs"], "is no unit of cpu_time; there are ms, s"),
    ] {
        let (code, stdout, stderr) = compare(files, limits);
        assert!(stderr.contains(problem) && stdout.is_empty(), "{limits:?}: {stderr}");
        assert_eq!(code, Some(2), "{limits:?}");
    }
}

#[test]
fn noise_is_told_from_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let old = runs(folder.path(), "old", &[100.0, 101.0, 102.0, 140.0]);
    let verdict = |new: &[PathBuf]| {
        let old = old.iter().map(|file| file.to_str().unwrap());
        let arguments: Vec<&str> =
            ["--json", "--fail-if", "peak_memory > +10%", "--baseline"].into_iter().chain(old).collect();
        let (code, stdout, _) = compare(new, &arguments);
        let differences: Vec<Json> = serde_json::from_str(&stdout).unwrap();
        let memory = differences.iter().find(|difference| difference["figure"] == "peak_memory").unwrap();
        (memory["verdict"].as_str().unwrap().to_owned(), code)
    };
    let noisy = runs(folder.path(), "noisy", &[100.5, 101.5, 130.0, 135.0]);
    assert_eq!(verdict(&noisy), ("noise".into(), Some(0)), "though the median is 14 % higher");
    let higher = runs(folder.path(), "higher", &[141.0, 142.0, 143.0, 144.0]);
    assert_eq!(verdict(&higher), ("higher".into(), Some(1)));
    let one = runs(folder.path(), "one", &[144.0]);
    assert_eq!(verdict(&one), ("unknown".into(), Some(1)));
}

#[test]
fn all_new_runs_have_to_keep_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let files = [runs(folder.path(), "old", &[100.0]), runs(folder.path(), "new", &[90.0, 95.0, 500.0])].concat();
    assert_eq!(compare(&files, &["--budget", "peak_memory < 200MiB"]).0, Some(1));
    let (code, _, stderr) = compare(&files, &["--fail-if", "peak_memory > 200MiB"]);
    assert!(code == Some(1) && stderr.contains("new-2.jsonl: failed, because "), "{stderr}");
    let (_, _, stderr) = compare(&files, &["--budget", "peak_memory < 92MiB"]);
    assert!(stderr.contains("new-1.jsonl and 1 more: not within the budget "), "{stderr}");
}

#[test]
fn a_sum_over_a_part_of_a_run_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let whole = runs(folder.path(), "whole", &[100.0]);
    let cut = folder.path().join("cut.jsonl");
    let text = fs::read_to_string(&whole[0]).unwrap();
    let (head, _) = text.trim_end().rsplit_once('\n').unwrap();
    fs::write(&cut, format!("{head}\n")).unwrap();
    let files = [whole, vec![cut]].concat();
    for (limit, code) in [("cpu_time < 60s", 1), ("wall_time < 60s", 1), ("peak_memory < 200MiB", 0)] {
        let (found, stdout, stderr) = compare(&files, &["--budget", limit]);
        assert_eq!(found, Some(code), "{limit}: {stdout}{stderr}");
        assert!(stderr.contains("cut.jsonl: its end is not here: sums are of these samples"), "{stderr}");
        assert_eq!(stderr.contains("cut.jsonl: not within the budget"), code == 1, "{stderr}");
    }
}

#[test]
fn all_files_behind_a_baseline_are_of_it_up_to_the_dashes() {
    let folder = tempfile::tempdir().unwrap();
    let files = [runs(folder.path(), "old", &[100.0]), runs(folder.path(), "new", &[115.0])].concat();
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let output = track(["compare", "--baseline", files[0], files[1]]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("put -- in front of the new runs: --baseline old.jsonl -- new.jsonl"), "{said}");
    let output = track(["compare", "--baseline", files[0], "--", files[1]]);
    assert!(output.status.success() && text(&output.stdout).contains("+15.0 %"), "{}", text(&output.stderr));
}
