//! What the job did, as the kernel counts it: context switches, page faults, bytes read and written.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::{command, copy_tracker, has, in_time, is_root, number, samples, text, tracker};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Where writing to a file counts as writing to storage, if the target folder is on a disk.
const DISK: &str = env!("CARGO_TARGET_TMPDIR");

/// Runs a tracker with these arguments. What the job printed, and the samples.
fn record(tracker: &mut Command, arguments: &[&str], job: &[&str]) -> (String, Vec<Json>) {
    let output = tracker.args(arguments).arg("--").args(job).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), samples(&output.stderr))
}

fn total(samples: &[Json], field: &str) -> f64 {
    samples.iter().filter_map(|sample| sample["cpu"][field].as_f64()).sum()
}

/// Whether `/proc/PID/io` is there.
fn has_io(test: &str) -> bool {
    let has = Path::new("/proc/self/io").exists();
    if !has {
        println!("skipped: {test} needs a kernel that counts I/O");
    }
    has
}

#[test]
fn three_hundred_short_children_and_an_orphan() {
    for options in [&["-i", "10s"][..], &["-i", "10s", "--no-cgroup"], &["-i", "50ms"], &["-i", "50ms", "--no-cgroup"]]
    {
        let (printed, samples) = record(&mut command(tracker()), options, &[JOB, "children", "300"]);
        let truth: Vec<f64> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let fields = [
            // It ends after it has asked.
            ("process_voluntary_context_switches", 20.0),
            ("process_involuntary_context_switches", 20.0),
            ("process_minor_faults", 200.0),
            ("process_major_faults", 20.0),
        ];
        for ((field, end), truth) in fields.into_iter().zip(truth) {
            let counted = total(&samples, field);
            assert!((truth..=truth + end).contains(&counted), "{options:?} {field}: {counted} of {truth}");
        }
        let last = &samples.last().unwrap()["cpu"];
        assert_eq!([&last["process_switches_accounting"], &last["process_io_accounting"]], ["exact"; 2], "{options:?}");
        // The job can have ended before the last one but one, which knows all then.
        let mut alive = samples.iter().filter(|sample| sample["cpu"]["process_rss_mib"].is_number());
        assert!(alive.all(|sample| sample["cpu"]["process_switches_accounting"] == "sampled"), "{samples:?}");
    }
}

#[test]
fn the_time_that_threads_waited_for_a_cpu_on_request() {
    let threads = (std::thread::available_parallelism().unwrap().get() + 2).to_string();
    for option in [false, true].map(|on| format!("sources.process.run_queue_wait={on}")) {
        let job = [JOB, "burn", &threads, "1000"];
        let (_, samples) = record(&mut command(tracker()), &["-i", "0.1", "--set", &option], &job);
        let is_told = samples.iter().any(|sample| sample["cpu"]["process_run_queue_wait_secs"].is_number());
        assert_eq!(is_told, option.ends_with("true") && Path::new("/proc/self/schedstat").exists());
        let waited = total(&samples, "process_run_queue_wait_secs");
        assert!(!is_told || waited > 0.3, "{waited} s");
    }
}

/// Without a cgroup and with one: nothing counts what was not waited for.
#[test]
fn children_that_nobody_waits_for_are_not_called_exact() {
    for options in [&["-i", "50ms"][..], &["-i", "50ms", "--no-cgroup"]] {
        let job = [resource_tracker_tests::benchmarks().to_str().unwrap(), "job", "ignored"];
        let (_, samples) = record(&mut command(tracker()), options, &job);
        let last = &samples.last().unwrap()["cpu"];
        let said = [&last["process_switches_accounting"], &last["process_io_accounting"]];
        assert_eq!(said, ["sampled"; 2], "{options:?}");
    }
}

