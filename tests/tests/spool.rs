//! The spool touches only what is its own. Everything here was tried on earlier versions, which removed it, changed it,
//! waited for it or believed it.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use resource_tracker_tests::sentinel::{BUCKET, Service, Trouble, wait_for_rows};
use resource_tracker_tests::{command, has, is_root, text, tracker, wait_until};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value as Json, json};

/// A folder that only the user can look into, and nothing in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn spool(&self) -> PathBuf {
        let spool = self.folder.path().join("spool");
        if !spool.exists() {
            fs::create_dir(&spool).unwrap();
            close(&spool);
        }
        spool
    }

    /// A run that was left behind, as a tracker leaves it, with one batch of one row.
    fn stranded(&self, number: u32, state: &Json) -> PathBuf {
        let run = self.spool().join(format!("{:013}-4242-{number:08x}", 1_764_000_000_000_u64 + u64::from(number)));
        fs::create_dir(&run).unwrap();
        close(&run);
        let csv = format!("{}1764000000{}\n", header(), ",".repeat(31));
        for (name, content) in [("lock", ""), ("run.json", &state.to_string()), ("000000.csv", &csv)] {
            put(&run.join(name), content.as_bytes());
        }
        run
    }
}

fn header() -> String {
    let output =
        command(tracker()).args(["-i", "10ms", "--csv-columns", "sentinel", "-f", "csv", "--", "true"]).output();
    let printed = text(&output.unwrap().stderr);
    format!("{}\n", printed.lines().next().unwrap())
}

fn close(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
}

/// A file that only the user can read.
fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn state(service: &Service) -> Json {
    json!({ "api_url": format!("{}/", service.url), "facts": { "job_name": "left" } })
}

/// `state` with other values.
fn with(mut state: Json, values: Json) -> Json {
    let values = values.as_object().unwrap().clone();
    state.as_object_mut().unwrap().extend(values);
    state
}

/// The tracker, with a token for the service. It is stopped when it waits for something that never comes.
fn speaking(service: &Service, state: &Path) -> Command {
    let mut command = command("timeout");
    command.args(["-k", "1", "120"]).arg(tracker()).envs(service.environment(state));
    command
}

fn upload(service: &Service, arguments: &[&str], spool: &Path) -> Output {
    speaking(service, spool).arg("upload").args(arguments).arg(spool).output().unwrap()
}

/// All that can be seen of everything below a folder.
fn seen(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut paths = vec![folder.to_owned()];
    while let Some(path) = paths.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        let kind = status.file_type();
        let mut content = Vec::new();
        if kind.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_file() {
            content = fs::read(&path).unwrap();
        }
        let times = (status.mtime(), status.mtime_nsec(), status.ctime(), status.ctime_nsec());
        let what = format!("{:o} {} {times:?} {content:x?}", status.mode(), status.uid());
        seen.insert(path, what);
    }
    seen
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn what_others_put_into_the_folder_stays_as_it_is() {
    let service = Service::start();
    let place = Place::new();
    let spool = place.spool();
    fs::create_dir(spool.join("photos")).unwrap();
    put(&spool.join("photos/a"), b"x");
    put(&spool.join("photos/lock"), b"mine");
    // What only looks like a run: of another name, or with nothing saved in it.
    let run = place.stranded(1, &state(&service));
    fs::rename(&run, spool.join("copy-of-a-run")).unwrap();
    let empty = place.stranded(2, &state(&service));
    fs::remove_file(empty.join("run.json")).unwrap();
    let before = seen(&spool);
    let here = |arguments: &[&str]| {
        let mut command = speaking(&service, &spool);
        command.current_dir(&spool).args(arguments).output().unwrap()
    };
    let path = spool.to_str().unwrap();
    for arguments in [
        &["upload", "--dry-run", path][..],
        &["upload", path],
        &["upload", "."],
        &["--spool-dir", path, "upload"],
        &["--spool-dir", ".", "upload", "--dry-run"],
    ] {
        let output = here(arguments);
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"), "{arguments:?}");
        assert_eq!(seen(&spool), before, "{arguments:?}");
    }
    let output = here(&["-q", "--spool-dir", path, "--", "sh", "-c", "exit 7"]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(7), ""));
    let mut after = seen(&spool);
    // The run made a folder beside them, and has removed it.
    after.insert(spool.clone(), before[&spool].clone());
    assert_eq!(after, before);
    assert!(service.known().runs["run-1"].finish.is_some());
}

