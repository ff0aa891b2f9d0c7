//! What goes wrong with the service, the network and the disk: nothing is lost, and each thing is said once.

use std::io::{BufRead, BufReader};
use std::process::Output;
use std::time::{Duration, Instant};

use resource_tracker_tests::sentinel::{
    BUCKET, Service, Trouble, run_until, stamps, streaming, upload, wait_for_rows, waiting,
};
use resource_tracker_tests::spool::{self, Home, state};
use resource_tracker_tests::{Recording, command, has, in_time, is_root, text, tracker, wait_until};
use serde_json::{Value as Json, json};

#[test]
fn a_refused_token_is_said_once_and_not_tried_again() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let script = format!("{}; {}", recording.until_said("refused the token"), recording.until(10, ""));
    let mut command = streaming(&service, state.path(), &["-i", "50ms", "-o"]);
    let secret = "another-token-0815";
    command.arg(recording.path()).args(["--", "sh", "-c", &script]).env("SENTINEL_API_TOKEN", secret);
    let output = recording.run(&mut command);
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("refused the token"), "{said}");
    assert_eq!(service.known().requests, ["POST /runs"]);
    assert!(!said.contains(secret));
    // With a good one it arrives later.
    let sent = upload(&service, state.path(), &["--dry-run"]);
    assert!(sent.status.success() && text(&sent.stdout).contains("1 run would be sent"), "{}", text(&sent.stdout));
    let sent = upload(&service, state.path(), &[]);
    assert!(sent.status.success() && text(&sent.stdout).ends_with("1 run sent\n"), "{sent:?}");
    assert_eq!(service.rows("run-1").0.len(), recording.samples().len());
    assert_eq!(
        (waiting(state.path()), text(&upload(&service, state.path(), &[]).stdout).as_str()),
        (0, "nothing waits\n")
    );
}

/// Three runs wait: the output of `upload`, its requests, and how often it asks.
fn uploaded(trouble: (&'static str, Trouble)) -> (Output, Vec<String>, usize) {
    let (service, home) = (Service::start(), Home::new());
    (1..=3).for_each(|number| drop(home.stranded(number, &state(&service))));
    service.trouble(&[trouble]);
    let output = spool::upload(&service, &[], &home.spool());
    let requests = service.known().requests.clone();
    (output, requests, home.runs())
}

#[test]
fn a_service_that_wants_to_be_left_alone_is_left_alone_and_nobody_waits() {
    let (output, requests, runs) = uploaded(("POST /runs", Trouble::Status(503, Some(3600))));
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(1), "0 runs sent, 3 runs left\n"),
        "{said}"
    );
    assert!(said.contains("for 60 minutes: run `resource-tracker upload` again after that"), "{said}");
    assert_eq!((said.lines().count(), requests.len(), runs), (1, 1, 3), "{said}");
}

#[test]
fn a_service_that_serves_nobody_is_not_asked_for_every_run() {
    let (output, requests, runs) = uploaded(("POST /runs", Trouble::Status(503, None)));
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(1), "0 runs sent, 3 runs left\n"),
        "{said}"
    );
    assert_eq!((said.matches("it is tried again in 1 s").count(), said.lines().count()), (1, 2), "{said}");
    assert_eq!((requests.len(), runs), (4, 3), "{requests:?}");
}

#[test]
fn a_run_that_the_service_fails_at_does_not_keep_others_waiting() {
    let (output, _, runs) = uploaded(("run-1/finish", Trouble::Status(500, None)));
    assert_eq!((output.status.code(), runs), (Some(1), 1), "{output:?}");
    assert!(text(&output.stdout).ends_with("2 runs sent, 1 run left\n"), "{output:?}");
}

