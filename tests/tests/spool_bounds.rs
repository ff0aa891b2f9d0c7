//! What is in the spool costs no more memory, time and descriptors than it can be worth, and its end fits on a full disk.

use std::fs::{self};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use resource_tracker_tests::sentinel::{BUCKET, Service, Trouble};
use resource_tracker_tests::spool::{Home, put, said, seen, speaking, state, upload, with};
use resource_tracker_tests::{Recording, command, has, is_root, number, text, tracker, wait_until};
use serde_json::{Value as Json, json};

#[test]
fn bytes_that_no_tracker_writes_are_said_and_stay_as_they_are() {
    let service = Service::start();
    let home = Home::new();
    let good = state(&service);
    let deep = format!(r#"{{"facts":{{"a":{}{}}}}}"#, "[".repeat(1000), "]".repeat(1000));
    let wide_facts = format!(r#"{{"facts":{{"a":{}{}}}}}"#, "[".repeat(1 << 20), "]".repeat(1 << 20));
    let many: Vec<u32> = (0..1_000_001).collect();
    let long = format!(r#"{{"api_url":"{}"}}"#, "x".repeat(17 << 20));
    // The addresses of its batches would take gigabytes.
    let wide = json!({ "run_id": "r", "upload_uri_prefix": format!("s3://b/{}", "x".repeat(1000)), "next": 1_000_000, "inline": false });
    let cases: [(Vec<u8>, &str); 14] = [
        (with(good.clone(), wide).to_string().into(), "next is more than"),
        (b"".into(), "ends too early"),
        (b"\0\xff nonsense SECRET".into(), "is no JSON"),
        (deep.into(), "too deep"),
        (wide_facts.into(), "facts has more than 65536 values"),
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
        put(&home.stranded(number, &json!({})).join("run.json"), content);
    }
    let before = seen(&home.spool());
    for arguments in [&["--dry-run"][..], &[]] {
        let output = upload(&service, arguments, &home.spool());
        let lines = text(&output.stderr);
        assert_eq!((output.status.code(), lines.lines().count()), (Some(1), cases.len()), "{lines}");
        for ((line, (_, expected)), number) in lines.lines().zip(&cases).zip(1..) {
            let name = format!("-{number:08x} cannot be read, and stays as it is: run.json: ");
            assert!(line.contains(&name) && line.contains(expected) && line.len() < 400, "{expected}: {line}");
            assert!(!line.contains("SECRET"), "{line}");
        }
        assert!(seen(&home.spool()) == before, "something has changed");
    }
    assert!(service.known().requests.is_empty());
}

/// What a program printed, and how much memory it took at most, in MiB.
fn measured(command: &mut Command, folder: &Path) -> (Output, f64) {
    let samples = folder.join("samples.jsonl");
    let mut tracker = Command::new(tracker());
    tracker.args(["--disable", "sentinel-s3", "-o"]).arg(&samples).arg("--").arg(command.get_program());
    tracker.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = tracker.stdin(Stdio::null()).output().unwrap();
    let samples = resource_tracker_tests::samples(&fs::read(samples).unwrap());
    let peak = number(samples.last().unwrap(), "/cpu/process_peak_rss_mib");
    (output, peak)
}

#[test]
fn what_a_batch_unpacks_to_takes_no_memory() {
    let service = Service::start();
    let home = Home::new();
    let small = home.path().join("small");
    let script = "head -c 256M /dev/zero | gzip -1 >\"$0\" && chmod 600 \"$0\"";
    assert!(Command::new("sh").args(["-c", script]).arg(&small).status().unwrap().success());
    let bomb = |number: u32, state: &Json| {
        let run = home.stranded(number, state);
        fs::remove_file(run.join("000000.csv")).unwrap();
        fs::copy(&small, run.join("000000.csv.gz")).unwrap();
        run
    };
    bomb(1, &state(&service));
    let registered =
        json!({ "run_id": "run-1", "upload_uri_prefix": format!("s3://{BUCKET}/some/prefix"), "inline": true });
    let inline = bomb(2, &with(state(&service), registered));
    let mut upload = speaking(&service, &home.spool());
    let (output, peak) = measured(upload.arg("upload").arg(home.spool()), home.path());
    assert!(output.status.code() == Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("1 run sent, 1 run left"), "{}", said(&output));
    assert!(text(&output.stderr).contains("batch 0 is larger than what was sent of it"), "{}", said(&output));
    assert!(peak < 100.0, "{peak} MiB");
    // The store has the first run unchanged; of the second one, nothing was sent.
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!(finish["data_uris"].as_array().unwrap().len(), 1);
    assert!(inline.join("000000.csv.gz").exists());
}

/// A value in memory takes many times what its text does.
#[test]
fn a_long_run_json_takes_little_memory() {
    let service = Service::start();
    let home = Home::new();
    // 15 MiB each.
    let cases = [
        (format!(r#"{{"facts":{{"a":[{}0]}}}}"#, "0,".repeat(15 << 19)), "facts has more than 65536 values"),
        (format!(r#"{{"next":1,"lost":[{}0]}}"#, "0,".repeat(15 << 19)), "lost does not fit"),
        // What a long command line can be, which is read.
        (with(state(&service), json!({ "facts": { "command": "x,".repeat(15 << 19) } })).to_string(), ""),
    ];
    for ((content, _), number) in cases.iter().zip(1..) {
        put(&home.stranded(number, &json!({})).join("run.json"), content.as_bytes());
    }
    let mut look = speaking(&service, &home.spool());
    let (output, peak) = measured(look.args(["upload", "--dry-run"]).arg(home.spool()), home.path());
    let lines = text(&output.stderr);
    assert_eq!((output.status.code(), lines.lines().count()), (Some(1), 2), "{lines}");
    for (line, (_, expected)) in lines.lines().zip(&cases) {
        assert!(line.contains(expected), "{expected}: {line}");
    }
    assert!(text(&output.stdout).ends_with("1 run would be sent, 2 runs left\n"), "{}", said(&output));
    assert!(peak < 150.0, "{peak} MiB");
}

/// The number of a batch can be any, and does not tell how many there are.
#[test]
fn a_batch_of_a_high_number_costs_no_more_than_another() {
    let test = "a_batch_of_a_high_number_costs_no_more_than_another";
    if !has("strace", test) {
        return;
    }
    let service = Service::start();
    let home = Home::new();
    let run = home.stranded(1, &with(state(&service), json!({ "inline": false })));
    fs::rename(run.join("000000.csv"), run.join("999999.csv")).unwrap();
    let trace = home.path().join("trace");
    let mut command = command("strace");
    command.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&trace).arg(tracker()).arg("upload").arg(home.spool());
    let output = command.envs(service.environment(&home.spool())).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let calls = fs::read_to_string(&trace).unwrap().matches(".csv").count();
    assert!((1..50).contains(&calls), "{calls} calls");
    let uri = format!("s3://{BUCKET}/some/prefix/run-1/999999.csv.gz");
    assert_eq!(service.known().runs["run-1"].finish.clone().unwrap()["data_uris"], json!([uri]));
}

/// With many runs in the spool, what all files take is not asked again for each batch that is given up.
#[test]
fn to_give_up_many_batches_costs_a_few_calls_each() {
    let test = "to_give_up_many_batches_costs_a_few_calls_each";
    if !has("strace", test) {
        return;
    }
    let (home, recording) = (Home::new(), Recording::new());
    let (runs, batches) = (60, 5);
    for number in 0..runs {
        let run = home.stranded(number, &json!({ "api_url": "http://127.0.0.1:1/" }));
        (1..batches).for_each(|batch| put(&run.join(format!("{batch:06}.csv")), b"x\n"));
    }
    let trace = recording.path().with_file_name("trace");
    let mut command = command("strace");
    command.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&trace).arg(tracker());
    command.args(["-q", "--spool-max", "0", "--spool-dir"]).arg(home.spool());
    command.args(["--set", "sinks.sentinel-s3.api_url=http://127.0.0.1:1", "--disable", "cloud", "-i", "50ms"]);
    command.args(["--", "sh", "-c", &recording.until_said("the spool is full")]);
    command.env("SENTINEL_API_TOKEN", "token-4711").env("TRACKER_UPLOAD_INTERVAL", "0.2");
    let output = recording.run(&mut command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = fs::read_to_string(&trace).unwrap();
    let calls = trace.lines().filter(|line| line.contains(".csv")).count() as u32;
    assert!((1..20 * runs * batches).contains(&calls), "{calls} calls");
}

/// To make room, neither files without a run nor rows of other runs are given up.
#[test]
fn rows_without_a_run_take_no_room_from_others() {
    let (service, home) = (Service::start(), Home::new());
    service.trouble(&[("POST", Trouble::Status(503, None))]);
    let orphan = home.stranded(1, &json!({}));
    fs::remove_file(orphan.join("run.json")).unwrap();
    put(&orphan.join("000001.csv"), &vec![b'x'; 2 << 20]);
    let recording = Recording::new();
    let mut command = speaking(&service, &home.spool());
    command.args(["-q", "--spool-max", "1", "-i", "50ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"]);
    command.arg("--spool-dir").arg(home.spool()).args(["--", "sh", "-c", &recording.until_told()]);
    command.env("TRACKER_UPLOAD_INTERVAL", "0.1");
    let closed = |run: fs::DirEntry| run.path().join("000003.csv").exists() && run.path() != orphan;
    let is_so = || fs::read_dir(home.spool()).unwrap().flatten().any(closed);
    let output = recording.run_until(&mut command, "a fourth batch", is_so);
    assert!(!text(&output.stderr).contains("the spool is full"), "{}", text(&output.stderr));
    assert!(orphan.join("000001.csv").exists());
}

#[test]
fn a_thousand_runs_need_no_thousand_descriptors() {
    let service = Service::start();
    let home = Home::new();
    let limited = |arguments: &str| {
        let mut command = command("sh");
        let script = format!("ulimit -n 40; exec \"$0\" upload {arguments} \"$1\"");
        command.args(["-c", &script]).arg(tracker()).arg(home.spool()).envs(service.environment(&home.spool()));
        command.output().unwrap()
    };
    // Sending waits for the disk: more runs than descriptors show it as well.
    (0..50).for_each(|number| drop(home.stranded(number, &state(&service))));
    let output = limited("");
    assert_eq!((text(&output.stderr).as_str(), home.runs()), ("", 0));
    assert!(text(&output.stdout).ends_with("\n50 runs sent\n"));
    assert_eq!(service.known().runs.len(), 50);
    (0..1000).for_each(|number| drop(home.stranded(number, &state(&service))));
    let output = limited("--dry-run");
    assert_eq!(text(&output.stderr), "");
    assert!(text(&output.stdout).ends_with("\n1000 runs would be sent\n"));
}

/// A job can fill the disk on which its rows wait, and end well.
#[test]
fn the_end_of_a_run_finds_room_on_a_full_disk() {
    let test = "the_end_of_a_run_finds_room_on_a_full_disk";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let service = Service::start();
    service.trouble(&[("finish", Trouble::Status(503, None))]);
    let home = Home::new();
    let (disk, ended, go_on) = (home.path().join("disk"), home.path().join("ended"), home.path().join("go on"));
    fs::create_dir(&disk).unwrap();
    // The disk has no room left, and only the tracker has made room for the end, in advance.
    let job = "until [ -e \"$0\"/resource-tracker/spool/*/000000.csv ]; do sleep 0.05; done
               cat /dev/zero >\"$0/fill\" 2>/dev/null; ! echo x >\"$0/more\" 2>/dev/null";
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" || exit
                  \"$0\" -q -i 20ms --set sinks.sentinel-s3.finish_timeout_secs=1 -- sh -c \"$4\" \"$1\" || exit
                  echo >\"$2\"; until [ -e \"$3\" ]; do sleep 0.05; done
                  exec \"$0\" upload";
    let mut command = command("unshare");
    command.args(["-m", "sh", "-c", script]).arg(tracker()).arg(&disk).arg(&ended).arg(&go_on).arg(job);
    command.envs(service.environment(&disk)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    wait_until("the end of the run", || ended.exists() || run.try_wait().unwrap().is_some());
    service.trouble(&[]);
    fs::write(&go_on, "").unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(text(&output.stdout).ends_with("1 run sent\n") && output.status.success(), "{}", said(&output));
    assert!(!text(&output.stderr).contains("cannot write to the spool"), "{}", said(&output));
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!((&finish["run_status"], &finish["exit_code"]), (&json!("finished"), &json!(0)), "{}", said(&output));
}