#[test]
fn a_folder_that_others_can_read_is_refused_and_not_closed() {
    let service = Service::start();
    let place = Place::new();
    let spool = place.spool();
    fs::create_dir(spool.join("photos")).unwrap();
    place.stranded(1, &state(&service));
    for mode in [0o755, 0o770, 0o701, 0o1777] {
        fs::set_permissions(&spool, Permissions::from_mode(mode)).unwrap();
        let before = seen(&spool);
        for arguments in [&["--dry-run"][..], &[]] {
            let output = upload(&service, arguments, &spool);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            let expected = format!("{}: it is open to others (mode {:03o})", spool.display(), mode & 0o777);
            assert!(said.contains(&expected) && said.contains("--spool-dir") && said.lines().count() == 1, "{said}");
        }
        let mut run = speaking(&service, &spool);
        let output = run.args(["-q", "--spool-dir"]).arg(&spool).args(["--", "sh", "-c", "exit 7"]).output().unwrap();
        assert!(output.status.code() == Some(7) && said(&output).contains("is open to others"), "{}", said(&output));
        assert_eq!(seen(&spool), before);
    }
    assert!(service.known().runs.values().all(|run| run.facts["job_name"] != "left"));
}

#[test]
fn the_folder_of_another_user_is_refused() {
    if !is_root("the_folder_of_another_user_is_refused") {
        return;
    }
    let service = Service::start();
    let place = Place::new();
    place.stranded(1, &state(&service));
    let spool = place.spool();
    std::os::unix::fs::chown(&spool, Some(54321), None).unwrap();
    let before = seen(&spool);
    let output = upload(&service, &[], &spool);
    assert!(output.status.code() == Some(2) && said(&output).contains("belongs to user 54321"), "{}", said(&output));
    assert_eq!(seen(&spool), before);
}

#[test]
fn a_link_to_the_folder_is_refused() {
    let service = Service::start();
    let place = Place::new();
    place.stranded(1, &state(&service));
    let link = place.folder.path().join("link");
    symlink(place.spool(), &link).unwrap();
    let before = seen(&place.spool());
    for path in [link.clone(), link.join(""), link.join(".")] {
        let output = upload(&service, &[], &path);
        assert!(output.status.code() == Some(2) && said(&output).contains("it is a link"), "{}", said(&output));
    }
    assert_eq!(seen(&place.spool()), before);
}

#[test]
fn a_missing_folder_is_made_for_the_user_alone_and_only_for_a_run() {
    let service = Service::start();
    let place = Place::new();
    let state = place.folder.path().join("home/state");
    let spool = state.join("resource-tracker/spool");
    for arguments in [&["upload"][..], &["upload", "--dry-run"]] {
        let output = speaking(&service, &state).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    }
    assert!(!place.folder.path().join("home").exists());
    let mut run = command("sh");
    run.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(tracker()).args(["-q", "--", "true"]);
    assert_eq!(said(&run.envs(service.environment(&state)).output().unwrap()), "");
    for path in spool.ancestors().take(4) {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700, "{}", path.display());
    }
}

/// Calls that change something on the disk, of those that were traced.
fn changes(trace: &str) -> Vec<&str> {
    let changing = [
        "mkdir",
        "rmdir",
        "unlink",
        "rename",
        "chmod",
        "chown",
        "truncate",
        "fallocate",
        "link",
        "mknod",
        "utime",
        "setxattr",
        "O_WRONLY",
        "O_RDWR",
        "O_CREAT",
        "O_TRUNC",
        "sync",
    ];
    let is_change = |line: &&str| {
        let call = line.split_once("strace:").map_or(*line, |(call, _)| call);
        // `readlink` reads, and the null device is no file.
        !call.contains("readlink(") && !call.contains("/dev/null") && changing.iter().any(|word| call.contains(word))
    };
    trace.lines().filter(is_change).collect()
}