#[test]
fn what_is_tried_again_and_what_is_not() {
    for (trouble, requests) in [
        (Trouble::Status(422, None), 1..=1),
        (Trouble::Status(404, None), 1..=1),
        (Trouble::Status(503, None), 2..=9),
        (Trouble::Status(408, None), 2..=9),
        (Trouble::Cut, 2..=9),
        (Trouble::Status(429, Some(100)), 1..=2),
    ] {
        let service = Service::start();
        service.trouble(&[("POST /runs", trouble)]);
        let state = tempfile::tempdir().unwrap();
        let recording = Recording::new();
        // Long enough for a second request where there must be none.
        let script = format!("{}; sleep 1; {}", recording.until_said("POST /runs"), recording.until_told());
        let mut command = streaming(&service, state.path(), &["-i", "50ms", "-q", "--", "sh", "-c", &script]);
        let is_enough = || service.known().requests.len() >= *requests.start();
        let output = recording.run_until(&mut command, "as many requests as there must be", is_enough);
        assert!(output.status.success());
        let count = service.known().requests.len();
        assert!(requests.contains(&count), "{trouble:?}: {count}");
        assert_eq!(waiting(state.path()), 1);
        assert_eq!(text(&output.stderr).matches("POST /runs").count(), 1, "said once: {}", text(&output.stderr));
    }
}

#[test]
fn the_end_is_bounded_and_does_not_change_the_exit_code() {
    let service = Service::start();
    service.trouble(&[("finish", Trouble::Delay(Duration::from_secs(60)))]);
    let state = tempfile::tempdir().unwrap();
    let mut runs = 0;
    in_time(|| {
        let start = Instant::now();
        let options = ["-q", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"];
        let mut command = streaming(&service, state.path(), &[&options[..], &["--", "sh", "-c", "exit 7"]].concat());
        let output = command.output().unwrap();
        runs += 1;
        assert_eq!(output.status.code(), Some(7));
        assert!(text(&output.stderr).contains("resource-tracker upload"), "{}", text(&output.stderr));
        start.elapsed() < Duration::from_secs(4)
    });
    // The next run of the same user completes it.
    service.trouble(&[]);
    let mut next = streaming(&service, state.path(), &[]);
    let is_complete = || service.known().runs.values().filter(|run| run.finish.is_some()).count() >= runs;
    let output = run_until(&Recording::new(), &mut next, "the end of the run before", is_complete);
    assert!(output.status.success());
    assert_eq!(waiting(state.path()), 0);
    assert_eq!(service.known().runs["run-1"].finish.as_ref().unwrap()["exit_code"], 7);
}

#[test]
fn a_run_that_was_killed_is_completed() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let mut killed = streaming(&service, state.path(), &["-i", "20ms", "-o"]);
    let mut killed = recording.start(killed.arg(recording.path()));
    wait_for_rows(state.path());
    wait_until("a registered run", || !service.known().runs.is_empty());
    wait_until("samples", || recording.samples().len() >= 30);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let sent = upload(&service, state.path(), &[]);
    assert!(sent.status.success(), "{sent:?}");
    let rows = service.rows("run-1").0;
    let complete = recording.samples().len();
    assert!(rows.len() + 1 >= complete, "{} rows of {complete}", rows.len());
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!((&finish["run_status"], &finish["exit_code"]), (&"failed".into(), &Json::Null));
}

