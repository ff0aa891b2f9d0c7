//! Files of samples: shared, rotated, compressed, and what name and flags say of them together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use flate2::read::MultiGzDecoder;
use resource_tracker_tests::{command, has, in_time, is_root, job, number, samples, text, track, tracker, wait_until};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value as Json;

/// A file sink of this name, with further keys.
fn sink(name: &str, path: &Path, keys: &str) -> String {
    format!("sinks.{name}={{ type = 'file', path = '{}'{keys} }}", path.display())
}

/// A tracker that writes the same samples to both files, every 2 ms, for at least so long and at least four samples.
fn twice(shared: &Path, keys: &str, own: &Path, seconds: &str) -> Command {
    twice_every("2ms", shared, keys, own, seconds)
}

fn twice_every(interval: &str, shared: &Path, keys: &str, own: &Path, seconds: &str) -> Command {
    let told = own.with_file_name(format!("told-{}.jsonl", own.file_name().unwrap().display()));
    let mut tracker = command(tracker());
    tracker.args(["-q", "-i", interval, "--set", &sink("shared", shared, keys), "--set", &sink("own", own, "")]);
    let job = format!("sleep {seconds}; '{}' until '{}' 4 ''", job().display(), told.display());
    tracker.args(["--set", &sink("told", &told, ""), "--", "sh", "-c", &job]).stderr(Stdio::piped());
    tracker
}

/// The text of a file, decompressed if its name says that it is compressed. `None` when it is not whole.
fn contents(path: &Path) -> Option<String> {
    let bytes = fs::read(path).unwrap();
    if path.extension().is_none_or(|suffix| suffix != "gz") {
        return String::from_utf8(bytes).ok();
    }
    let mut text = String::new();
    MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The files of a folder whose names begin so, by name.
fn files(folder: &Path, start: &str) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.filter(|(name, _)| name.starts_with(start)).collect()
}

/// All lines but headers, sorted.
fn rows<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let mut rows = Vec::new();
    for path in paths {
        let text = contents(path).unwrap_or_else(|| panic!("{} is not whole", path.display()));
        assert!(text.ends_with('\n'), "{}", path.display());
        let is_csv = path.to_string_lossy().contains(".csv");
        assert_eq!(text.matches("timestamp,").count(), usize::from(is_csv), "{}", path.display());
        rows.extend(text.lines().skip(usize::from(is_csv)).map(str::to_owned));
    }
    rows.sort_unstable();
    rows
}

/// Cases that wait, each on a thread of its own.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(|| check(case)))));
}

/// Every row of every tracker is in exactly one of the files, whatever makes them begin a new one.
#[test]
fn trackers_that_share_a_rotated_file_lose_and_double_no_row() {
    for (name, keys) in [
        ("run.jsonl", ", rotate_bytes = 20000"),
        ("run.jsonl", ", rotate_bytes = 1"),
        ("run.csv", ", rotate_bytes = 500"),
        ("run.csv", ", rotate_secs = 0.01"),
        ("run.jsonl.gz", ", rotate_bytes = 5000"),
    ] {
        in_time(|| {
            let directory = tempfile::tempdir().unwrap();
            let suffix = name.split_once('.').unwrap().1;
            let own = |number: usize| directory.path().join(format!("own{number}.{suffix}"));
            let shared = directory.path().join(name);
            let running: Vec<Child> =
                (0..4).map(|number| twice(&shared, keys, &own(number), "0.5").spawn().unwrap()).collect();
            let said: Vec<Output> = running.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
            let said: String = said.iter().map(|output| text(&output.stderr)).collect();
            if said.contains("does not keep up") {
                return false;
            }
            assert_eq!(said, "", "{name}{keys}");
            let shared = files(directory.path(), "run.");
            assert!(shared.len() > 3, "{name}{keys}: {shared:?}");
            let (shared, own) = (rows(shared.values()), rows(files(directory.path(), "own").values()));
            assert!(shared == own, "{name}{keys}: {} rows of {}", shared.len(), own.len());
            true
        });
    }
}