/// Most of it never goes to a disk. The shell reads what the kernel has counted of it and of its children.
#[test]
fn three_hundred_mebibytes_that_are_written_and_deleted() {
    if !has_io("three_hundred_mebibytes_that_are_written_and_deleted") {
        return;
    }
    let folder = tempfile::tempdir_in(DISK).unwrap();
    let script = "head -c 314572800 /dev/zero >\"$0\" && rm \"$0\" && cat /proc/$$/io";
    let file = folder.path().join("file");
    for interval in ["0.1", "60"] {
        let job = ["sh", "-c", script, file.to_str().unwrap()];
        let (printed, samples) = record(&mut command(tracker()), &["-i", interval], &job);
        for (name, field) in [
            ("rchar", "process_read_chars"),
            ("wchar", "process_write_chars"),
            ("read_bytes", "process_disk_read_bytes"),
            ("write_bytes", "process_disk_write_bytes"),
            ("cancelled_write_bytes", "process_cancelled_write_bytes"),
        ] {
            let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let (truth, counted) = (line.unwrap().parse::<f64>().unwrap(), total(&samples, field));
            println!("{field}: {counted} of {truth}");
            // `cat` comes on top.
            assert!((truth..truth + 1e6).contains(&counted), "{field}: {counted} of {truth}");
        }
        assert!(total(&samples, "process_write_chars") >= 314_572_800.0);
    }
}

/// A user cannot read the I/O of a program that runs as root. What `wait4` reports of it is right all the same.
#[test]
fn the_io_of_a_program_of_root() {
    let test = "the_io_of_a_program_of_root";
    if !is_root(test) || !has("setpriv", test) || !has_io(test) {
        return;
    }
    let folder = tempfile::tempdir_in(DISK).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // The binary is where others may not be able to go.
    let [tracker, dd, file] = ["tracker", "dd", "file"].map(|name| folder.path().join(name));
    copy_tracker(&tracker);
    assert!(command("sh").args(["-c", "cp \"$(command -v dd)\" \"$0\""]).arg(&dd).status().unwrap().success());
    std::fs::set_permissions(&dd, Permissions::from_mode(0o4755)).unwrap();
    let mut user = command("setpriv");
    user.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]).arg(&tracker);
    let of = format!("of={}", file.display());
    let job = [dd.to_str().unwrap(), "if=/dev/zero", &of, "bs=64k", "count=16", "status=none"];
    let (_, samples) = record(user.current_dir("/"), &["-i", "60"], &job);
    let last = &samples.last().unwrap()["cpu"];
    for field in ["process_read_chars", "process_write_chars", "process_cancelled_write_bytes"] {
        assert!(last[field].is_null(), "{field}: {last}");
    }
    // A page or two of the file system's own can be in it.
    let (written, truth) = (number(last, "/process_disk_write_bytes"), f64::from(1 << 20));
    assert!((truth..truth + 65536.0).contains(&written), "{written} of {truth}");
    assert_eq!(last["process_switches_accounting"], "exact");
}

/// The files of a process that has ended belong to root until it is waited for.
#[test]
fn the_io_of_a_user_s_own_program_is_known_to_its_end() {
    let test = "the_io_of_a_user_s_own_program_is_known_to_its_end";
    if !is_root(test) || !has("setpriv", test) || !has_io(test) {
        return;
    }
    let folder = tempfile::tempdir_in(DISK).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(54321), Some(54321)).unwrap();
    let tracker = folder.path().join("tracker");
    copy_tracker(&tracker);
    let write = "dd if=/dev/zero of=file bs=64k count=16 status=none; rm file";
    let truth = f64::from(1 << 20);
    in_time(|| {
        let mut user = command("setpriv");
        user.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]).arg(&tracker);
        let (_, samples) = record(user.current_dir(folder.path()), &["-i", "60"], &["sh", "-c", write]);
        // The tracker may come too late to open the file of a command that has ended at once. Then nothing is told.
        let last = &samples.last().unwrap()["cpu"];
        let was_opened = last["process_read_chars"].is_number();
        for field in ["process_read_chars", "process_write_chars", "process_cancelled_write_bytes"] {
            let counted = total(&samples, field);
            assert!(!was_opened || (truth..truth + 1e5).contains(&counted), "{field}: {counted} of {truth}");
            assert_eq!(last[field].is_number(), was_opened, "{last}");
        }
        assert_eq!(last["process_io_accounting"], "exact");
        was_opened
    });
}

