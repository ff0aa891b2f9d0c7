//! Metrics that are sent to Prometheus or its Pushgateway, to stand-ins that answer as they like.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use resource_tracker_tests::server::{Server, http};
use resource_tracker_tests::{command, text, tracker};

const SECRET: &str = "b3arer-hunter2";

fn run(folder: &Path, settings: &[&str], words: &[&str]) -> Output {
    let settings = settings.iter().flat_map(|setting| ["--set".to_owned(), format!("sinks.prometheus.{setting}")]);
    let authorization = folder.join("authorization");
    fs::write(&authorization, format!("Bearer {SECRET}\n")).unwrap();
    command(tracker())
        .env("XDG_STATE_HOME", folder)
        .args(["-i", "100ms", "-q", "--job-name", "nightly", "--enable", "prometheus"])
        .args(settings)
        .arg("--set")
        .arg(format!("sinks.prometheus.authorization_file={}", authorization.display()))
        .arg("--")
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn remote_write_is_as_the_protocol_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let asked = AtomicU32::new(0);
    let server = Server::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => http("503 Service Unavailable", "Retry-After: 1\r\n", ""),
        2 => http("400 Bad Request", "", "no way"),
        _ => http("204 No Content", "", ""),
    });
    let url = format!("url={}/api/v1/write", server.url);
    let settings = ["mode=remote-write", "write_interval_secs=0.2", &url];
    let output = run(folder.path(), &settings, &["sleep", "2"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("the answer is 400; what a request like it holds is lost"), "{errors}");
    assert!(errors.lines().count() == 1, "{errors}");
    assert!(!errors.contains(SECRET) && !errors.contains("no way"), "{errors}");
    for head in server.requests() {
        let head = head.to_lowercase();
        assert!(head.starts_with("post /api/v1/write http/1.1\r\n"), "{head}");
        for line in [
            "content-type: application/x-protobuf",
            "content-encoding: snappy",
            "x-prometheus-remote-write-version: 0.1.0",
            "user-agent: resource-tracker/",
            &format!("authorization: bearer {SECRET}"),
        ] {
            assert!(head.contains(line), "{line}: {head}");
        }
    }
    let bodies = server.bodies();
    assert_eq!(bodies[0], bodies[1], "after 503 it is sent again as it was");
    assert!(bodies.len() > 4 && bodies[1..].windows(2).all(|pair| pair[0] != pair[1]), "after 400 it is not");
}

#[test]
fn a_gateway_gets_the_end_also_of_a_job_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| http("200 OK", "", ""));
    let url = format!("url={}", server.url);
    let output = run(folder.path(), &["mode=push", &url], &["sh", "-c", "sleep 0.3; kill -KILL $$"]);
    assert_eq!((output.status.signal(), text(&output.stderr).as_str()), (Some(9), ""));
    let heads = server.requests();
    assert!(heads.len() == 1 && heads[0].starts_with("POST /metrics/job/nightly HTTP/1.1\r\n"), "{heads:?}");
    let body = text(&server.bodies()[0]);
    assert!(body.contains("\nresource_tracker_run_exit_code 137\n") && !body.contains("last_success"), "{body}");
    assert!(body.contains("\nsystem_cpu_time_seconds_total{cpu_mode=\"user\"} "), "{body}");
}

#[test]
fn a_gateway_that_hangs_does_not_hold_up_the_end_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(60));
        Vec::new()
    });
    let url = format!("url={}", server.url);
    // It may have to be built.
    tracker();
    let begun = Instant::now();
    let output = run(folder.path(), &["mode=push", "finish_timeout_secs=2", &url], &["true"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("no answer in time") && !errors.contains(SECRET), "{errors}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_work_is_said_before_the_job_starts() {
    let folder = tempfile::tempdir().unwrap();
    let began = folder.path().join("began");
    let words = ["touch", began.to_str().unwrap()];
    let missing = format!("certificate={}", folder.path().join("none.pem").display());
    let cases: [(&[&str], &str); 6] = [
        (&["mode=remote-write"], "the mode needs a url"),
        (&["mode=push", "url=gateway"], "url \"gateway\" is no URL"),
        (&["mode=push", "url=http://gateway.example.com"], "use https, or set sinks.prometheus.allow_http"),
        (&["mode=push", "url=https://gateway.example.com", &missing], "cannot read the certificates of"),
        (&["mode=pull"], "mode"),
        (&["mode=push", "url=https://gateway.example.com", "certificate=/dev/zero"], "it is no regular file"),
    ];
    for (settings, expected) in cases {
        let output = run(folder.path(), settings, &words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected) && !errors.contains(SECRET), "{errors}");
    }
    assert!(!began.exists());
}
