//! What a command says of itself while it runs.

use std::fs;

use resource_tracker_tests::{Recording, command, has, in_time, number, text, track, tracker};
use serde_json::{Value as Json, json};

/// Every mark of a recording, as its name and kind.
fn marks(samples: &[Json]) -> Vec<(String, String)> {
    let marks = samples.iter().flat_map(|sample| sample["marks"].as_array().into_iter().flatten());
    marks.map(|mark| (mark["name"].as_str().unwrap().into(), mark["kind"].as_str().unwrap().into())).collect()
}

#[test]
fn phases_of_a_command() {
    in_time(phases);
}

/// Asserts that the marks are in the samples. Returns whether each was read in time for the sample of its time.
fn phases() -> bool {
    let recording = Recording::new();
    let tracker = tracker().display();
    let script = format!(
        "{tracker} mark 'load data'; sleep 0.3; {tracker} mark train; {tracker} mark --begin step; \
         for n in $(seq 100000); do :; done; {tracker} mark --end step; sleep 0.2",
    );
    let output = recording.run(
        command(resource_tracker_tests::tracker())
            .args(["-i", "50ms", "-o"])
            .arg(recording.path())
            .args(["--", "sh", "-c", &script]),
    );
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let samples = recording.samples();
    let expected = [("load data", "next"), ("train", "next"), ("step", "begin"), ("step", "end")];
    assert_eq!(marks(&samples), expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    // Each is in the sample of its time.
    let (mut last, mut is_in_time) = (0.0, true);
    for sample in &samples {
        let now = number(sample, "/timestamp_ms");
        for mark in sample["marks"].as_array().into_iter().flatten() {
            let at = number(mark, "/at_ms");
            // The sample waits a moment for the marks to be read.
            assert!(last <= at, "{at} was before {last}");
            is_in_time &= at <= now + 50.0;
        }
        last = now;
    }
    let path = recording.path();
    let summary: Json = serde_json::from_slice(&track(["summary", "--json", path.to_str().unwrap()]).stdout).unwrap();
    let phases = summary["phases"].as_array().unwrap();
    let names: Vec<&Json> = phases.iter().map(|phase| &phase["name"]).collect();
    assert_eq!(names, ["load data", "train", "step"]);
    let secs: Vec<f64> = phases.iter().map(|phase| number(phase, "/secs")).collect();
    assert!(
        secs[0] >= 0.3 && secs[1] >= 0.2 + secs[2] && secs[0] + secs[1] <= number(&summary, "/outcome/wall_secs"),
        "{secs:?}"
    );
    let whole = number(&summary, "/job/user_secs") + number(&summary, "/job/system_secs");
    let in_phases = number(&phases[0], "/cpu_secs") + number(&phases[1], "/cpu_secs");
    assert!(in_phases <= whole && number(&phases[2], "/cpu_secs") > 0.0, "{phases:?}");
    let said = text(&track(["summary", path.to_str().unwrap()]).stdout);
    let (_, first) = said.split_once("\nPhase      load data: ").unwrap_or_else(|| panic!("{said}"));
    let secs: f64 = first.split(' ').next().unwrap().parse().unwrap();
    assert!(secs >= 0.3, "{said}");
    is_in_time
}

#[test]
fn a_line_in_the_pipe_is_a_mark() {
    let recording = Recording::new();
    let job = "echo 'epoch 1' > /proc/$PPID/fd/100; ls /proc/self/fd | wc -l; sleep 0.2";
    let wrapped = recording
        .run(command(tracker()).args(["-i", "50ms", "-o"]).arg(recording.path()).args(["--", "sh", "-c", job]));
    assert!(wrapped.stderr.is_empty(), "{}", text(&wrapped.stderr));
    assert_eq!(marks(&recording.samples()), [("epoch 1".to_owned(), "next".to_owned())]);
    let bare = command("sh").args(["-c", "ls /proc/self/fd | wc -l"]).output().unwrap();
    assert_eq!(wrapped.stdout, bare.stdout, "the command has no descriptor of the tracker's");
}

#[test]
fn without_a_tracker_nothing_happens() {
    let output = track(["mark", "epoch 1"]);
    assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(0), 0, 0));
}

