//! What goes wrong with the service, the network and the disk: nothing is lost, and each thing is said once.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use flaky_test::flaky_test;
use resource_tracker_tests::sentinel::{
    BUCKET, Service, Trouble, run, stamps, streaming, upload, wait_for_rows, waiting,
};
use resource_tracker_tests::{command, has, is_root, text, tracker};
use serde_json::{Value as Json, json};

#[flaky_test]
fn a_refused_token_is_said_once_and_not_tried_again() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "50ms", "-q", "--", "sleep", "0.6"]);
    let secret = "another-token-0815";
    let output = command.env("SENTINEL_API_TOKEN", secret).output().unwrap();
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
    assert!(service.rows("run-1").0.len() >= 10);
    assert_eq!(
        (waiting(state.path()), text(&upload(&service, state.path(), &[]).stdout).as_str()),
        (0, "nothing waits\n")
    );
}

#[flaky_test]
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
        let (output, state) = run(&service, &["-i", "50ms", "-q", "--", "sleep", "1"]);
        assert!(output.status.success());
        let count = service.known().requests.len();
        assert!(requests.contains(&count), "{trouble:?}: {count}");
        assert_eq!(waiting(state.path()), 1);
        assert_eq!(text(&output.stderr).matches("POST /runs").count(), 1, "said once: {}", text(&output.stderr));
    }
}

#[flaky_test]
fn the_end_is_bounded_and_does_not_change_the_exit_code() {
    let service = Service::start();
    service.trouble(&[("finish", Trouble::Delay(Duration::from_secs(60)))]);
    let start = Instant::now();
    let (output, state) =
        run(&service, &["-q", "--set", "sinks.sentinel-s3.finish_timeout_secs=1", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(text(&output.stderr).contains("resource-tracker upload"), "{}", text(&output.stderr));
    // The next run of the same user completes it.
    service.trouble(&[]);
    let mut next = streaming(&service, state.path(), &["-q", "--", "sleep", "2"]);
    assert!(next.status().unwrap().success());
    assert_eq!(waiting(state.path()), 0);
    assert_eq!(service.known().runs["run-1"].finish.as_ref().unwrap()["exit_code"], 7);
}

#[test]
fn a_run_that_was_killed_is_completed() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let mut killed = streaming(&service, state.path(), &["-i", "20ms"]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for_rows(state.path());
    std::thread::sleep(Duration::from_millis(700));
    killed.kill().unwrap();
    let mut printed = String::new();
    killed.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    killed.wait().unwrap();
    let sent = upload(&service, state.path(), &[]);
    assert!(sent.status.success(), "{sent:?}");
    let rows = service.rows("run-1").0;
    let complete = printed.matches('\n').count();
    assert!(rows.len() + 1 >= complete, "{} rows of {complete}", rows.len());
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!((&finish["run_status"], &finish["exit_code"]), (&"failed".into(), &Json::Null));
}

#[flaky_test]
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
        (&good, "SENTINEL_API_URL", "http://sentinel.example.com", "would send the token unencrypted"),
        (&good, "SENTINEL_API_TOKEN", "a\nb", "characters that no token has"),
        (&good, "AWS_ENDPOINT_URL_S3", "::", "AWS_ENDPOINT_URL_S3 \"::\" is no URL"),
        (&odd_prefix, "X", "", "is no S3 URI"),
        (&odd_keys, "X", "", "characters that no key has"),
        (&nothing, "X", "", "the answer is not what was expected"),
    ] {
        let state = tempfile::tempdir().unwrap();
        let mut command = streaming(
            service,
            state.path(),
            &["-i", "200ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=1", "--", "sh", "-c", "sleep 1.3; exit 5"],
        );
        let output = command.env("TRACKER_UPLOAD_INTERVAL", "1").env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{expected}");
        let (said, json): (Vec<_>, Vec<_>) =
            output.stderr.split_inclusive(|byte| *byte == b'\n').partition(|line| !line.starts_with(b"{"));
        assert!(json.len() >= 6, "{expected}: local output is unharmed");
        let said = said.concat();
        assert!(text(&said).contains(expected), "{expected}: {}", text(&said));
        assert!(said.iter().filter(|byte| **byte == b'\n').count() <= 2, "{}", text(&said));
    }
}

