//! The spool touches only what is its own. Everything here was tried on earlier versions, which removed it, changed it,
//! waited for it or believed it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use resource_tracker_tests::sentinel::{BUCKET, Service};
use resource_tracker_tests::spool::{Home, put, said, seen, speaking, state, upload, with};
use resource_tracker_tests::{command, has, is_root, text, tracker};
use serde_json::json;

#[test]
fn what_others_put_into_the_folder_stays_as_it_is() {
    let service = Service::start();
    let home = Home::new();
    let spool = home.spool();
    fs::create_dir(spool.join("photos")).unwrap();
    put(&spool.join("photos/a"), b"x");
    put(&spool.join("photos/lock"), b"mine");
    // What only looks like a run: of another name, or with nothing saved in it.
    let run = home.stranded(1, &state(&service));
    fs::rename(&run, spool.join("copy-of-a-run")).unwrap();
    let empty = home.stranded(2, &state(&service));
    fs::remove_file(empty.join("run.json")).unwrap();
    fs::remove_file(empty.join("000000.csv")).unwrap();
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
    let home = Home::new();
    let spool = home.spool();
    fs::create_dir(spool.join("photos")).unwrap();
    home.stranded(1, &state(&service));
    for mode in [0o755, 0o770, 0o701, 0o1777] {
        fs::set_permissions(&spool, Permissions::from_mode(mode)).unwrap();
        let before = seen(&spool);
        for arguments in [&["--dry-run"][..], &[]] {
            let output = upload(&service, arguments, &spool);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            let expected = format!("{}: it is open to others (mode {mode:03o})", spool.display());
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
    let home = Home::new();
    home.stranded(1, &state(&service));
    let spool = home.spool();
    std::os::unix::fs::chown(&spool, Some(54321), None).unwrap();
    let before = seen(&spool);
    let output = upload(&service, &[], &spool);
    assert!(output.status.code() == Some(2) && said(&output).contains("belongs to user 54321"), "{}", said(&output));
    assert_eq!(seen(&spool), before);
}

#[test]
fn a_link_to_the_folder_is_refused() {
    let service = Service::start();
    let home = Home::new();
    home.stranded(1, &state(&service));
    let link = home.path().join("link");
    symlink(home.spool(), &link).unwrap();
    let before = seen(&home.spool());
    for path in [link.clone(), link.join(""), link.join(".")] {
        let output = upload(&service, &[], &path);
        assert!(output.status.code() == Some(2) && said(&output).contains("it is a link"), "{}", said(&output));
    }
    assert_eq!(seen(&home.spool()), before);
}

#[test]
fn a_missing_folder_is_made_for_the_user_alone_and_only_for_a_run() {
    let service = Service::start();
    let home = Home::new();
    let state = home.path().join("home/state");
    let spool = state.join("resource-tracker/spool");
    for arguments in [&["upload"][..], &["upload", "--dry-run"]] {
        let output = speaking(&service, &state).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), "nothing waits\n"));
    }
    assert!(!home.path().join("home").exists());
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
    let home = Home::new();
    for number in 1..4 {
        home.stranded(number, &state(&service));
    }
    put(&home.stranded(4, &state(&service)).join("run.json"), b"nonsense");
    fs::create_dir(home.spool().join("photos")).unwrap();
    let before = seen(&home.spool());
    let trace = home.path().join("trace");
    let traced = |arguments: &[&str]| {
        let calls = "trace=%file,fchmod,fchown,ftruncate,fallocate,fsync,fdatasync,fsetxattr,futimesat,utimensat";
        let mut command = command("strace");
        command.args(["-f", "-qq", "-e", calls, "-o"]).arg(&trace).arg(tracker()).envs(service.environment(&trace));
        let output = command.arg("upload").args(arguments).arg(home.spool()).output().unwrap();
        (output, fs::read_to_string(&trace).unwrap())
    };
    let (output, calls) = traced(&["--dry-run"]);
    assert!(text(&output.stdout).ends_with("3 runs would be sent, 1 run left\n"), "{}", said(&output));
    assert!(calls.matches("run.json").count() >= 4, "{calls}");
    assert_eq!(changes(&calls), [""; 0]);
    assert_eq!(seen(&home.spool()), before);
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
    let home = Home::new();
    let outside = home.path().join("outside");
    put(&outside, state(&service).to_string().as_bytes());
    let fifo = |path: &Path| assert!(Command::new("mkfifo").args(["-m", "600"]).arg(path).status().unwrap().success());
    let replace = |run: PathBuf, name: &str| {
        fs::remove_file(run.join(name)).unwrap();
        run.join(name)
    };
    let mut number = 0;
    let mut run = || {
        number += 1;
        home.stranded(number, &state(&service))
    };
    fifo(&replace(run(), "run.json"));
    symlink(&outside, replace(run(), "run.json")).unwrap();
    fs::create_dir(replace(run(), "run.json")).unwrap();
    fs::set_permissions(run().join("run.json"), Permissions::from_mode(0o644)).unwrap();
    fifo(&replace(run(), "lock"));
    symlink(&outside, replace(run(), "lock")).unwrap();
    fs::set_permissions(run(), Permissions::from_mode(0o755)).unwrap();
    let moved = run();
    fs::rename(&moved, home.path().join("moved")).unwrap();
    symlink(home.path().join("moved"), &moved).unwrap();
    let a_file = run();
    fs::rename(&a_file, home.path().join("moved too")).unwrap();
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
    let (before, beside) = (seen(&home.spool()), seen(&outside));
    for arguments in [&["--dry-run"][..], &[]] {
        let output = upload(&service, arguments, &home.spool());
        let lines = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{lines}");
        assert_eq!(lines.lines().count(), expected.len(), "{lines}");
        for ((line, expected), number) in lines.lines().zip(&expected).zip(1..) {
            assert!(line.contains(expected) && line.contains(&format!("-{number:08x}")), "{expected}: {line}");
        }
        assert_eq!((seen(&home.spool()), seen(&outside)), (before.clone(), beside.clone()));
    }
    // A run that goes on does not care.
    let mut run = speaking(&service, &home.spool());
    let output = run.args(["-q", "--spool-dir"]).arg(home.spool()).args(["--", "true"]).output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    assert_eq!(service.known().runs.len(), 1);
}

