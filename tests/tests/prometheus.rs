//! Metrics for Prometheus: what is scraped, and what is in a file for the node exporter.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use resource_tracker_tests::{command, job, names, number, samples, text, tracker};
use serde_json::Value as Json;

/// The values of a text by name and labels.
fn values(metrics: &str) -> HashMap<String, f64> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    let values: Vec<(String, f64)> = lines.map(value).collect();
    let count = values.len();
    let values: HashMap<_, _> = values.into_iter().collect();
    assert_eq!(values.len(), count, "each series once");
    values
}

/// What `promtool` of Prometheus says of a text; nothing where it is content.
fn complaints(metrics: &str) -> Option<String> {
    let tool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut tool) = tool else {
        println!("skipped: there is no promtool");
        return None;
    };
    tool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    Some(format!("{}{}", output.status.code().unwrap_or(-1), text(&output.stderr)))
}

#[test]
fn the_sums_in_a_file_are_those_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, directory) = (folder.path().join("run.jsonl"), folder.path().join("metrics"));
    fs::create_dir(&directory).unwrap();
    let set = format!("sinks.prometheus.directory={}", directory.display());
    let output = command(tracker())
        .args(["-i", "100ms", "-n", "night\"ly", "--project-name", "shop", "-o"])
        .arg(&recording)
        .args(["--enable", "prometheus", "--set", "sinks.prometheus.mode=textfile", "--set", &set])
        .args(["--set", "sinks.prometheus.write_interval_secs=0.2", "--set", "sinks.prometheus.keep=true", "--"])
        .arg(job())
        .args(["burn", "1", "1000"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let samples = samples(&fs::read(&recording).unwrap());
    let run = samples[0]["run"]["id"].as_str().unwrap();
    assert_eq!(names(&directory), [format!("resource-tracker-{run}.prom")]);
    let metrics = fs::read_to_string(directory.join(format!("resource-tracker-{run}.prom"))).unwrap();
    let values = values(&metrics);
    let of = |name: &str, labels: &str| {
        let series = format!("{name}{{instance=\"{run}\",job=\"shop/night\\\"ly\"{labels}}}");
        *values.get(&series).unwrap_or_else(|| panic!("{series} is not in {metrics}"))
    };
    let sum = |field: &str| samples.iter().filter_map(|sample| sample["cpu"][field].as_f64()).sum::<f64>();
    let last = |field: &str| samples.iter().rev().find_map(|sample| sample["cpu"][field].as_f64()).unwrap();
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-3 * one.abs().max(1e-3);
    let user = of("process_cpu_time_seconds_total", ",cpu_mode=\"user\"");
    assert!(user > 0.5 && near(user, sum("process_utime_secs")), "{user}");
    let system = of("process_cpu_time_seconds_total", ",cpu_mode=\"system\"");
    assert!(near(system, sum("process_stime_secs")), "{system}");
    let peak = of("resource_tracker_cpu_process_peak_memory_bytes", "");
    assert!(near(peak, last("process_peak_memory_mib") * 1_048_576.0), "{peak}");
    let received = |sample: &Json| number(&sample["network"][0], "/rx_bytes_total");
    let interface = samples[0]["network"][0]["interface"].as_str().unwrap();
    let io = format!(",network_interface_name=\"{interface}\",network_io_direction=\"receive\"");
    let bytes = of("system_network_io_bytes_total", &io);
    assert!(near(bytes, received(&samples[samples.len() - 1]) - received(&samples[0])), "{bytes}");
    let wall = of("resource_tracker_outcome_wall_seconds", "");
    assert!(near(wall, number(&samples[samples.len() - 1], "/outcome/wall_secs")), "{wall}");
    assert!(metrics.contains("service_name=\"night\\\"ly\""), "{metrics}");
    if let Some(complaints) = complaints(&metrics) {
        assert_eq!(complaints, "0");
    }
}

#[test]
fn a_file_goes_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("theirs.prom"), "").unwrap();
    let set = format!("sinks.prometheus.directory={}", folder.path().display());
    let path = folder.path().display();
    let script = format!("for i in $(seq 400); do ls {path}/resource-tracker-*.prom && break; sleep 0.05; done");
    let output = command(tracker())
        .args(["-q", "-i", "50ms", "--enable", "prometheus", "--set", "sinks.prometheus.mode=textfile", "--set", &set])
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains(".prom"), "it was there: {output:?}");
    assert_eq!(names(folder.path()), ["theirs.prom"]);
}

/// Status, content type and body of an answer.
fn asked(address: &str, accept: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let content_type = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap_or_default();
    (head.lines().next().unwrap().to_owned(), content_type.to_owned(), body.to_owned())
}

#[test]
fn metrics_are_scraped_while_the_run_goes_on() {
    let mut child = command(tracker())
        .args(["-q", "-i", "100ms", "--enable", "prometheus", "--set", "sinks.prometheus.listen=127.0.0.1:0"])
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    let address = said.trim_end().strip_suffix("/metrics").and_then(|line| line.split("http://").nth(1));
    let address = address.unwrap_or_else(|| panic!("{said}"));
    let time = |body: &str| values(body).get("process_cpu_time_seconds_total{cpu_mode=\"user\"}").copied();
    let (status, content_type, body) = (0..100)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            asked(address, "text/plain")
        })
        .find(|(.., body)| time(body).is_some())
        .expect("samples come");
    assert_eq!(
        (status.as_str(), content_type.as_str()),
        ("HTTP/1.1 200 OK", "text/plain; version=0.0.4; charset=utf-8")
    );
    if let Some(complaints) = complaints(&body) {
        assert_eq!(complaints, "0");
    }
    let (_, content_type, body) = asked(address, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(content_type.starts_with("application/openmetrics-text") && body.ends_with("# EOF\n"), "{content_type}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(address).is_err(), "it ends with the run");
}

#[test]
fn what_cannot_be_is_refused_before_the_command_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("sinks.prometheus.listen={}", taken.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let proof = folder.path().join("started");
    for (settings, expected) in [
        (vec!["sinks.prometheus.mode=carrier-pigeon"], "must be one of scrape, textfile"),
        (vec!["sinks.prometheus.mode=textfile"], "mode textfile needs a directory"),
        (vec!["sinks.prometheus.mode=textfile", "sinks.prometheus.directory=/nowhere"], "the folder /nowhere"),
        (vec!["sinks.prometheus.listen=nonsense"], "\"nonsense\" is no address with a port"),
        (vec![taken.as_str()], "set sinks.prometheus.listen to another address or port"),
    ] {
        let mut run = command(tracker());
        run.args(["-q", "--enable", "prometheus"]);
        settings.iter().for_each(|setting| {
            run.args(["--set", setting]);
        });
        let output = run.args(["--", "touch"]).arg(&proof).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected) && said.lines().count() == 1, "{said}");
        assert!(!Path::new(&proof).exists(), "{expected}");
    }
}