#[test]
fn a_dry_run_changes_nothing_on_the_disk() {
    let test = "a_dry_run_changes_nothing_on_the_disk";
    if !has("strace", test) {
        return;
    }
    let service = Service::start();
    let place = Place::new();
    for number in 1..4 {
        place.stranded(number, &state(&service));
    }
    put(&place.stranded(4, &state(&service)).join("run.json"), b"nonsense");
    fs::create_dir(place.spool().join("photos")).unwrap();
    let before = seen(&place.spool());
    let trace = place.folder.path().join("trace");
    let traced = |arguments: &[&str]| {
        let calls = "trace=%file,fchmod,fchown,ftruncate,fallocate,fsync,fdatasync,fsetxattr,futimesat,utimensat";
        let mut command = command("strace");
        command.args(["-f", "-qq", "-e", calls, "-o"]).arg(&trace).arg(tracker()).envs(service.environment(&trace));
        let output = command.arg("upload").args(arguments).arg(place.spool()).output().unwrap();
        (output, fs::read_to_string(&trace).unwrap())
    };
    let (output, calls) = traced(&["--dry-run"]);
    assert!(text(&output.stdout).ends_with("3 runs would be sent, 1 run left\n"), "{}", said(&output));
    assert!(calls.matches("run.json").count() >= 4, "{calls}");
    assert_eq!(changes(&calls), [""; 0]);
    assert_eq!(seen(&place.spool()), before);
    assert!(service.known().requests.is_empty());
    // What is looked for would be seen.
    let (output, calls) = traced(&[]);
    assert!(text(&output.stdout).ends_with("3 runs sent, 1 run left\n"), "{}", said(&output));
    for call in ["unlinkat(", "AT_REMOVEDIR", "rename", "O_CREAT"] {
        assert!(changes(&calls).iter().any(|line| line.contains(call)), "{call}: {calls}");
    }
}

#[test]
fn a_run_that_is_not_the_users_alone_is_named_and_stays_as_it_is() {
    let service = Service::start();
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    put(&outside, state(&service).to_string().as_bytes());
    let fifo = |path: &Path| assert!(Command::new("mkfifo").args(["-m", "600"]).arg(path).status().unwrap().success());
    let replace = |run: PathBuf, name: &str| {
        fs::remove_file(run.join(name)).unwrap();
        run.join(name)
    };
    let mut number = 0;
    let mut run = || {
        number += 1;
        place.stranded(number, &state(&service))
    };
    fifo(&replace(run(), "run.json"));
    symlink(&outside, replace(run(), "run.json")).unwrap();
    fs::create_dir(replace(run(), "run.json")).unwrap();
    fs::set_permissions(run().join("run.json"), Permissions::from_mode(0o644)).unwrap();
    fifo(&replace(run(), "lock"));
    symlink(&outside, replace(run(), "lock")).unwrap();
    fs::set_permissions(run(), Permissions::from_mode(0o755)).unwrap();
    let moved = run();
    fs::rename(&moved, place.folder.path().join("moved")).unwrap();
    symlink(place.folder.path().join("moved"), &moved).unwrap();
    let a_file = run();
    fs::rename(&a_file, place.folder.path().join("moved too")).unwrap();
    put(&a_file, b"x");
    let mut expected = vec![
        "run.json: it is a FIFO",
        "run.json: it is a link",
        "run.json: it is a folder",
        "run.json: it is open to others (mode 644)",
        "lock: it is a FIFO",
        "lock: it is a link",
        "it is open to others (mode 755)",
        "it is a link, not a folder",
        "it is a regular file, not a folder",
    ];
    if is_root("the part about files of others") {
        std::os::unix::fs::chown(run().join("run.json"), Some(54321), None).unwrap();
        std::os::unix::fs::chown(run(), Some(54321), None).unwrap();
        expected.extend(["run.json: it belongs to user 54321", "it belongs to user 54321"]);
    }
    let (before, beside) = (seen(&place.spool()), seen(&outside));
    for arguments in [&["--dry-run"][..], &[]] {
        let output = upload(&service, arguments, &place.spool());
        let lines = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{lines}");
        assert_eq!(lines.lines().count(), expected.len(), "{lines}");
        for ((line, expected), number) in lines.lines().zip(&expected).zip(1..) {
            assert!(line.contains(expected) && line.contains(&format!("-{number:08x}")), "{expected}: {line}");
        }
        assert_eq!((seen(&place.spool()), seen(&outside)), (before.clone(), beside.clone()));
    }
    // A run that goes on does not care.
    let mut run = speaking(&service, &place.spool());
    let output = run.args(["-q", "--spool-dir"]).arg(place.spool()).args(["--", "true"]).output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    assert_eq!(service.known().runs.len(), 1);
}