#[test]
fn rotation_touches_only_files_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = at("run.jsonl");
    // Other things with such names: a data set, a link to samples, a folder, a FIFO, and a name that the tracker never
    // gives.
    fs::write(at("run.1.jsonl"), "{\"mine\":1}\n").unwrap();
    fs::write(at("samples"), "{\"timestamp_secs\":1}\n").unwrap();
    symlink(at("samples"), at("run.2.jsonl")).unwrap();
    fs::create_dir(at("run.3.jsonl")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("run.4.jsonl"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    fs::write(at("run.005.jsonl"), "{\"timestamp_secs\":1}\n").unwrap();
    let keys = ", rotate_bytes = 1, rotate_keep = 2";
    let output = twice(&path, keys, &at("own.jsonl"), "0.2").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(contents(&at("run.1.jsonl")).unwrap(), "{\"mine\":1}\n");
    assert_eq!(contents(&at("run.005.jsonl")).unwrap(), "{\"timestamp_secs\":1}\n");
    assert_eq!(fs::read_link(at("run.2.jsonl")).unwrap(), at("samples"));
    assert_eq!(contents(&at("samples")).unwrap(), "{\"timestamp_secs\":1}\n");
    assert!(at("run.3.jsonl").is_dir() && at("run.4.jsonl").exists());
    let mut left = files(directory.path(), "run.");
    left.retain(|name, _| {
        !["run.1.jsonl", "run.2.jsonl", "run.3.jsonl", "run.4.jsonl", "run.005.jsonl"].contains(&&**name)
    });
    assert_eq!(left.len(), 3, "{left:?}");
    let newest = rows(left.values());
    // Two samples can be of one millisecond, so only the file has their order.
    let own = contents(&at("own.jsonl")).unwrap();
    let mut last: Vec<&str> = own.lines().rev().take(newest.len()).collect();
    last.sort_unstable();
    assert_eq!(newest, last, "the newest are kept");
}

/// Nothing shows that these are the tracker's: an empty file, notes under the name of compressed samples, the first
/// bytes of any gzip file.
#[test]
fn what_is_not_proven_to_be_ours_is_not_deleted() {
    for suffix in ["jsonl", "jsonl.gz", "csv", "csv.gz"] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(format!("{name}.{suffix}"));
        let others: [(&str, &[u8]); 4] =
            [("run.1", b"notes\n"), ("run.2", b"\x1f\x8b\x08"), ("run.3", b""), ("run.4", b"hi")];
        for (name, bytes) in others {
            fs::write(at(name), bytes).unwrap();
        }
        let output = twice(&at("run"), ", rotate_bytes = 1, rotate_keep = 1", &at("own"), "0.2").output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{suffix}");
        for (name, bytes) in others {
            assert_eq!(fs::read(at(name)).ok().as_deref(), Some(bytes), "{name}.{suffix}");
        }
        let left = files(directory.path(), "run.");
        assert_eq!(left.len(), others.len() + 2, "{suffix}: {left:?}");
    }
}

#[test]
fn a_file_of_something_else_is_not_taken_for_a_torn_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl.gz");
    fs::write(&path, "hi").unwrap();
    let output = twice(&path, "", &directory.path().join("own.jsonl"), "0").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("is not JSON Lines, compressed"), "{said}");
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), files(directory.path(), "run.").len()), ("hi", 1));
}

/// A message has said that it is kept.
#[test]
fn a_torn_file_that_was_set_aside_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let path = at("run.jsonl.gz");
    assert!(twice(&path, "", &at("own.jsonl"), "0.1").status().unwrap().success());
    let mut torn = fs::read(&path).unwrap();
    torn.truncate(torn.len() - 9);
    fs::write(&path, &torn).unwrap();
    let keys = ", rotate_bytes = 1, rotate_keep = 1";
    let output = twice(&path, keys, &at("later.jsonl"), "0.2").output().unwrap();
    assert!(text(&output.stderr).contains("it is kept as"), "{}", text(&output.stderr));
    let left = files(directory.path(), "run.");
    assert!(!left.contains_key("run.2.jsonl.gz") && left.len() == 3, "{left:?}");
    assert_eq!(fs::read(at("run.1.jsonl.gz")).unwrap(), torn);
}

