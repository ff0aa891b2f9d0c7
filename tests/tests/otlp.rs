//! Metrics for a receiver of the OpenTelemetry protocol.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use prost::Message;
use resource_tracker_tests::sentinel::Service;
use resource_tracker_tests::server::{Server, http};
use resource_tracker_tests::{command, job, number, samples, text, tracker, wait_for, wait_until};

const SECRET: &str = "b3arer-hunter2";

/// A run of a job that burns a second of CPU time, for a receiver at this address.
fn run(endpoint: &str, folder: &tempfile::TempDir, more: &[&str]) -> Output {
    let recording = folder.path().join("run.jsonl");
    command(tracker())
        .env("XDG_STATE_HOME", folder.path())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{SECRET},x-scope=7"))
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
        .args(["-i", "100ms", "--job-name", "nightly", "--project-name", "shop", "-o"])
        .arg(&recording)
        .args(["--enable", "otlp", "--set", "sinks.otlp.export_interval_secs=0.3"])
        .args(more)
        .arg("--")
        .arg(job())
        .args(["burn", "1", "1000"])
        .output()
        .unwrap()
}

fn recorded(folder: &tempfile::TempDir) -> Vec<serde_json::Value> {
    samples(&fs::read(folder.path().join("run.jsonl")).unwrap())
}

fn decoded(body: &[u8]) -> ExportMetricsServiceRequest {
    let mut bytes = Vec::new();
    GzDecoder::new(body).read_to_end(&mut bytes).unwrap();
    ExportMetricsServiceRequest::decode(&bytes[..]).unwrap()
}

/// The points of a request by name and the value of their one attribute.
fn points(request: &ExportMetricsServiceRequest) -> HashMap<(String, String), NumberDataPoint> {
    let metrics = request.resource_metrics[0].scope_metrics[0].metrics.iter();
    let points = metrics.flat_map(|metric| {
        let points = match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Sum(sum) => &sum.data_points,
            _ => panic!("{} is neither gauge nor sum", metric.name),
        };
        points.iter().map(|point| {
            let attributes: Vec<_> =
                point.attributes.iter().map(|attribute| format!("{:?}", attribute.value)).collect();
            let word = attributes.join(" ").split('"').nth(1).unwrap_or_default().to_owned();
            ((metric.name.clone(), word), point.clone())
        })
    });
    points.collect()
}

fn value(point: &NumberDataPoint) -> Option<f64> {
    match point.value? {
        number_data_point::Value::AsDouble(value) => Some(value),
        number_data_point::Value::AsInt(value) => Some(value as f64),
    }
}

/// The sum of a figure over the samples of a recording.
fn sum(samples: &[serde_json::Value], section: &str, field: &str) -> f64 {
    samples.iter().map(|sample| number(sample, &format!("/{section}/{field}"))).sum()
}

#[test]
fn sums_arrive_and_the_end_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Server::start(|_| http("200 OK", "", ""));
    let output = run(&receiver.url, &folder, &[]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let heads = receiver.requests();
    let requests: Vec<_> = receiver.bodies().iter().map(|body| decoded(body)).collect();
    assert!(requests.len() > 3, "{}", requests.len());
    for head in &heads {
        let head = head.to_lowercase();
        assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
        for line in ["content-type: application/x-protobuf", "content-encoding: gzip", "x-scope: 7"] {
            assert!(head.contains(line), "{head}");
        }
        assert!(head.contains(&format!("authorization: bearer {SECRET}")), "{head}");
    }
    let resource = format!("{:?}", requests[1].resource_metrics[0].resource);
    for word in ["nightly", "shop", "deployment.environment.name", "lab", "host.name"] {
        assert!(resource.contains(word), "{word}: {resource}");
    }
    let samples = recorded(&folder);
    assert!(resource.contains(samples[0]["run"]["id"].as_str().unwrap()));
    let [.., last, end] = &requests[..] else { panic!() };
    let last = points(last);
    let of = |name: &str, word: &str| last[&(name.to_owned(), word.to_owned())].clone();
    let burnt = value(&of("system.cpu.time", "user")).unwrap();
    assert!((burnt - sum(&samples, "cpu", "utime_secs")).abs() < 0.001 * burnt, "{burnt}");
    assert_eq!(
        of("system.cpu.time", "user").start_time_unix_nano,
        of("system.cpu.time", "system").start_time_unix_nano
    );
    let end = points(end);
    assert!(end.values().all(|point| point.value.is_none() && point.flags == 1));
    assert!(last.iter().filter(|(_, point)| point.value.is_some()).all(|(series, _)| end.contains_key(series)));
}

