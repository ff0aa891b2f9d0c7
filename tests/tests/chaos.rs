//! A service that fails in every way for most of the time: afterwards it has every row, in order, once.
//!
//! They run for some seconds; with `RESOURCE_TRACKER_LONG_TESTS=1` as long as it takes to be sure.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use resource_tracker_tests::sentinel::{Service, Trouble, wait_for_rows};
use resource_tracker_tests::{command, in_time, samples, tracker};

fn is_long() -> bool {
    std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some()
}

fn streaming(service: &Service, state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(tracker());
    command.args(arguments).envs(service.environment(state)).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// One trouble after the other, and now and then none, until the end.
fn trouble(service: &Service, end: Instant) {
    let kinds = [
        Trouble::Cut,
        Trouble::CutHalfway,
        Trouble::Status(500, None),
        Trouble::Status(503, Some(1)),
        Trouble::Status(429, None),
        Trouble::Delay(Duration::from_millis(700)),
        Trouble::Trickle(Duration::from_millis(20)),
    ];
    let mut number = 0;
    while Instant::now() < end {
        let part = ["POST", "PUT", "", "refresh", "PUT"][number % 5];
        // A token that is refused for good would end the run; the store's credentials are another matter.
        let kind =
            if part == "PUT" && number % 4 == 0 { Trouble::Status(403, None) } else { kinds[number % kinds.len()] };
        service.trouble(&[(part, kind)]);
        std::thread::sleep(Duration::from_millis(400 + 300 * (number as u64 % 3)));
        if number % 3 == 2 {
            service.trouble(&[]);
            std::thread::sleep(Duration::from_millis(350));
        }
        number += 1;
    }
    service.trouble(&[]);
}

/// Timestamps of the samples in a file, as the rows have them; without the end of a line that a kill cut off.
fn stamps(path: &Path) -> Vec<String> {
    let text = std::fs::read(path).unwrap_or_default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let millis = samples(&text[..whole]).into_iter().map(|sample| sample["timestamp_ms"].as_u64().unwrap());
    millis.map(|millis| format!("{}.{:03}", millis / 1000, millis % 1000)).collect()
}

fn first_columns(rows: &[String]) -> Vec<String> {
    rows.iter().map(|row| row.split(',').next().unwrap().to_owned()).collect()
}

/// The one run that has ended; others can have been registered when an answer was lost.
fn finished(service: &Service) -> String {
    let known = service.known();
    let mut finished = known.runs.iter().filter(|(_, run)| run.finish.is_some()).map(|(id, _)| id.clone());
    let run = finished.next().expect("a run is finished");
    assert_eq!(finished.next(), None, "rows are in one run only");
    run
}

#[test]
fn every_row_arrives_once_and_in_order() {
    in_time(|| {
        let service = Service::start();
        service.known().lifetime = Duration::from_secs(5);
        let state = tempfile::tempdir().unwrap();
        let output = state.path().join("run.jsonl");
        let secs = if is_long() { 60 } else { 8 };
        let mut run = streaming(
            &service,
            state.path(),
            &["-i", "50ms", "-o", output.to_str().unwrap(), "--", "sleep", &secs.to_string()],
        );
        let mut run = run.env("TRACKER_UPLOAD_INTERVAL", "1").spawn().unwrap();
        trouble(&service, Instant::now() + Duration::from_secs(secs));
        assert!(run.wait().unwrap().success());
        streaming(&service, state.path(), &["upload"]).status().unwrap();
        let (rows, inline) = service.rows(&finished(&service));
        assert!(!inline);
        assert_eq!(first_columns(&rows), stamps(&output));
        let known = service.known();
        assert_eq!(known.complaints, [""; 0]);
        let count = |part: &str| known.requests.iter().filter(|request| request.contains(part)).count();
        println!(
            "{} rows, {} requests: {} registrations, {} refreshes, {} uploads",
            rows.len(),
            known.requests.len(),
            count("POST /runs") - count("/refresh") - count("/finish"),
            count("/refresh"),
            count("PUT")
        );
        rows.len() as u64 >= secs * 19
    });
}

#[test]
fn a_run_that_is_killed_at_any_moment_is_completed_by_upload() {
    for round in 0..if is_long() { 20 } else { 5 } {
        let service = Service::start();
        service.known().lifetime = Duration::from_secs(5);
        let state = tempfile::tempdir().unwrap();
        let output = state.path().join("run.jsonl");
        let mut run = streaming(&service, state.path(), &["-i", "10ms", "-o", output.to_str().unwrap()]);
        let mut run = run.env("TRACKER_UPLOAD_INTERVAL", "0.2").spawn().unwrap();
        wait_for_rows(state.path());
        // Moments that have nothing to do with those of the tracker.
        let life = Duration::from_micros(150_000 + 3_217_337 * (round * 7 + 3) % 2_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| trouble(&service, Instant::now() + life));
            std::thread::sleep(life);
            run.kill().unwrap();
            run.wait().unwrap();
        });
        let upload = streaming(&service, state.path(), &["upload"]).stderr(Stdio::inherit()).status().unwrap();
        assert!(upload.success(), "round {round}");
        let (rows, _) = service.rows(&finished(&service));
        let (rows, stamps) = (first_columns(&rows), stamps(&output));
        // The last tick can have reached one of the two only.
        let common = rows.len().min(stamps.len());
        assert!(rows.len() + 1 >= stamps.len(), "round {round}, {life:?}: {} of {}", rows.len(), stamps.len());
        assert_eq!(rows[..common], stamps[..common], "round {round}, {life:?}");
        assert_eq!(service.known().complaints, [""; 0]);
    }
}
