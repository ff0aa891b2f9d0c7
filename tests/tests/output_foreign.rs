//! What another user has put on the way to the output, or in its place, before the run: it leads root nowhere, and gets
//! nothing that is not meant for it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use resource_tracker_tests::{command, has, is_root, names, samples, text, tracker};
use rustix::fs::{CWD, Mode, mkfifoat};

const STRANGER: u32 = 54321;

/// A folder of root's that all may enter.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap()
}

fn give(path: &Path, owner: u32) {
    lchown(path, Some(owner), Some(owner)).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn run(path: &Path, options: &[&str]) -> Output {
    command(tracker()).args(["-i", "1h", "-o"]).arg(path).args(options).args(["--", "true"]).output().unwrap()
}

#[test]
fn a_link_of_somebody_else_on_the_way_is_refused() {
    if !is_root("a link of another user") {
        return;
    }
    let folder = folder();
    let (public, results) = (folder.path().join("pub"), folder.path().join("results"));
    for path in [&public, &results] {
        fs::create_dir(path).unwrap();
    }
    let earlier = ["run.1.jsonl", "run.2.jsonl", "run.3.jsonl", "run.jsonl"];
    for name in earlier {
        fs::write(results.join(name), "{\"timestamp_secs\":1}\n").unwrap();
    }
    let link = public.join("logs");
    symlink("../results", &link).unwrap();
    let rotate = ["--set", "sinks.output.rotate_bytes=10", "--set", "sinks.output.rotate_keep=1"];
    for (owner, may) in [(STRANGER, 0o755), (0, 0o777), (0, 0o1777)] {
        give(&public, owner);
        mode(&public, may);
        give(&link, STRANGER);
        for options in [&rotate[..], &["--set", "sinks.output.if_exists=overwrite"], &[]] {
            let output = run(&link.join("run.jsonl"), options);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.contains("pub/logs is a link of user 54321; name the folder"), "{said}");
        }
        assert_eq!(names(&results), earlier);
        // Root's own link leads where root wants.
        give(&link, 0);
        assert_eq!(run(&link.join("new.jsonl"), &[]).status.code(), Some(0));
        fs::remove_file(results.join("new.jsonl")).unwrap();
    }
    // Nobody but root can have put it there.
    give(&public, 0);
    mode(&public, 0o755);
    give(&link, STRANGER);
    let output = run(&link.join("run.jsonl"), &rotate);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(names(&results), ["run.4.jsonl", "run.jsonl"]);
}

#[test]
fn the_file_of_somebody_else_gets_nothing_where_anybody_could_have_put_it() {
    if !is_root("a file of another user") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let cases = [(0, 0o1777, 2), (0, 0o777, 2), (0, 0o775, 2), (STRANGER + 1, 0o755, 2), (STRANGER, 0o1777, 2)];
    for (owner, may, code) in cases.into_iter().chain([(STRANGER, 0o755, 0), (0, 0o755, 0)]) {
        give(folder.path(), owner);
        mode(folder.path(), may);
        fs::write(&path, "").unwrap();
        give(&path, STRANGER);
        let output = run(&path, &[]);
        let said = text(&output.stderr);
        let case = format!("a folder of {owner} with mode {may:o}: {said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{case}");
        assert!(said.contains("run.jsonl") && said.contains("belongs to user 54321, who "), "{case}");
        assert_eq!(fs::read_to_string(&path).unwrap().is_empty(), code == 2, "{case}");
        let checked = command(tracker()).args(["config", "check"]).env("TRACKER_OUTPUT", &path).output().unwrap();
        assert_eq!(checked.status.code(), Some(code / 2), "{case}");
        fs::remove_file(&path).unwrap();

        mkfifoat(CWD, &path, Mode::from_raw_mode(0o666)).unwrap();
        give(&path, STRANGER);
        let output = run(&path, &[]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "a FIFO in {case}");
        assert!(said.contains("belongs to user 54321"), "a FIFO in {case}");
        fs::remove_file(&path).unwrap();
        // One's own file may be there.
        for _ in 0..2 {
            assert_eq!(text(&run(&path, &[]).stderr), "", "{case}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_team_shares_a_file_in_its_folder() {
    let test = "a team shares a file in its folder";
    if !is_root(test) || !has("setpriv", test) {
        return;
    }
    let folder = folder();
    let (copy, team) = (folder.path().join("tracker"), folder.path().join("team"));
    resource_tracker_tests::copy_tracker(&copy);
    fs::create_dir(&team).unwrap();
    let path = team.join("run.jsonl");
    fs::write(&path, "").unwrap();
    lchown(&path, Some(STRANGER), Some(777)).unwrap();
    lchown(&team, Some(0), Some(777)).unwrap();
    mode(&path, 0o666);
    let run_in = |group: &str| {
        let mut run = Command::new("setpriv");
        run.args(["--reuid", "54322", "--regid", group, "--clear-groups"]).arg(&copy).arg("-o").arg(&path);
        run.args(["--", "true"]).current_dir("/").output().unwrap()
    };
    mode(&team, 0o2775);
    let output = run_in("777");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.contains("belongs to user 54321"), "{said}");
    assert_eq!(samples(&fs::read(&path).unwrap()).len(), 1);
    assert_eq!(run_in("778").status.code(), Some(2), "who is not of the team");
    mode(&team, 0o3775);
    assert_eq!(run_in("777").status.code(), Some(2), "sticky: they do not trust each other");
}