#[test]
fn what_cannot_work_is_said_in_one_line_and_harms_nothing_else() {
    let good = Service::start();
    let tell = |answer: Json| {
        let service = Service::start();
        service.known().answer = answer;
        service
    };
    let odd_prefix = tell(json!({ "upload_uri_prefix": "https://example.com/x" }));
    let odd_keys = tell(json!({ "upload_credentials": { "secret_key": "a\r\nb" } }));
    let nothing = tell(json!({ "run_id": 1 }));
    for (service, variable, value, expected) in [
        (&good, "SENTINEL_API_URL", "no url", "\"no url\" is no URL"),
        (&good, "SENTINEL_API_URL", "http://sentinel.example.com", "would be spoken to unencrypted"),
        (&good, "AWS_ENDPOINT_URL_S3", "http://192.0.2.2", "would be spoken to unencrypted"),
        (
            &good,
            "SENTINEL_API_URL",
            "https://me:hunter2@sentinel.example.com",
            "has a user, a password, a query or a fragment",
        ),
        (&good, "SENTINEL_API_TOKEN", "a\nb", "characters that no token has"),
        (&good, "AWS_ENDPOINT_URL_S3", "::", "AWS_ENDPOINT_URL_S3 \"::\" is no URL"),
        (&odd_prefix, "X", "", "is no S3 URI"),
        (&odd_keys, "X", "", "characters that no key has"),
        (&nothing, "X", "", "the answer is not what was expected"),
    ] {
        let state = tempfile::tempdir().unwrap();
        let recording = Recording::new();
        let (said, enough) =
            (recording.until_said(expected), recording.until_in(recording.stderr(), 6, "timestamp_ms"));
        let script = format!("{said}; {enough}; exit 5");
        let options = ["-i", "100ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=1", "--", "sh", "-c", &script];
        let mut command = streaming(service, state.path(), &options);
        let output = recording.run(command.env("TRACKER_UPLOAD_INTERVAL", "1").env(variable, value));
        assert_eq!(output.status.code(), Some(5), "{expected}");
        let (said, json): (Vec<_>, Vec<_>) =
            output.stderr.split_inclusive(|byte| *byte == b'\n').partition(|line| !line.starts_with(b"{"));
        assert!(json.len() >= 6, "{expected}: local output is unharmed");
        let said = said.concat();
        // Not what waits for it, which repeats it when it does not come.
        let warns = |line: &str| line.starts_with("resource-tracker: warning: ") && line.contains(expected);
        assert!(text(&said).lines().any(warns), "{expected}: {}", text(&said));
        assert!(said.iter().filter(|byte| **byte == b'\n').count() <= 2, "{}", text(&said));
    }
}