#[test]
fn a_mark_without_a_name_is_told_what_there_is() {
    for arguments in [&["mark"][..], &["mark", "--begin"], &["mark", "--end"]] {
        let output = track(arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(["mark NAME says", "--begin NAME", "--end NAME"].iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
fn the_nearest_tracker_hears_it() {
    let folder = tempfile::tempdir().unwrap();
    let (inner, outer) = (folder.path().join("inner.jsonl"), folder.path().join("outer.jsonl"));
    let program = tracker().display();
    let script = format!(
        "{program} -i 50ms -o {} -- sh -c '{program} mark deep; sleep 0.2'; {program} mark after",
        inner.display()
    );
    let output =
        command(tracker()).args(["-i", "50ms", "-o"]).arg(&outer).args(["--", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let said = |path| marks(&resource_tracker_tests::samples(&fs::read(path).unwrap()));
    assert_eq!(said(&inner), [("deep".to_owned(), "next".to_owned())]);
    assert_eq!(said(&outer), [("after".to_owned(), "next".to_owned())]);
}

#[test]
fn a_pipe_that_nobody_would_find_is_none() {
    if !has("bash", "descriptors above 9") {
        return;
    }
    let recording = Recording::new();
    let (program, path) = (tracker().display(), recording.path().display().to_string());
    let script = format!(
        "for n in $(seq 100 115); do eval \"exec $n</dev/null\"; done; \
         exec {program} -i 50ms -o {path} -- sh -c '{program} mark lost; sleep 0.1'"
    );
    let output = recording.run(command("bash").args(["-c", &script]));
    let said = text(&output.stderr);
    assert!(said.contains("descriptors 100 to 115 are taken") && said.lines().count() == 1, "{said}");
    assert!(output.status.success() && marks(&recording.samples()).is_empty());
}

#[test]
fn marks_without_end_are_bounded_and_harm_nobody() {
    let recording = Recording::new();
    let job = "i=0; while [ $i -lt 5000 ]; do echo \"mark $i\"; i=$((i+1)); done > /proc/$PPID/fd/100; \
               head -c 300000 /dev/zero > /proc/$PPID/fd/100; echo last > /proc/$PPID/fd/100; sleep 0.3; exit 4";
    let output = recording
        .run(command(tracker()).args(["-i", "50ms", "-o"]).arg(recording.path()).args(["--", "sh", "-c", job]));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(4), String::new()));
    let samples = recording.samples();
    let (_, before) = samples.split_last().unwrap();
    assert!(before.iter().all(|sample| sample["marks"].as_array().is_none_or(|marks| marks.len() <= 1000)));
    let names = marks(&samples);
    let said = names.iter().map(|(name, _)| name.clone()).take(5000);
    assert!(said.eq((0..5000).map(|number| format!("mark {number}"))), "{names:?}");
    assert!(names.iter().any(|(name, _)| name.ends_with("last")) && names.iter().all(|(name, _)| name.len() <= 200));
    assert!(!json!(names).to_string().contains("\\u0000"));
}

#[test]
fn a_pipe_with_another_number_is_told() {
    if !has("bash", "descriptors above 9") {
        return;
    }
    let recording = Recording::new();
    let other = tempfile::NamedTempFile::new().unwrap();
    let (program, path) = (tracker().display(), recording.path().display().to_string());
    let job = format!("{program} mark one; echo two >/proc/$PPID/fd/101; sleep 0.2");
    let script = format!("exec 100>{}; exec {program} -i 50ms -o {path} -- sh -c '{job}'", other.path().display());
    let output = recording.run(command("bash").args(["-c", &script]));
    let said = text(&output.stderr);
    assert!(said.contains("must take 101") && said.lines().count() == 1, "{said}");
    let names: Vec<String> = marks(&recording.samples()).into_iter().map(|(name, _)| name).collect();
    assert_eq!((names, fs::read(other.path()).unwrap().len()), (vec!["one".into(), "two".into()], 0));
}
