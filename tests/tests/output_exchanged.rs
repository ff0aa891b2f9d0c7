//! What another user who can write to the folder puts in the place of the output file: it is not followed, not changed
//! and not waited for, and no sample is lost.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_tests::{command, is_root, names, samples, text, track, tracker, wait_until};

const STRANGER: u32 = 54321;
const IMPORTANT: &str = "an important line\n";

/// A run that writes to a file, and goes on until the test ends it.
struct Run {
    tracker: Child,
    stderr: tempfile::NamedTempFile,
}

impl Run {
    fn start(path: &Path, options: &[&str]) -> Self {
        let stderr = tempfile::NamedTempFile::new().unwrap();
        let mut run = command(tracker());
        run.args(["-i", "20ms", "-o"]).arg(path).args(options).args(["--", "sleep", "1000"]);
        let tracker = run.stderr(stderr.reopen().unwrap()).spawn().unwrap();
        let run = Self { tracker, stderr };
        wait_until("a sample", || fs::metadata(path).is_ok_and(|file| file.len() > 0));
        run
    }

    fn said(&self) -> String {
        fs::read_to_string(self.stderr.path()).unwrap()
    }

    /// Waits until it has printed this, ends it, and returns all that it has printed.
    fn end_when_said(self, what: &str) -> String {
        wait_until(what, || self.said().contains(what));
        self.end()
    }

    fn end(mut self) -> String {
        kill(Pid::from_raw(self.tracker.id() as i32), Signal::SIGTERM).unwrap();
        self.tracker.wait().unwrap();
        self.said()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Ok(None) = self.tracker.try_wait() {
            let _ = kill(Pid::from_raw(self.tracker.id() as i32), Signal::SIGTERM);
            let _ = self.tracker.wait();
        }
    }
}

/// A folder with a file that is not to be changed, and the path of an output beside it.
fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (victim, path) = (folder.path().join("victim"), folder.path().join("run.jsonl"));
    fs::write(&victim, IMPORTANT).unwrap();
    (folder, victim, path)
}

