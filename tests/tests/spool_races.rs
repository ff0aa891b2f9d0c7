//! Many processes that use one spool at once, and what killed ones leave.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use resource_tracker_tests::sentinel::{Service, Trouble, wait_for_rows};
use resource_tracker_tests::spool::{Home, close, put, said, seen, speaking, state, upload, with};
use resource_tracker_tests::{command, text, tracker, wait_until};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

#[test]
fn many_who_send_at_once_send_each_run_once() {
    let service = Service::start();
    let home = Home::new();
    for number in 0..20 {
        home.stranded(number, &with(state(&service), json!({ "facts": { "job_name": number.to_string() } })));
    }
    let start = || {
        let mut command = speaking(&service, &home.spool());
        command.arg("upload").arg(home.spool()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let senders: Vec<_> = (0..4).map(|_| start()).collect();
    let mut sent = 0;
    for sender in senders {
        let output = sender.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        sent += text(&output.stdout).matches(": sent\n").count();
    }
    assert_eq!((sent, home.runs()), (20, 0));
    let known = service.known();
    let mut names: Vec<&str> = known.runs.values().map(|run| run.facts["job_name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), known.runs.len()), (20, 20));
    assert!(known.runs.values().all(|run| run.finish.is_some()));
}

#[test]
fn runs_that_begin_while_others_send_keep_their_folders() {
    let service = Service::start();
    let home = Home::new();
    let spool = home.spool();
    let mut senders = command("sh");
    let script = "while [ ! -e \"$1.over\" ]; do \"$0\" upload \"$1\" || exit; done";
    senders.args(["-c", script]).arg(tracker()).arg(&spool).envs(service.environment(&spool));
    let sender = senders.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..10 {
        let mut run = speaking(&service, &spool);
        let output = run.args(["-q", "--spool-dir"]).arg(&spool).args(["--", "true"]).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    }
    fs::write(home.path().join("spool.over"), "").unwrap();
    let output = sender.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let known = service.known();
    assert!(known.runs.len() == 10 && known.runs.values().all(|run| run.finish.is_some()));
}

/// A look at waiting runs does not keep others from sending them.
#[test]
fn a_run_that_is_looked_at_can_be_sent_meanwhile() {
    let service = Service::start();
    let home = Home::new();
    // Each line names the folder. The pipe is full before all lines are in it, and the run whose line does not fit is
    // looked at until the pipe is read.
    let long = home.path().join("x".repeat(250));
    fs::create_dir(&long).unwrap();
    for number in 0..20 {
        home.stranded(number, &state(&service));
    }
    fs::rename(home.spool(), long.join("spool")).unwrap();
    let spool = long.join("spool");
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, 4096).unwrap();
    let mut look = speaking(&service, &spool);
    let mut look = look.args(["upload", "--dry-run"]).arg(&spool).stdout(writer).spawn().unwrap();
    wait_until("a full pipe", || rustix::io::ioctl_fionread(&reader).unwrap() > 3500);
    assert!(look.try_wait().unwrap().is_none(), "everything found room");
    let output = upload(&service, &[], &spool);
    let runs = fs::read_dir(&spool).unwrap().count();
    assert_eq!((output.status.code(), runs), (Some(0), 0), "{}", text(&output.stderr));
    drop(reader);
    look.wait().unwrap();
}

#[test]
fn a_run_that_goes_on_is_neither_sent_nor_shown() {
    let service = Service::start();
    service.trouble(&[("POST", Trouble::Status(503, None))]);
    let state = tempfile::tempdir().unwrap();
    let mut run = command(tracker());
    let mut run = run.args(["-q", "-i", "50ms"]).envs(service.environment(state.path())).spawn().unwrap();
    wait_for_rows(state.path());
    for arguments in [&["upload", "--dry-run"][..], &["upload"]] {
        let output = speaking(&service, state.path()).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let output = speaking(&service, state.path()).args(["upload", "--dry-run"]).output().unwrap();
    assert!(
        text(&output.stdout).ends_with("a run that is not registered, 1 batch\n1 run would be sent\n"),
        "{output:?}"
    );
}

/// A folder with the name of a run that holds these files.
fn remains(home: &Home, number: u32, names: &[&str], age: Duration) -> PathBuf {
    let run = home.spool().join(format!("1764000000000-4242-{number:08x}"));
    fs::create_dir(&run).unwrap();
    close(&run);
    names.iter().for_each(|name| put(&run.join(name), b""));
    let times = fs::FileTimes::new().set_modified(SystemTime::now() - age);
    File::open(&run).unwrap().set_times(times).unwrap();
    run
}

/// A tracker can be killed while it removes a run that has arrived, and after a disk had no room for its `run.json`.
#[test]
fn rows_without_a_run_go_when_they_have_arrived_and_are_named_else() {
    let service = Service::start();
    let home = Home::new();
    let make = |number: u32, names: &[&str]| remains(&home, number, names, Duration::ZERO);
    let (sent, mixed) = (make(1, &["lock", "sent.json", "000000.csv"]), make(2, &["lock", "sent.json", "photo"]));
    let orphans = [make(3, &["lock", "000000.csv.gz"]), make(4, &["000007.csv", "run.json.tmp"])];
    let held = make(5, &["lock", "000000.csv"]);
    let holder = File::open(held.join("lock")).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let before = seen(&home.spool());
    for arguments in [&["--dry-run"][..], &[]] {
        let output = upload(&service, arguments, &home.spool());
        let lines = text(&output.stderr);
        assert_eq!((output.status.code(), lines.lines().count()), (Some(1), 2), "{lines}");
        for ((line, orphan), rows) in lines.lines().zip(&orphans).zip(["000000.csv.gz", "000007.csv"]) {
            let name = format!("{} stays as it is: it has rows, such as {rows}, and no run.json", orphan.display());
            assert!(line.contains(&name) && line.contains("delete the folder"), "{line}");
        }
        if arguments == ["--dry-run"] {
            assert!(seen(&home.spool()) == before, "something has changed");
        }
    }
    let names = |folder: &PathBuf| fs::read_dir(folder).unwrap().count();
    assert_eq!((sent.exists(), names(&mixed), mixed.join("photo").exists()), (false, 1, true));
    assert_eq!([&orphans[0], &orphans[1], &held].map(names), [2, 2, 2]);
    assert!(service.known().requests.is_empty());
}

/// A tracker can be killed before it has written anything down, and when all has arrived.
#[test]
fn what_is_left_of_a_folder_goes_when_runs_are_sent() {
    let service = Service::start();
    let home = Home::new();
    let hour = Duration::from_secs(3601);
    let make = |number: u32, names: &[&str], age: Duration| remains(&home, number, names, age);
    let gone = [&[][..], &["lock"], &["lock", "run.json.tmp"]];
    let gone = [1, 2, 3].map(|number| make(number, gone[number as usize - 1], hour));
    let stays = [
        make(4, &[], Duration::ZERO),
        make(5, &["lock"], Duration::ZERO),
        make(6, &["lock", "photo"], hour),
        make(7, &["lock", "sent"], hour),
        make(8, &["lock"], hour),
        make(9, &[], hour),
    ];
    let holder = File::open(stays[4].join("lock")).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    fs::rename(&stays[5], home.spool().join("mine")).unwrap();
    let before = seen(&home.spool());
    let output = upload(&service, &["--dry-run"], &home.spool());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    assert!(seen(&home.spool()) == before, "something has changed");
    let output = upload(&service, &[], &home.spool());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    let expected = before.into_iter().filter(|(path, _)| !gone.iter().any(|gone| path.starts_with(gone)));
    let is_inside = |path: &PathBuf| *path != home.spool();
    assert_eq!(
        seen(&home.spool()).into_iter().filter(|(path, _)| is_inside(path)).collect::<BTreeMap<_, _>>(),
        expected.filter(|(path, _)| is_inside(path)).collect()
    );
}