/// Not even root can read what the file system locks away; for other users, its mode is enough.
#[test]
fn a_user_without_the_right_to_read_a_run_is_told_so() {
    let test = "a_user_without_the_right_to_read_a_run_is_told_so";
    if !is_root(test) || !has("setpriv", test) {
        return;
    }
    let service = Service::start();
    let home = Home::new();
    let run = home.stranded(1, &state(&service));
    fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    for path in [&home.spool(), &run, &run.join("lock"), &run.join("run.json"), &run.join("000000.csv")] {
        std::os::unix::fs::chown(path, Some(54321), Some(54321)).unwrap();
    }
    fs::set_permissions(run.join("run.json"), Permissions::from_mode(0o000)).unwrap();
    // The binary is where others may not be able to go.
    let copy = home.path().join("tracker");
    resource_tracker_tests::copy_tracker(&copy);
    let before = seen(&home.spool());
    let mut command = command("setpriv");
    command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]).arg(copy).arg("upload").arg(home.spool());
    let output = command.envs(service.environment(&home.spool())).current_dir("/").output().unwrap();
    let lines = text(&output.stderr);
    assert!(output.status.code() == Some(1) && lines.contains("run.json") && lines.contains("denied"), "{lines}");
    assert_eq!(seen(&home.spool()), before);
}