/// Moves the output to `moved.jsonl` and puts something else in its place; returns where it was moved.
fn exchange(path: &Path, put: impl Fn(&Path)) -> PathBuf {
    let (new, moved) = (path.with_file_name("new"), path.with_file_name("moved.jsonl"));
    put(&new);
    fs::rename(path, &moved).unwrap();
    fs::rename(&new, path).unwrap();
    moved
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn grows(path: &Path) {
    let before = length(path);
    wait_until("more samples", || length(path) > before + 20_000);
}

#[test]
fn a_link_in_the_place_of_the_file_is_not_followed() {
    for options in [&[][..], &["--set", "sinks.output.rotate_bytes=100000000"]] {
        let (folder, victim, path) = folder();
        let run = Run::start(&path, options);
        let moved = exchange(&path, |new| symlink(&victim, new).unwrap());
        wait_until("that is said", || run.said().contains("replaced by a link"));
        grows(&moved);
        let said = run.end();
        assert_eq!(fs::read_to_string(&victim).unwrap(), IMPORTANT);
        assert_eq!(names(folder.path()), ["moved.jsonl", "run.jsonl", "victim"], "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(samples(&fs::read(&moved).unwrap()).len() > 5);
    }
}

#[test]
fn a_file_behind_a_link_is_not_rotated_and_none_beside_it_is_deleted() {
    let (folder, _, path) = folder();
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    let names_of = ["run.jsonl", "run.1.jsonl", "run.2.jsonl", "run.3.jsonl"];
    for name in names_of {
        fs::write(results.join(name), "{\"timestamp_secs\":1,\"archive\":\"precious\"}\n").unwrap();
    }
    let set = |key: &str| format!("sinks.output.{key}");
    let run = Run::start(
        &path,
        &["--set", &set("rotate_bytes=30000"), "--set", &set("rotate_keep=1"), "--set", &set("rotate_secs=0.2")],
    );
    // It may be rotated in the same moment, after which the name is free.
    let link = folder.path().join("link");
    wait_until("the exchange", || {
        let _ = symlink(results.join("run.jsonl"), &link);
        fs::rename(&link, &path).is_ok()
            && fs::symlink_metadata(&path).is_ok_and(|status| status.file_type().is_symlink())
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.end();
    assert_eq!(names(&results).len(), names_of.len(), "{:?}", names(&results));
    for name in names_of {
        assert!(fs::read_to_string(results.join(name)).unwrap().ends_with("\"precious\"}\n"), "{name}");
    }
}

#[test]
fn a_pipe_or_a_folder_in_the_place_of_the_file_keeps_nothing_waiting() {
    let fifo = |new: &Path| {
        assert!(Command::new("mkfifo").arg(new).status().unwrap().success());
    };
    for put in [&fifo as &dyn Fn(&Path), &|new| fs::create_dir(new).unwrap()] {
        let (_folder, _, path) = folder();
        let run = Run::start(&path, &[]);
        let moved = exchange(&path, put);
        wait_until("that is said", || run.said().contains("cannot write to"));
        grows(&moved);
        assert_eq!(run.end().lines().count(), 1);
    }
}

#[test]
fn a_file_of_somebody_else_in_the_place_of_the_file_is_left_alone() {
    if !is_root("a file of another user") {
        return;
    }
    let (_folder, _, path) = folder();
    let run = Run::start(&path, &["--set", "sinks.output.rotate_bytes=100000000"]);
    let moved = exchange(&path, |new| {
        fs::write(new, "").unwrap();
        lchown(new, Some(STRANGER), Some(STRANGER)).unwrap();
    });
    grows(&moved);
    run.end_when_said("was replaced by a file of user 54321");
    assert_eq!((length(&path), fs::metadata(&path).unwrap().uid()), (0, STRANGER));
}

#[test]
fn a_link_of_somebody_else_is_refused_before_the_job_starts() {
    if !is_root("a link of another user") {
        return;
    }
    let (folder, victim, path) = folder();
    fs::write(&victim, "").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let started = folder.path().join("started");
    for target in [victim.clone(), folder.path().join("nologin")] {
        let _ = fs::remove_file(&path);
        symlink(&target, &path).unwrap();
        lchown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        for option in ["sinks.output.if_exists=overwrite", "sinks.output.rotate_bytes=20"] {
            let mut run = command(tracker());
            run.args(["--set", option, "-o"]).arg(&path).args(["--", "touch"]).arg(&started);
            let output = run.output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.lines().count() == 1 && said.contains("is a link of user 54321; name the file"), "{said}");
        }
    }
    assert_eq!((names(folder.path()).len(), length(&victim)), (2, 0));
    // One's own link is what its owner meant.
    lchown(&path, Some(0), Some(0)).unwrap();
    let output = command(tracker()).args(["-i", "1h", "-o"]).arg(&path).args(["--", "true"]).output().unwrap();
    assert_eq!((output.status.code(), samples(&fs::read(&path).unwrap()).len()), (Some(0), 1));
}

#[test]
fn a_disk_is_no_output() {
    if !is_root("the node of a disk") {
        return;
    }
    let (folder, _, _) = folder();
    let disk = folder.path().join("disk");
    assert!(Command::new("mknod").arg(&disk).args(["b", "7", "250"]).status().unwrap().success());
    let output = track(["-o".as_ref(), disk.as_os_str(), "--".as_ref(), "true".as_ref()]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("it is a disk"), "{said}");
}

#[test]
fn a_number_that_somebody_else_takes_does_not_end_rotation() {
    if !is_root("a file of another user") {
        return;
    }
    let (folder, _, path) = folder();
    let last = folder.path().join("run.18446744073709551615.jsonl");
    fs::write(&last, "").unwrap();
    lchown(&last, Some(STRANGER), Some(STRANGER)).unwrap();
    let run = Run::start(&path, &["--set", "sinks.output.rotate_bytes=5000"]);
    wait_until("rotation", || folder.path().join("run.3.jsonl").exists());
    assert_eq!(run.end(), "");
}

/// Whoever makes the new file first decides nothing about its permissions.
#[test]
fn permissions_are_changed_of_files_that_it_made_alone() {
    let (_folder, _, path) = folder();
    let run = Run::start(&path, &["--set", "sinks.output.mode=0644", "--set", "sinks.output.rotate_bytes=100000000"]);
    let moved = exchange(&path, |new| {
        fs::write(new, "").unwrap();
        fs::set_permissions(new, fs::Permissions::from_mode(0o600)).unwrap();
    });
    grows(&path);
    run.end();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&moved)), (0o600, 0o644));
}