/// The shell of a user waits for a shell of root, whose I/O the user cannot read. That waits for a program of the user.
#[test]
fn what_is_handed_on_by_a_program_of_root_counts_once() {
    let test = "what_is_handed_on_by_a_program_of_root_counts_once";
    if !is_root(test) || !has("setpriv", test) || !has_io(test) {
        return;
    }
    let folder = tempfile::tempdir_in(DISK).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(54321), Some(54321)).unwrap();
    let at = |name: &str| folder.path().join(name);
    copy_tracker(&at("tracker"));
    let copies = "cp \"$(command -v sh)\" root-sh && chmod 4755 root-sh && cp \"$0\" job";
    assert!(command("sh").args(["-c", copies, JOB]).current_dir(folder.path()).status().unwrap().success());
    let user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    // Each lasts until it was seen.
    let seen = "./job until run.jsonl $(($(wc -l <run.jsonl) + 4)) timestamp_ms";
    let write = "dd if=/dev/zero of=file bs=64k count=256 status=none";
    std::fs::write(at("inner"), format!("{write}; {seen}\n")).unwrap();
    std::fs::write(at("middle"), format!("{user} sh inner; {seen}\n")).unwrap();
    let outer = format!(": >>run.jsonl; ./root-sh -p middle; {seen}");
    let mut tracker = command("sh");
    tracker
        .current_dir(folder.path())
        .args(["-c", &format!("exec {user} ./tracker -i 50ms -o run.jsonl -- sh -c '{outer}'")]);
    let output = tracker.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let samples = samples(&std::fs::read(at("run.jsonl")).unwrap());
    let (written, truth) = (total(&samples, "process_disk_write_bytes"), f64::from(16 << 20));
    assert!((truth..truth + 65536.0).contains(&written), "{written} of {truth}");
    let mut said = samples.iter().map(|sample| &sample["cpu"]["process_io_accounting"]);
    assert!(said.any(|word| word == "sampled") && said.any(|word| word == "exact"), "{samples:?}");
}

#[test]
fn the_busiest_processes_on_request() {
    let busy = format!("{JOB} burn 1 1500 & busy=$!; sleep 60 & idle=$!; wait $busy; kill $idle");
    let job = ["sh", "-c", &busy];
    let (_, plain) = record(&mut command(tracker()), &["-i", "0.2"], &job);
    assert!(plain.iter().all(|sample| sample.get("top_processes").is_none()));
    in_time(|| {
        let flags = ["-i", "0.2", "--set", "sources.process.top=2"];
        let (_, samples) = record(&mut command(tracker()), &flags, &job);
        let lists: Vec<&Vec<Json>> = samples.iter().map(|sample| sample["top_processes"].as_array().unwrap()).collect();
        assert!(lists.iter().all(|list| list.len() <= 2));
        let of_two = lists.iter().filter(|list| list.len() == 2);
        for list in of_two.clone() {
            let cores = |place: usize| list[place]["cores_used"].as_f64().unwrap();
            assert!(cores(0) >= cores(1), "{list:?}");
            assert!(
                list.iter().all(|one| one["pid"].as_u64().unwrap() > 1 && number(one, "/rss_mib") > 0.0),
                "{list:?}"
            );
        }
        // It is busy by itself, however many others there are.
        of_two.filter(|list| list[0]["name"] == "job" && list[0]["cores_used"].as_f64().unwrap() > 0.0).count() >= 3
    });
}