#[test]
fn what_is_refused_for_a_while_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let asked = AtomicU32::new(0);
    let receiver = Server::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => http("503 Service Unavailable", "Retry-After: 1\r\n", ""),
        1 => Vec::new(),
        _ => http("200 OK", "", ""),
    });
    let output = run(&receiver.url, &folder, &["--set", "sinks.otlp.temporality=delta"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "two failures are not told");
    let bodies = receiver.bodies();
    assert!(bodies.len() > 3 && bodies[0] == bodies[1] && bodies[1] == bodies[2], "it is tried again as it was");
    let deltas = bodies[2..].iter().map(|body| points(&decoded(body)));
    let user = ("system.cpu.time".to_owned(), "user".to_owned());
    let burnt: f64 = deltas.filter_map(|points| value(&points[&user])).sum();
    let expected = sum(&recorded(&folder), "cpu", "utime_secs");
    assert!((burnt - expected).abs() < 0.001 * expected, "{burnt} of {expected}");
}

#[test]
fn what_is_refused_for_good_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Server::start(|_| http("400 Bad Request", "", "no \x1b[31m way"));
    let output = run(&receiver.url, &folder, &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("/v1/metrics: the answer is 400; what a request like it holds is lost"), "{errors}");
    assert!(errors.contains("requests were refused, and are lost") && errors.lines().count() == 2, "{errors}");
    assert!(!errors.contains(SECRET) && !errors.contains("way"), "{errors}");
    let bodies = receiver.bodies();
    assert!(bodies.windows(2).all(|pair| pair[0] != pair[1]), "nothing is sent twice");
}

#[test]
fn a_receiver_that_hangs_or_is_not_there_does_not_hold_up_the_end_for_long() {
    let hanging = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(60));
        Vec::new()
    });
    // It may have to be built.
    tracker();
    for url in [hanging.url.as_str(), "http://127.0.0.1:9"] {
        let begun = Instant::now();
        let folder = tempfile::tempdir().unwrap();
        let output = run(url, &folder, &["--set", "sinks.otlp.finish_timeout_secs=2"]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(errors.contains("not everything has arrived") && !errors.contains(SECRET), "{errors}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_cannot_work_is_said_before_the_job_starts() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "ftp://x/y", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        ("OTEL_EXPORTER_OTLP_HEADERS", SECRET, "header 1 is not of the form name=value"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example.com:4318", "use https, or set sinks.otlp.allow_http"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem", "cannot read the certificates of /nowhere.pem"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/dev/zero", "it is no regular file"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "", "headers, which can be secret, but no endpoint"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.com/#k", "a query or a fragment"),
    ];
    for (variable, text_of, expected) in cases {
        let output = command(tracker())
            .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={SECRET}"))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example.com")
            .env(variable, text_of)
            .args(["-q", "--enable", "otlp", "--", "touch"])
            .arg(folder.path().join("began"))
            .output()
            .unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected) && !errors.contains(SECRET), "{errors}");
    }
    assert!(!folder.path().join("began").exists());
}