#[test]
fn a_spool_of_somebody_else_or_behind_a_link_is_refused() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let (real, link) = (state.path().join("real"), state.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let recording = Recording::new();
    let mut command = streaming(&service, state.path(), &["-i", "50ms", "--spool-dir"]);
    command.arg(&link).arg("-o").arg(recording.path()).args(["--", "sh", "-c", &recording.until(5, "")]);
    let output = recording.run(&mut command);
    assert!(output.status.success() && text(&output.stderr).contains("is a link"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
    assert_eq!(service.rows("run-1").0.len(), recording.samples().len(), "rows went from memory");
}

#[test]
fn a_full_disk_is_said_once_and_rows_go_from_memory() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    // What a process may write to a file at most, stands for a disk that is full.
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    let recording = Recording::new();
    let job = format!("{}; {}", recording.until_said("takes no more rows"), recording.until_told());
    let mut command = command("sh");
    command.args(["-c", script]).arg(tracker()).args(["-i", "5ms", "-o", "-", "--", "sh", "-c", &job]);
    let mut run = recording.start_piped(command.envs(service.environment(state.path())));
    // Standard output is a pipe, which has no limit.
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    wait_until("the message", || {
        assert!(lines.next().is_some());
        std::fs::read_to_string(recording.stderr()).unwrap().contains("takes no more rows")
    });
    let more = lines.by_ref().take(110).count();
    recording.go_on();
    let rest = lines.count();
    let output = recording.end(run);
    assert!(output.status.success() && more == 110 && rest > 0, "{more} {rest} {}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("takes no more rows").count(), 1, "{}", text(&output.stderr));
    let rows = service.rows("run-1").0;
    assert!(rows.len() > 100 && stamps(&rows).is_sorted(), "{}", rows.len());
}

#[test]
fn beyond_its_limit_the_spool_gives_up_the_oldest_batches_and_says_so() {
    let options = ["-i", "2ms", "--spool-max", "0", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"];
    // The store takes nothing; the service cannot be spoken to at all.
    for (variable, value) in [("X", ""), ("SENTINEL_API_URL", "http://sentinel.example.com")] {
        let service = Service::start();
        service.trouble(&[("PUT", Trouble::Status(503, None))]);
        let state = tempfile::tempdir().unwrap();
        let recording = Recording::new();
        let mut command = streaming(&service, state.path(), &options);
        command.env("TRACKER_UPLOAD_INTERVAL", "0.5").env(variable, value);
        let is_full = || std::fs::read_to_string(recording.stderr()).unwrap().contains("the spool is full");
        let output = run_until(&recording, &mut command, "a full spool", is_full);
        assert!(text(&output.stderr).contains("the spool is full"), "{}", text(&output.stderr));
        service.trouble(&[]);
        assert!(upload(&service, state.path(), &[]).status.success());
        let finish = service.known().runs["run-1"].finish.clone().unwrap();
        let uris = finish["data_uris"].as_array().unwrap();
        assert!(!uris.is_empty() && uris[0] != format!("s3://{BUCKET}/some/prefix/run-1/000000.csv.gz"), "{uris:?}");
        let rows = service.rows("run-1").0;
        assert!(!rows.is_empty() && stamps(&rows).is_sorted());
    }
}

#[test]
fn three_uploads_that_fail_in_a_row_are_said_and_rows_wait() {
    let service = Service::start();
    service.trouble(&[("PUT", Trouble::Status(500, None))]);
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let mut command = streaming(&service, state.path(), &["-i", "50ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "0.3");
    let is_said = |text: &str| std::fs::read_to_string(recording.stderr()).unwrap().contains(text);
    let output = run_until(&recording, &mut command, "a store that works again", || {
        if is_said("500") {
            service.trouble(&[]);
        }
        is_said("takes rows again")
    });
    let puts = service.known().count("PUT");
    assert!(output.status.success());
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("PUT s3://") && lines[0].contains("500"), "{said}");
    assert!(lines[1].contains("takes rows again"), "{said}");
    assert!(puts > 3);
    let rows = service.rows("run-1").0;
    assert_eq!(rows.len(), recording.samples().len());
    assert!(stamps(&rows).is_sorted());
}

#[test]
fn whoever_does_not_want_to_wait_for_the_end_stops_it_once_more() {
    let service = Service::start();
    service.trouble(&[("finish", Trouble::Delay(Duration::from_secs(60)))]);
    let state = tempfile::tempdir().unwrap();
    in_time(|| {
        service.known().requests.clear();
        let start = Instant::now();
        let mut run = streaming(&service, state.path(), &["-q", "--", "sh", "-c", "exit 7"]).spawn().unwrap();
        wait_until("the end of the run", || service.known().requests.iter().any(|request| request.contains("finish")));
        let pid = nix::unistd::Pid::from_raw(run.id() as i32);
        // Not SIGINT, which is ignored by all that a shell has started in the background.
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(7));
        assert!(waiting(state.path()) >= 1);
        start.elapsed() < Duration::from_secs(20)
    });
}

#[test]
fn on_a_disk_without_any_room_the_run_is_still_finished() {
    let test = "on_a_disk_without_any_room_the_run_is_still_finished";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    // Somebody else takes all that is left while the run goes on, so that nothing at all can be written at the end.
    let recording = Recording::new();
    let full = recording.path().with_file_name("full");
    let fill =
        format!("({}; cat /dev/zero >\"$0/fill\" 2>/dev/null; : >'{}') &", recording.until(100, ""), full.display());
    let script = format!("mount -t tmpfs -o size=64k tmpfs \"$0\" && {{ {fill} exec \"$@\"; }}");
    let job = format!("{}; {}", recording.until_said("takes no more rows"), recording.until(210, ""));
    let mut command = command("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(state.path()).arg(tracker());
    command.args(["-i", "5ms", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &job]);
    let output = recording.run(command.envs(service.environment(state.path())));
    assert!(full.exists());
    let said = text(&output.stderr);
    assert!(output.status.success() && said.matches("takes no more rows").count() == 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let rows = service.rows("run-1").0;
    assert_eq!(rows.len(), recording.samples().len());
    assert!(rows.len() > 200 && stamps(&rows).is_sorted(), "{}", rows.len());
}
