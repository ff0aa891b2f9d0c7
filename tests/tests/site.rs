//! `/etc/resource-tracker.toml`: what the administrator of a machine sets for everybody. It is put there in a mount namespace.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use resource_tracker_tests::{command, samples, text, tracker};

/// A tracker that sees this folder as /etc; `None` where no namespace can be made.
fn with_etc(etc: &Path) -> Option<Command> {
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
    let can = Command::new("unshare").args([namespaces, "mount", "--bind"]).arg(etc).arg("/etc").output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespace can be made");
        return None;
    }
    let mut command = command("unshare");
    command.args([namespaces, "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""]).arg(etc).arg(tracker());
    Some(command)
}

fn run(etc: &Path, arguments: &[&str]) -> Option<Output> {
    let mut command = with_etc(etc)?;
    let home = etc.join("home");
    fs::create_dir_all(&home).unwrap();
    command.current_dir(home).env("SLURM_JOB_ACCOUNT", "physics");
    Some(command.args(arguments).output().unwrap())
}

fn site(text: &str, mode: u32) -> tempfile::TempDir {
    let etc = tempfile::tempdir().unwrap();
    let file = etc.path().join("resource-tracker.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    etc
}

fn settings(etc: &tempfile::TempDir) -> String {
    let archive = etc.path().join("archive.jsonl");
    format!(
        "[site]\nenforce = [\"sinks.archive\", \"sinks.nothing\"]\n[tracker]\ninterval_secs = 0.05\n[job]\nteam = \"ops\"\nproject_name = \"p\"\n\
         [job.tags_from]\naccount = \"SLURM_JOB_ACCOUNT\"\n[sinks.archive]\ntype = \"file\"\nenabled = true\npath = {archive:?}\n"
    )
}

#[test]
fn what_the_site_enforces_nobody_changes() {
    let etc = site("", 0o644);
    fs::write(etc.path().join("resource-tracker.toml"), settings(&etc)).unwrap();
    let mine = [
        "--disable",
        "archive",
        "--set",
        "sinks.archive.path=mine.jsonl",
        "--team",
        "dev",
        "-q",
        "--set",
        "sinks.archive.gzip=true",
    ];
    let Some(output) = run(etc.path(), &[&mine[..], &["--", "sleep", "0.2"]].concat()) else { return };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for line in [
        "\"sinks.nothing\": /etc/resource-tracker.toml is to enforce it, but does not set it",
        "sinks.archive: /etc/resource-tracker.toml enforces what it says, so --disable counts for nothing",
        "sinks.archive: /etc/resource-tracker.toml enforces what it says, so --set counts for nothing",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(!etc.path().join("home/mine.jsonl").exists());
    let samples = samples(&fs::read(etc.path().join("archive.jsonl")).unwrap());
    let run = &samples[0]["run"];
    assert_eq!(run["interval_secs"], 0.05);
    assert_eq!((&run["labels"]["team"], &run["labels"]["project_name"]), (&"dev".into(), &"p".into()));
    assert_eq!(run["tags"]["account"], "physics");
}

/// What is in the environment for other programs does not keep a job from starting.
#[test]
fn a_sink_of_the_site_that_cannot_work_here_is_left_out() {
    let etc = site("[sinks.s3]\nenabled = true\nurl = \"s3://b/x\"\n", 0o644);
    let home = tempfile::tempdir().unwrap();
    let Some(mut command) = with_etc(etc.path()) else { return };
    command.current_dir(home.path()).env("AWS_ENDPOINT_URL_S3", "http://minio.lan:9000");
    let output = command.args(["-q", "--", "sh", "-c", "exit 3"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("sinks.s3: AWS_ENDPOINT_URL_S3"), "{said}");
    assert!(said.contains("the run goes on without it"), "{said}");
    let broken = site("[site]\nenforce = \"tracker\"\n", 0o644);
    let mut command = with_etc(broken.path()).unwrap();
    let output = command.current_dir(home.path()).args(["-q", "--", "true"]).output().unwrap();
    assert!(text(&output.stderr).contains("nothing is enforced"), "{}", text(&output.stderr));
}

#[test]
fn a_user_sees_what_the_site_sets() {
    let etc = site("", 0o644);
    fs::write(etc.path().join("resource-tracker.toml"), settings(&etc).replace(", \"sinks.nothing\"", "")).unwrap();
    let Some(shown) = run(etc.path(), &["-i", "2", "config", "show"]) else { return };
    let shown = text(&shown.stdout);
    let has = |key: &str, from: &str| shown.lines().any(|line| line.starts_with(key) && line.contains(from));
    assert!(
        has("team = \"ops\"", "# /etc/resource-tracker.toml") && has("interval_secs = 2.0", "# --interval"),
        "{shown}"
    );
    let home = tempfile::tempdir().unwrap();
    let mut command = with_etc(etc.path()).unwrap();
    let checked = command.current_dir(home.path()).args(["config", "check"]).output().unwrap();
    let expected = "/etc/resource-tracker.toml is good\nresource-tracker.toml does not exist; defaults are used\n";
    assert_eq!((checked.status.code(), text(&checked.stdout).as_str()), (Some(0), expected));
}

#[test]
fn a_file_that_anybody_could_have_written_counts_for_nothing() {
    for (text_of, mode, why) in [
        ("[tracker]\ninterval_secs = 0.05\n", 0o666, "is not read, because"),
        ("[tracker\n", 0o644, "/etc/resource-tracker.toml:1:"),
    ] {
        let etc = site(text_of, mode);
        let home = tempfile::tempdir().unwrap();
        let Some(mut command) = with_etc(etc.path()) else { return };
        let output = command.current_dir(home.path()).args(["--", "sh", "-c", "exit 3"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(3) && said.contains(why) && said.contains("the defaults are used"),
            "{said}"
        );
    }
}