#[test]
fn a_certificate_is_trusted_where_a_variable_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start_tls();
    let certificate = service.certificate.as_ref().unwrap().to_str().unwrap();
    let with = run(&service.url, &folder, &["--set", &format!("sinks.otlp.certificate={certificate}")]);
    // It is no receiver of metrics.
    assert!(text(&with.stderr).contains("the answer is 4"), "{}", text(&with.stderr));
    let folder = tempfile::tempdir().unwrap();
    let without = run(&service.url, &folder, &["--set", "sinks.otlp.finish_timeout_secs=1"]);
    assert!(text(&without.stderr).contains("not everything has arrived"), "{}", text(&without.stderr));
}

#[test]
fn a_file_that_merely_lies_here_does_not_have_headers_sent() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("resource-tracker.toml"), "[sinks.otlp]\nenabled = true\n").unwrap();
    let run = |named: &[&str]| {
        let output = command(tracker())
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", folder.path())
            .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={SECRET}"))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
            .args(["-q", "--set", "sinks.otlp.finish_timeout_secs=0.1"])
            .args(named)
            .args(["--", "true"])
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, errors) = run(&[]);
    assert!(code == Some(2) && errors.contains("sinks.otlp.enabled") && !errors.contains(SECRET), "{errors}");
    let (code, errors) = run(&["-c", "resource-tracker.toml"]);
    assert!(code == Some(0) && errors.contains("not everything has arrived"), "{errors}");
}

fn upload(folder: &tempfile::TempDir, endpoint: &str, headers: &str) -> (Option<i32>, String, String) {
    let mut command = command(tracker());
    command.env("XDG_STATE_HOME", folder.path()).env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    let output = command.env("OTEL_EXPORTER_OTLP_HEADERS", headers).arg("upload").output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_was_refused_with_these_headers_is_sent_later_with_others() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Server::start(|head| {
        http(if head.contains("authorization: good") { "200 OK" } else { "401 Unauthorized" }, "", "")
    });
    let output = run(&receiver.url, &folder, &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("the answer is 401; requests that are refused so are kept"), "{errors}");
    assert!(errors.contains("for `resource-tracker upload`") && !errors.contains(SECRET), "{errors}");
    let refused = receiver.bodies();
    assert!(refused.len() > 3 && refused.windows(2).all(|pair| pair[0] != pair[1]), "each is tried once");

    // Headers are for the receiver that the environment names, and no other.
    let (code, _, errors) = upload(&folder, "http://127.0.0.1:9", "authorization=good");
    assert!(code == Some(1) && errors.contains(&format!("it belongs to {}/v1/metrics", receiver.url)), "{errors}");
    let (code, _, errors) = upload(&folder, &receiver.url, "authorization=bad");
    assert!(code == Some(1) && errors.contains("of its requests were refused"), "{errors}");
    assert_eq!(receiver.bodies().len(), 2 * refused.len());
    let (code, said, errors) = upload(&folder, &receiver.url, "authorization=good");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(
        said.contains(&format!("a run for {}/v1/metrics, {} requests: sent", receiver.url, refused.len())),
        "{said}"
    );
    assert_eq!(receiver.bodies()[2 * refused.len()..], refused, "as they were, and in their order");
    assert_eq!(upload(&folder, &receiver.url, "").1, "nothing waits\n");
}