#[test]
fn a_batch_that_is_no_file_of_the_users_is_left_out_and_stays() {
    let service = Service::start();
    let home = Home::new();
    let outside = home.path().join("outside");
    put(&outside, b"SECRET");
    let run = home.stranded(1, &state(&service));
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(run.join("000001.csv")).status().unwrap().success());
    symlink(&outside, run.join("000002.csv.gz")).unwrap();
    fs::copy(run.join("000000.csv"), run.join("000003.csv")).unwrap();
    put(&run.join("notes.txt"), b"mine");
    put(&run.join("1000000.csv"), b"mine");
    let output = upload(&service, &[], &home.spool());
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
    assert_eq!(said(&upload(&service, &[], &home.spool())), "nothing waits\n");
}

#[test]
fn a_run_of_another_service_is_left() {
    let (service, other) = (Service::start(), Service::start());
    let home = Home::new();
    let theirs = home.stranded(1, &state(&other));
    let registered = json!({ "api_url": "", "run_id": "run-1", "upload_uri_prefix": format!("s3://{BUCKET}/p") });
    let nobodys = home.stranded(2, &with(state(&other), registered));
    home.stranded(3, &with(state(&other), json!({ "api_url": "" })));
    home.stranded(4, &state(&service));
    let before = seen(&theirs);
    let output = upload(&service, &[], &home.spool());
    let lines = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(text(&output.stdout).ends_with("2 runs sent, 2 runs left\n"), "{}", said(&output));
    let expected =
        format!("{}: it belongs to {}/, not to {}/; set SENTINEL_API_URL", theirs.display(), other.url, service.url);
    assert!(lines.contains(&expected) && lines.lines().count() == 2, "{lines}");
    assert!(seen(&theirs) == before && nobodys.exists());
    assert!(other.known().requests.is_empty());
    // Nor does a run that goes on send it.
    let mut run = speaking(&service, &home.spool());
    run.args(["-q", "--spool-dir"]).arg(home.spool()).args(["--", "sleep", "1"]).output().unwrap();
    assert_eq!(seen(&theirs), before);
    assert_eq!(upload(&other, &[], &home.spool()).status.code(), Some(1), "the one of nobody is still there");
    assert!(!theirs.exists() && other.known().runs.len() == 1);
}

/// As `mkdir -p` did it, root's rows went wherever the link of another user led.
#[test]
fn folders_are_not_made_where_somebody_else_could_lead_them() {
    if !is_root("folders_are_not_made_where_somebody_else_could_lead_them") {
        return;
    }
    let service = Service::start();
    let home = Home::new();
    let at = |name: &str| home.path().join(name);
    for (name, mode) in [("shared", 0o1777), ("shared/theirs", 0o755), ("open", 0o777), ("target", 0o755)] {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    for (name, target) in [("shared/link", "../target"), ("shared/mine", "../target")] {
        symlink(target, at(name)).unwrap();
    }
    for name in ["shared/link", "shared/theirs"] {
        std::os::unix::fs::lchown(at(name), Some(54321), None).unwrap();
    }
    let run = |spool: &Path| {
        let mut run = speaking(&service, &at("state"));
        run.args(["-q", "--spool-dir"]).arg(spool).args(["--", "sh", "-c", "exit 7"]).output().unwrap()
    };
    let before = seen(home.path());
    for (name, why) in [
        ("shared/link", "it belongs to user 54321"),
        ("shared/theirs", "it belongs to user 54321"),
        ("open", "others can write to it (mode 777)"),
    ] {
        let output = run(&at(name).join("some/spool"));
        let said = said(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
        assert!(said.contains(&format!("{}: {why}", at(name).display())) && said.contains("--spool-dir"), "{said}");
        assert_eq!(seen(home.path()), before);
    }
    let output = run(&at("shared/mine/some/spool"));
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(7), ""));
    for path in ["target/some", "target/some/spool"] {
        assert_eq!(fs::metadata(at(path)).unwrap().mode() & 0o7777, 0o700);
    }
}