#[flaky_test]
fn a_spool_of_somebody_else_or_behind_a_link_is_refused() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let (real, link) = (state.path().join("real"), state.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut command = streaming(&service, state.path(), &["-q", "-i", "50ms", "--spool-dir"]);
    let output = command.arg(&link).args(["--", "sleep", "0.3"]).output().unwrap();
    assert!(output.status.success() && text(&output.stderr).contains("is a link"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
    assert!(service.rows("run-1").0.len() >= 5, "rows went from memory");
}

#[flaky_test]
fn a_full_disk_is_said_once_and_rows_go_from_memory() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    // What a process may write to a file at most, stands for a disk that is full.
    let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\"";
    let mut command = command("sh");
    command.args(["-c", script]).arg(tracker()).args(["-q", "-i", "5ms", "--", "sleep", "1"]);
    let output = command.envs(service.environment(state.path())).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("takes no more rows").count(), 1, "{}", text(&output.stderr));
    let rows = service.rows("run-1").0;
    assert!(rows.len() > 100 && stamps(&rows).is_sorted(), "{}", rows.len());
}

#[flaky_test]
fn beyond_its_limit_the_spool_gives_up_the_oldest_batches_and_says_so() {
    let options = ["-q", "-i", "2ms", "--spool-max", "0", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"];
    // The store takes nothing; the service cannot be spoken to at all.
    for (variable, value) in [("X", ""), ("SENTINEL_API_URL", "http://sentinel.example.com")] {
        let service = Service::start();
        service.trouble(&[("PUT", Trouble::Status(503, None))]);
        let state = tempfile::tempdir().unwrap();
        let mut command = streaming(&service, state.path(), &[&options[..], &["--", "sleep", "2.5"]].concat());
        let output = command.env("TRACKER_UPLOAD_INTERVAL", "0.5").env(variable, value).output().unwrap();
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

#[flaky_test]
fn three_uploads_that_fail_in_a_row_are_said_and_rows_wait() {
    let service = Service::start();
    service.trouble(&[("PUT", Trouble::Status(500, None))]);
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "50ms", "-q", "--", "sleep", "6"]);
    let mut run = command.env("TRACKER_UPLOAD_INTERVAL", "0.3").stderr(Stdio::piped()).spawn().unwrap();
    let puts = || service.known().requests.iter().filter(|request| request.starts_with("PUT")).count();
    while puts() < 3 && run.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    service.trouble(&[]);
    assert!(run.wait().unwrap().success());
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("PUT s3://") && lines[0].contains("500"), "{said}");
    assert!(lines[1].contains("takes rows again"), "{said}");
    assert!(puts() > 3);
    let rows = service.rows("run-1").0;
    assert!(rows.len() >= 110 && stamps(&rows).is_sorted(), "{}", rows.len());
}

#[flaky_test]
fn whoever_does_not_want_to_wait_for_the_end_stops_it_once_more() {
    let service = Service::start();
    service.trouble(&[("finish", Trouble::Delay(Duration::from_secs(60)))]);
    let state = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let mut run = streaming(&service, state.path(), &["-q", "--", "sh", "-c", "exit 7"]).spawn().unwrap();
    while !service.known().requests.iter().any(|request| request.contains("finish")) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(run.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(waiting(state.path()), 1);
}

#[flaky_test]
fn on_a_disk_without_any_room_the_run_is_still_finished() {
    let test = "on_a_disk_without_any_room_the_run_is_still_finished";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    // Somebody else takes all that is left while the run goes on, so that nothing at all can be written at the end.
    let fill = "(sleep 0.7; cat /dev/zero >\"$0/fill\" 2>/dev/null) &";
    let script = format!("mount -t tmpfs -o size=64k tmpfs \"$0\" && {{ {fill} exec \"$@\"; }}");
    let mut command = command("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(state.path()).arg(tracker());
    command.args(["-q", "-i", "5ms", "--", "sleep", "1.5"]).envs(service.environment(state.path()));
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.matches("takes no more rows").count() == 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let rows = service.rows("run-1").0;
    assert!(rows.len() > 200 && stamps(&rows).is_sorted(), "{}", rows.len());
}