#[test]
fn what_killed_trackers_could_not_send_arrives_later() {
    let folder = tempfile::tempdir().unwrap();
    let is_up = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let up = std::sync::Arc::clone(&is_up);
    let receiver = Server::start(move |_| match up.load(Ordering::Relaxed) {
        true => http("200 OK", "", ""),
        false => Vec::new(),
    });
    let spool = folder.path().join("resource-tracker/spool");
    let requests = || {
        let runs = fs::read_dir(&spool).into_iter().flatten().flatten();
        let files = runs.flat_map(|run| fs::read_dir(run.path()).unwrap()).flatten();
        let requests = files.filter(|file| file.path().extension().is_some_and(|end| end == "pb"));
        requests.map(|file| fs::read(file.path()).unwrap()).collect::<Vec<_>>()
    };
    for number in 1..=20 {
        let mut tracker = command(tracker())
            .env("XDG_STATE_HOME", folder.path())
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
            .args(["-i", "20ms", "-q", "--enable", "otlp", "--set", "sinks.otlp.export_interval_secs=0.05"])
            .args(["--", "sleep", "0.7"])
            .spawn()
            .unwrap();
        wait_until("requests", || requests().len() > 2 * number);
        tracker.kill().unwrap();
        tracker.wait().unwrap();
    }
    // A file that was just made is empty.
    let mut waiting: Vec<_> = requests().into_iter().filter(|body| !body.is_empty()).collect();
    is_up.store(true, Ordering::Relaxed);
    let before = receiver.bodies().len();
    let (code, said, errors) = upload(&folder, &receiver.url, "");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{said}");
    let mut arrived = receiver.bodies()[before..].to_vec();
    waiting.sort();
    arrived.sort();
    assert!(waiting == arrived && waiting.iter().all(|body| !decoded(body).resource_metrics.is_empty()));
    assert_eq!(requests().len(), 0);
}

/// A program that is ended.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Python, if it has this module.
fn python(module: &str) -> Option<String> {
    let python = std::env::var("RESOURCE_TRACKER_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    println!("skipped: {python} has no {module}");
    None
}

#[test]
fn a_strict_receiver_takes_everything() {
    let Some(python) = python("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/receivers/otlp.py");
    for temporality in ["cumulative", "delta"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("points");
        let receiver = Command::new(&python).arg(script).arg(&out).stdout(Stdio::piped()).spawn().unwrap();
        let mut receiver = Helper(receiver);
        let mut said = BufReader::new(receiver.0.stdout.take().unwrap());
        let mut port = String::new();
        said.read_line(&mut port).unwrap();
        let set = format!("sinks.otlp.temporality={temporality}");
        let output = run(&format!("http://127.0.0.1:{}", port.trim()), &folder, &["--set", &set]);
        drop(receiver);
        let mut wrong = String::new();
        said.read_to_string(&mut wrong).unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str(), wrong.as_str()), (Some(0), "", ""));
        let points: Vec<_> = samples(&fs::read(out).unwrap());
        let user = points.iter().filter(|point| {
            point["metric"] == "system.cpu.time"
                && point["attributes"]["cpu.mode"] == "user"
                && point["value"].is_number()
        });
        let values: Vec<f64> = user.map(|point| number(point, "/value")).collect();
        let burnt = if temporality == "delta" { values.iter().sum() } else { values[values.len() - 1] };
        let expected = sum(&recorded(&folder), "cpu", "utime_secs");
        assert!((burnt - expected).abs() < 0.001 * expected, "{temporality}: {burnt} of {expected}");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A collector that is in use elsewhere: <https://github.com/streamfold/rotel>.
#[test]
fn a_collector_takes_them() {
    let Some(python) = python("rotel") else { return };
    let find = "import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'))";
    let agent = Command::new(python).args(["-c", find]).output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let port = free_port();
    let agent = Command::new(text(&agent.stdout).trim())
        .args(["start", "--debug-log", "metrics", "--debug-log-verbosity", "detailed", "--exporter", "blackhole"])
        .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{}", free_port())])
        .args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    let Ok(agent) = agent else { return println!("skipped: the collector does not run here") };
    let agent = Helper(agent);
    wait_for(Duration::from_secs(60), "the collector listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let output = run(&format!("http://127.0.0.1:{port}"), &folder, &[]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let log = || fs::read_to_string(folder.path().join("log")).unwrap();
    // Its log leaves out some of what it takes.
    for word in ["system.cpu.time", "nightly", "system.memory.usage"] {
        wait_for(Duration::from_secs(30), word, || log().contains(word));
    }
    drop(agent);
}