#[test]
fn a_link_stays_and_its_file_is_rotated_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (data, link) = (directory.path().join("data"), directory.path().join("run.jsonl"));
    fs::create_dir(&data).unwrap();
    symlink("data/real.jsonl", &link).unwrap();
    let own = directory.path().join("own.jsonl");
    let output = twice(&link, ", rotate_bytes = 1", &own, "0.2").output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("data/real.jsonl"));
    assert_eq!(files(directory.path(), "run.").len(), 1);
    let real = files(&data, "real.");
    assert!(real.len() > 2);
    assert_eq!(rows(real.values()), rows([&own]));
}

#[test]
fn what_has_no_name_of_its_own_is_not_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let rotate = ["--set", "sinks.output.rotate_bytes=1"];
    let mut tracker = command(tracker());
    tracker.args(["-o", "/dev/stdout"]).args(rotate).args(["--", "sh", "-c", "echo started"]);
    let output = tracker.stdout(File::create(&out).unwrap()).stderr(Stdio::piped()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("/dev/stdout is a descriptor"), "{said}");
    assert_eq!(fs::read_to_string(&out).unwrap(), "");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// The command gets the descriptor, after which the tracker has another file, or none, under its number.
#[test]
fn the_file_of_a_descriptor_gets_every_row() {
    let cases = [
        ("/dev/stdout", "run.jsonl", ""),
        ("/dev/stdout", "run.jsonl.gz", ", gzip = true"),
        ("/dev/stdout", "run.csv", ", format = 'csv'"),
        ("/dev/fd/7", "run.jsonl", ""),
        ("/dev/fd/7", "run.jsonl.gz", ", gzip = true"),
        ("link.gz", "run.jsonl.gz", ""),
    ];
    at_once(cases, |(path, name, keys)| {
        let directory = tempfile::tempdir().unwrap();
        let (out, own) = (directory.path().join(name), directory.path().join(format!("own{}", &name[3..])));
        symlink("/dev/stdout", directory.path().join("link.gz")).unwrap();
        let tracker = twice_every("100ms", Path::new(path), keys, &own, "1.3");
        let mut shell = command("sh");
        shell.args(["-c", "exec \"$@\" 7>>\"$0\" >>\"$0\""]).arg(&out).arg(tracker.get_program());
        let output = shell.args(tracker.get_args()).current_dir(directory.path()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{path} {keys}");
        assert!(rows([&own]).len() >= 2);
        assert_eq!(rows([&out]), rows([&own]), "{path} {keys}");
    });
}

/// Who holds the lock can be in the midst of a change of the end.
#[test]
fn nothing_is_added_to_a_compressed_file_while_another_has_its_turn() {
    let directory = tempfile::tempdir().unwrap();
    let [path, own] = ["run.csv.gz", "own.csv"].map(|name| directory.path().join(name));
    let holder = File::create(&path).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let mut tracker = command(tracker());
    tracker.args(["-q", "-i", "50ms", "--set", &sink("shared", &path, ""), "--set", &sink("own", &own, "")]);
    // Should the test fail, it ends by itself.
    let tracker = tracker.args(["--", "sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    let written = || fs::read_to_string(&own).map_or(0, |text| text.lines().count());
    wait_until("more samples than are waited for with patience", || written() > 40);
    let length = fs::metadata(&path).unwrap().len();
    // Hundreds more would be too many to wait.
    assert!(length == 0 || written() > 300);
    flock(&holder, FlockOperation::Unlock).unwrap();
    wait_until("what has waited", || fs::metadata(&path).unwrap().len() > length);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(tracker.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    let output = tracker.wait_with_output().unwrap();
    assert_eq!((output.status.signal(), text(&output.stderr).lines().count()), (Some(15), 1), "{output:?}");
    assert_eq!(rows([&path]), rows([&own]));
}

/// A program that holds the lock for ever neither hangs the run nor costs it a row.
#[test]
fn a_lock_that_somebody_keeps_is_not_waited_for() {
    at_once([("run.jsonl", ", rotate_bytes = 1"), ("run.csv", ""), ("run.jsonl.gz", "")], |(name, keys)| {
        let directory = tempfile::tempdir().unwrap();
        let (path, own) = (directory.path().join(name), directory.path().join(format!("own{}", &name[3..])));
        let holder = File::create(&path).unwrap();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let output = twice_every("50ms", &path, keys, &own, "0.3").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
        assert!(said.contains(&format!("{name} is locked by another program")), "{said}");
        assert_eq!(files(directory.path(), "run.").len(), 1, "it is not rotated");
        assert_eq!(rows([&path]), rows([&own]), "{name}");
    });
}

#[test]
fn another_user_s_file_is_added_to_and_not_renamed() {
    if !is_root("a file of another user") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (path, own) = (directory.path().join("run.jsonl"), directory.path().join("own.jsonl"));
    fs::write(&path, "").unwrap();
    std::os::unix::fs::chown(&path, Some(54321), Some(54321)).unwrap();
    let output = twice(&path, ", rotate_bytes = 1", &own, "0.2").output().unwrap();
    let said = text(&output.stderr);
    assert!(
        said.lines().count() == 2 && said.contains("run.jsonl belongs to user 54321, who alone can begin"),
        "{said}"
    );
    assert_eq!((rows([&path]), fs::metadata(&path).unwrap().uid()), (rows([&own]), 54321));
    assert_eq!(files(directory.path(), "run.").len(), 1);
}

/// The next tracker may be one of the group's.
#[test]
fn a_new_file_has_the_permissions_of_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let (path, own) = (directory.path().join("run.jsonl"), directory.path().join("own.jsonl"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
    twice(&path, ", rotate_bytes = 1", &own, "0.1").output().unwrap();
    for path in files(directory.path(), "run.").values() {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o664, "{}", path.display());
    }
}

/// Two sinks of one run, told to write different things to one file.
#[test]
fn a_file_that_another_began_in_another_format_is_left_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let set = [sink("a", &path, ", format = 'csv'"), sink("b", &path, ", format = 'json'")];
    let output = track(["-q", "-i", "20ms", "--set", &set[0], "--set", &set[1], "--", "sleep", "0.3"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.contains("run exists and is not"), "{said}");
    let text = fs::read_to_string(&path).unwrap();
    let is_json = |line: &str| line.starts_with('{');
    assert!(text.lines().all(is_json) || !text.lines().any(is_json), "{text}");
}

/// Whatever reads gzip reads it, at any moment.
#[test]
fn a_compressed_file_is_whole_after_a_kill() {
    let test = "a compressed file after a kill";
    let (gzip, python) = (has("gzip", test), has("python3", test));
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let (path, own) = (directory.path().join("run.jsonl.gz"), directory.path().join("own.jsonl"));
        let mut tracker = twice(&path, "", &own, "60").spawn().unwrap();
        wait_until("samples", || path.exists() && contents(&path).is_some_and(|text| text.lines().count() >= 20));
        tracker.kill().unwrap();
        tracker.wait().unwrap();
        let text = contents(&path).expect("it is whole");
        let rows = samples(text.as_bytes()).len();
        let plain = fs::read_to_string(&own).unwrap();
        // The two are written by a thread each.
        assert!(plain.starts_with(&text) || text.starts_with(&plain));
        if gzip {
            assert!(Command::new("gzip").arg("-t").arg(&path).status().unwrap().success());
        }
        if python {
            let count = "import gzip, sys; print(len(gzip.open(sys.argv[1]).read().splitlines()))";
            let output = Command::new("python3").args(["-c", count]).arg(&path).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), rows.to_string());
        }
        // It goes on in the same file.
        twice(&path, "", &directory.path().join("next.jsonl"), "0.1").output().unwrap();
        let both = contents(&path).expect("it is whole");
        assert!(both.starts_with(&text) && samples(both.as_bytes()).len() > rows);
        assert_eq!(files(directory.path(), "run.").len(), 1);
    }
}

/// What is compressed is small, although it is whole after every sample: a sample that is compressed alone has a third.
#[test]
fn a_compressed_file_is_small() {
    let directory = tempfile::tempdir().unwrap();
    let (path, own) = (directory.path().join("run.jsonl.gz"), directory.path().join("own.jsonl"));
    in_time(|| {
        twice(&path, ", if_exists = 'overwrite'", &own, "1").output().unwrap();
        let rows = contents(&path).unwrap();
        let lines = rows.lines().count();
        assert!(fs::metadata(&path).unwrap().len() < rows.len() as u64 / 6, "{lines} rows");
        lines > 50
    });
}

/// What comes after a torn end cannot be decompressed, so the torn file is kept as it is, beside the new file.
#[test]
fn a_torn_compressed_file_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let whole = at("whole.jsonl.gz");
    twice(&whole, "", &at("own.jsonl"), "0.2").output().unwrap();
    let bytes = fs::read(&whole).unwrap();
    for cut in [1, 9, 11, bytes.len() / 2, bytes.len() - 5] {
        let name = format!("cut{cut}");
        let path = at(&format!("{name}.jsonl.gz"));
        fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
        let output = twice(&path, "", &at(&format!("own{cut}.jsonl")), "0.1").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
        let aside = at(&format!("{name}.1.jsonl.gz"));
        assert!(said.contains(&format!("it is kept as {}", aside.display())), "{said}");
        assert_eq!(fs::read(&aside).unwrap(), bytes[..bytes.len() - cut]);
        assert_eq!(rows([&path]), rows([&at(&format!("own{cut}.jsonl"))]));
    }
}