/// Not even root reads what is locked away by the file system; for others, its mode is enough.
#[test]
fn a_user_without_the_right_to_read_a_run_is_told_so() {
    let test = "a_user_without_the_right_to_read_a_run_is_told_so";
    if !is_root(test) || !has("setpriv", test) {
        return;
    }
    let service = Service::start();
    let place = Place::new();
    let run = place.stranded(1, &state(&service));
    fs::set_permissions(place.folder.path(), Permissions::from_mode(0o755)).unwrap();
    for path in [&place.spool(), &run, &run.join("lock"), &run.join("run.json"), &run.join("000000.csv")] {
        std::os::unix::fs::chown(path, Some(54321), Some(54321)).unwrap();
    }
    fs::set_permissions(run.join("run.json"), Permissions::from_mode(0o000)).unwrap();
    // The binary is where others may not be able to go.
    let copy = place.folder.path().join("tracker");
    fs::copy(tracker(), &copy).unwrap();
    let before = seen(&place.spool());
    let mut command = command("setpriv");
    command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]).arg(copy).arg("upload").arg(place.spool());
    let output = command.envs(service.environment(&place.spool())).current_dir("/").output().unwrap();
    let lines = text(&output.stderr);
    assert!(output.status.code() == Some(1) && lines.contains("run.json") && lines.contains("denied"), "{lines}");
    assert_eq!(seen(&place.spool()), before);
}

#[test]
fn bytes_that_no_tracker_writes_are_said_and_stay_as_they_are() {
    let service = Service::start();
    let place = Place::new();
    let good = state(&service);
    let deep = format!(r#"{{"facts":{{"a":{}{}}}}}"#, "[".repeat(1 << 20), "]".repeat(1 << 20));
    let many: Vec<u32> = (0..1_000_001).collect();
    let long = format!(r#"{{"api_url":"{}"}}"#, "x".repeat(17 << 20));
    // The addresses of its batches would take gigabytes.
    let wide = json!({ "run_id": "r", "upload_uri_prefix": format!("s3://b/{}", "x".repeat(1000)), "next": 1_000_000, "inline": false });
    let cases: [(Vec<u8>, &str); 13] = [
        (with(good.clone(), wide).to_string().into(), "next is more than"),
        (b"".into(), "ends too early"),
        (b"\0\xff nonsense SECRET".into(), "is no JSON"),
        (deep.into(), "too deep"),
        (long.into(), "has more than 16777216 bytes"),
        (br#"{"api_url":["SECRET"]}"#.into(), "of another type"),
        (with(good.clone(), json!({ "next": u32::MAX })).to_string().into(), "next has more than six digits"),
        (with(good.clone(), json!({ "next": 3, "lost": [7] })).to_string().into(), "lost does not fit"),
        (with(good.clone(), json!({ "next": 1_000_000, "lost": many })).to_string().into(), "lost does not fit"),
        (with(good.clone(), json!({ "run_id": "../../x/SECRET" })).to_string().into(), "run_id is no id"),
        (with(good.clone(), json!({ "run_id": ".." })).to_string().into(), "run_id is no id"),
        (
            with(good.clone(), json!({ "run_id": "r", "upload_uri_prefix": "s3://b/SECRET/../x" })).to_string().into(),
            "upload_uri_prefix is no S3 URI",
        ),
        (
            with(good, json!({ "end": { "exit_code": 0, "status": "SECRET", "at": "" } })).to_string().into(),
            "end is none",
        ),
    ];
    for ((content, _), number) in cases.iter().zip(1..) {
        put(&place.stranded(number, &json!({})).join("run.json"), content);
    }
    let before = seen(&place.spool());
    for arguments in [&["--dry-run"][..], &[]] {
        let output = upload(&service, arguments, &place.spool());
        let lines = text(&output.stderr);
        assert_eq!((output.status.code(), lines.lines().count()), (Some(1), cases.len()), "{lines}");
        for ((line, (_, expected)), number) in lines.lines().zip(&cases).zip(1..) {
            let name = format!("-{number:08x} cannot be read, and stays as it is: run.json: ");
            assert!(line.contains(&name) && line.contains(expected) && line.len() < 400, "{expected}: {line}");
            assert!(!line.contains("SECRET"), "{line}");
        }
        assert!(seen(&place.spool()) == before, "something has changed");
    }
    assert!(service.known().requests.is_empty());
}

#[test]
fn a_batch_that_is_no_file_of_the_users_is_left_out_and_stays() {
    let service = Service::start();
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    put(&outside, b"SECRET");
    let run = place.stranded(1, &state(&service));
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(run.join("000001.csv")).status().unwrap().success());
    symlink(&outside, run.join("000002.csv.gz")).unwrap();
    fs::copy(run.join("000000.csv"), run.join("000003.csv")).unwrap();
    put(&run.join("notes.txt"), b"mine");
    put(&run.join("1000000.csv"), b"mine");
    let output = upload(&service, &[], &place.spool());
    let lines = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{lines}");
    assert!(lines.contains("000001.csv: it is a FIFO") && lines.contains("000002.csv.gz: it is a link"), "{lines}");
    assert!(lines.contains("the spool cannot be cleared"), "{lines}");
    let uri = |batch: u32| format!("s3://{BUCKET}/some/prefix/run-1/{batch:06}.csv.gz");
    assert_eq!(service.known().runs["run-1"].finish.clone().unwrap()["data_uris"], json!([uri(0), uri(3)]));
    assert_eq!(service.rows("run-1").0.len(), 2);
    let mut left: Vec<_> = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["000001.csv", "000002.csv.gz", "1000000.csv", "notes.txt"]);
    assert_eq!(fs::read(&outside).unwrap(), b"SECRET");
    // It is no run any more.
    assert_eq!(said(&upload(&service, &[], &place.spool())), "nothing waits\n");
}

#[test]
fn what_a_batch_unpacks_to_takes_no_memory() {
    let service = Service::start();
    let place = Place::new();
    let bomb = |number: u32, state: &Json| {
        let run = place.stranded(number, state);
        let script = "head -c 1G /dev/zero | gzip -1 >\"$0\" && chmod 600 \"$0\"";
        fs::remove_file(run.join("000000.csv")).unwrap();
        assert!(Command::new("sh").args(["-c", script]).arg(run.join("000000.csv.gz")).status().unwrap().success());
        run
    };
    bomb(1, &state(&service));
    let registered =
        json!({ "run_id": "run-1", "upload_uri_prefix": format!("s3://{BUCKET}/some/prefix"), "inline": true });
    let inline = bomb(2, &with(state(&service), registered));
    let mut command = command("sh");
    command.args(["-c", "ulimit -v 700000; exec \"$0\" upload \"$1\""]).arg(tracker()).arg(place.spool());
    let output = command.envs(service.environment(&place.spool())).output().unwrap();
    assert!(output.status.code() == Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("1 run sent, 1 run left"), "{}", said(&output));
    assert!(text(&output.stderr).contains("batch 0 is larger than what was sent of it"), "{}", said(&output));
    // The store has the first one as it was; of the other one nothing was told.
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!(finish["data_uris"].as_array().unwrap().len(), 1);
    assert!(inline.join("000000.csv.gz").exists());
}

#[test]
fn a_run_of_another_service_is_left() {
    let (service, other) = (Service::start(), Service::start());
    let place = Place::new();
    let theirs = place.stranded(1, &state(&other));
    let registered = json!({ "api_url": "", "run_id": "run-1", "upload_uri_prefix": format!("s3://{BUCKET}/p") });
    let nobodys = place.stranded(2, &with(state(&other), registered));
    place.stranded(3, &with(state(&other), json!({ "api_url": "" })));
    place.stranded(4, &state(&service));
    let before = seen(&theirs);
    let output = upload(&service, &[], &place.spool());
    let lines = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(text(&output.stdout).ends_with("2 runs sent, 2 runs left\n"), "{}", said(&output));
    let expected =
        format!("{}: it belongs to {}/, not to {}/; set SENTINEL_API_URL", theirs.display(), other.url, service.url);
    assert!(lines.contains(&expected) && lines.lines().count() == 2, "{lines}");
    assert!(seen(&theirs) == before && nobodys.exists());
    assert!(other.known().requests.is_empty());
    // Nor does a run that goes on send it.
    let mut run = speaking(&service, &place.spool());
    run.args(["-q", "--spool-dir"]).arg(place.spool()).args(["--", "sleep", "1"]).output().unwrap();
    assert_eq!(seen(&theirs), before);
    assert_eq!(upload(&other, &[], &place.spool()).status.code(), Some(1), "the one of nobody is still there");
    assert!(!theirs.exists() && other.known().runs.len() == 1);
}

#[test]
fn a_thousand_runs_need_no_thousand_descriptors() {
    let service = Service::start();
    let place = Place::new();
    let first = place.stranded(0, &state(&service));
    for number in 1..1000 {
        let run = place.spool().join(format!("{:013}-4242-{number:08x}", 1_764_000_000_000_u64 + number));
        fs::create_dir(&run).unwrap();
        close(&run);
        for file in ["lock", "run.json"] {
            fs::copy(first.join(file), run.join(file)).unwrap();
        }
    }
    let limited = |arguments: &str| {
        let mut command = command("sh");
        let script = format!("ulimit -n 40; exec \"$0\" upload {arguments} \"$1\"");
        command.args(["-c", &script]).arg(tracker()).arg(place.spool()).envs(service.environment(&place.spool()));
        command.output().unwrap()
    };
    let output = limited("--dry-run");
    assert_eq!(text(&output.stderr), "");
    assert!(text(&output.stdout).ends_with("\n1000 runs would be sent\n"));
    // Sending waits for the disk: a hundred show it as well.
    let beside = place.folder.path().join("beside");
    fs::create_dir(&beside).unwrap();
    for entry in fs::read_dir(place.spool()).unwrap().skip(100) {
        let entry = entry.unwrap();
        fs::rename(entry.path(), beside.join(entry.file_name())).unwrap();
    }
    let output = limited("");
    assert_eq!(text(&output.stderr), "");
    assert!(text(&output.stdout).ends_with("\n100 runs sent\n"));
    assert_eq!(fs::read_dir(place.spool()).unwrap().count(), 0);
    assert_eq!(service.known().runs.len(), 100);
}

#[test]
fn many_who_send_at_once_send_each_run_once() {
    let service = Service::start();
    let place = Place::new();
    for number in 0..40 {
        place.stranded(number, &with(state(&service), json!({ "facts": { "job_name": number.to_string() } })));
    }
    let start = || {
        let mut command = speaking(&service, &place.spool());
        command.arg("upload").arg(place.spool()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let senders: Vec<_> = (0..4).map(|_| start()).collect();
    let mut sent = 0;
    for sender in senders {
        let output = sender.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        sent += text(&output.stdout).matches(": sent\n").count();
    }
    assert_eq!((sent, fs::read_dir(place.spool()).unwrap().count()), (40, 0));
    let known = service.known();
    let mut names: Vec<&str> = known.runs.values().map(|run| run.facts["job_name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), known.runs.len()), (40, 40));
    assert!(known.runs.values().all(|run| run.finish.is_some()));
}

#[test]
fn runs_that_begin_while_others_send_keep_their_folders() {
    let service = Service::start();
    let place = Place::new();
    let spool = place.spool();
    let mut senders = command("sh");
    let script = "while [ ! -e \"$1.over\" ]; do \"$0\" upload \"$1\" || exit; done";
    senders.args(["-c", script]).arg(tracker()).arg(&spool).envs(service.environment(&spool));
    let sender = senders.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..15 {
        let mut run = speaking(&service, &spool);
        let output = run.args(["-q", "--spool-dir"]).arg(&spool).args(["--", "true"]).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    }
    fs::write(place.folder.path().join("spool.over"), "").unwrap();
    let output = sender.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let known = service.known();
    assert!(known.runs.len() == 15 && known.runs.values().all(|run| run.finish.is_some()));
}

/// A tracker can be killed before it has written anything down, and when all has arrived.
#[test]
fn what_is_left_of_a_folder_goes_when_runs_are_sent() {
    let service = Service::start();
    let place = Place::new();
    let hour = Duration::from_secs(3601);
    let make = |number: u32, names: &[&str], age: Duration| {
        let run = place.spool().join(format!("1764000000000-4242-{number:08x}"));
        fs::create_dir(&run).unwrap();
        close(&run);
        names.iter().for_each(|name| put(&run.join(name), b""));
        let times = fs::FileTimes::new().set_modified(SystemTime::now() - age);
        File::open(&run).unwrap().set_times(times).unwrap();
        run
    };
    let gone = [&[][..], &["lock"], &["lock", "run.json.tmp"]];
    let gone = [1, 2, 3].map(|number| make(number, gone[number as usize - 1], hour));
    let stays = [
        make(4, &[], Duration::ZERO),
        make(5, &["lock"], Duration::ZERO),
        make(6, &["lock", "photo"], hour),
        make(7, &["lock", "000000.csv"], hour),
        make(8, &["lock"], hour),
        make(9, &[], hour),
    ];
    let holder = File::open(stays[4].join("lock")).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    fs::rename(&stays[5], place.spool().join("mine")).unwrap();
    let before = seen(&place.spool());
    let output = upload(&service, &["--dry-run"], &place.spool());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    assert!(seen(&place.spool()) == before, "something has changed");
    let output = upload(&service, &[], &place.spool());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    let expected = before.into_iter().filter(|(path, _)| !gone.iter().any(|gone| path.starts_with(gone)));
    let is_inside = |path: &PathBuf| *path != place.spool();
    assert_eq!(
        seen(&place.spool()).into_iter().filter(|(path, _)| is_inside(path)).collect::<BTreeMap<_, _>>(),
        expected.filter(|(path, _)| is_inside(path)).collect()
    );
}

/// To look at what waits keeps nobody from sending it.
#[test]
fn a_run_that_is_looked_at_can_be_sent_meanwhile() {
    let service = Service::start();
    let place = Place::new();
    for number in 0..60 {
        place.stranded(number, &state(&service));
    }
    // The pipe is full before all lines are in it, and the run whose line does not fit is looked at until somebody reads.
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, 4096).unwrap();
    let mut look = speaking(&service, &place.spool());
    let mut look = look.args(["upload", "--dry-run"]).arg(place.spool()).stdout(writer).spawn().unwrap();
    wait_until("a full pipe", || rustix::io::ioctl_fionread(&reader).unwrap() > 3500);
    let runs = || fs::read_dir(place.spool()).unwrap().count();
    let output = upload(&service, &[], &place.spool());
    assert_eq!((output.status.code(), runs()), (Some(0), 0), "{}", text(&output.stderr));
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