/// Where nothing lives there is no memory, which is not the same as none of it: means stay right.
#[test]
fn memory_of_a_job_that_has_ended_is_null() {
    let directory = tempfile::tempdir().unwrap();
    let [json, csv] = ["run.jsonl", "run.csv"].map(|name| directory.path().join(name));
    let set = [sink("a", &json, ""), sink("b", &csv, ", columns = 'sentinel'")];
    let output = track(["-q", "-i", "0.2", "--set", &set[0], "--set", &set[1], "--", "sleep", "0.5"]);
    assert_eq!(text(&output.stderr), "");
    let samples = samples(&fs::read(&json).unwrap());
    let last = samples.last().unwrap();
    for field in
        ["process_rss_mib", "process_pss_mib", "process_pss_age_secs", "process_memory_mib", "process_anon_mib"]
    {
        assert_eq!(last["cpu"][field], Json::Null, "{field}");
    }
    assert_eq!(last["cpu"]["process_gpu_vram_mib"], Json::Null);
    for field in ["process_child_count", "process_thread_count", "process_cores_used", "process_disk_read_bytes"] {
        assert!(last["cpu"][field].is_number(), "{field}");
    }
    assert!(number(last, "/cpu/process_peak_rss_mib") > 0.0);
    // The tracker may learn late of the end.
    let has_memory = |sample: &Json| sample["cpu"]["process_rss_mib"].as_f64().is_some_and(|rss| rss > 0.0);
    let lived = samples.iter().take_while(|sample| has_memory(sample)).count();
    assert!(lived > 0 && samples[lived..].iter().all(|sample| sample["cpu"]["process_rss_mib"].is_null()));
    let csv = fs::read_to_string(&csv).unwrap();
    let table: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| table[0].iter().position(|column| *column == name).unwrap();
    let last = table.last().unwrap();
    assert_eq!((last[column("process_memory_mib")], last[column("process_children")]), ("", "0"));
    assert!(!last[column("process_pid")].is_empty());
}
