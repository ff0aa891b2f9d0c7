//! Real servers of metrics, where they are installed: what they say is what the run's own file has.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use resource_tracker_tests::{command, has, job, number, samples, text, tracker, wait_for};
use serde_json::Value as Json;

/// A server that is ended with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts it with these arguments, in which `PORT` is that on which it is to listen.
    fn start(program: &str, arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = arguments.iter().map(|argument| argument.replace("PORT", &port.to_string()));
        let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, port };
        wait_for(Duration::from_secs(60), program, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The status and the body of an answer.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = text(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The values that a query has now.
    fn query(&self, query: &str) -> Vec<f64> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (status, body) = self.get(&format!("/api/v1/query?query={query}"));
        assert_eq!(status, 200, "{body}");
        let answer: Json = serde_json::from_str(&body).unwrap();
        let results = answer["data"]["result"].as_array().unwrap();
        results.iter().map(|result| result["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run of this job with these settings of sink `prometheus`.
fn run(folder: &Path, settings: &[&str], words: &[&str]) -> Output {
    let settings = settings.iter().flat_map(|setting| ["--set".to_owned(), format!("sinks.prometheus.{setting}")]);
    command(tracker())
        .env("XDG_STATE_HOME", folder)
        .args(["-i", "100ms", "--job-name", "nightly", "--project-name", "shop", "-o"])
        .arg(folder.join("run.jsonl"))
        .args(["--enable", "prometheus"])
        .args(settings)
        .arg("--")
        .args(words)
        .output()
        .unwrap()
}

/// The sum of a figure of `cpu` up to each sample of the recording.
fn sums(folder: &Path, field: &str) -> Vec<f64> {
    let samples = samples(&fs::read(folder.join("run.jsonl")).unwrap());
    let mut sum = 0.0;
    let up_to = |sample: &Json| {
        sum += number(sample, &format!("/cpu/{field}"));
        sum
    };
    samples.iter().map(up_to).collect()
}

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 0.001 * expected
}

const USER: &str = "system_cpu_time_seconds_total{cpu_mode=\"user\",job=\"shop/nightly\"}";

#[test]
fn prometheus_scrapes_and_receives() {
    if !has("prometheus", "prometheus_scrapes_and_receives") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = folder.path().join("prometheus.yml");
    let scraped = format!(
        "scrape_configs: [{{job_name: shop/nightly, scrape_interval: 200ms, scrape_timeout: 200ms, \
         static_configs: [{{targets: ['{metrics}']}}]}}]"
    );
    fs::write(&config, scraped).unwrap();
    let server = Server::start(
        "prometheus",
        &[
            &format!("--config.file={}", config.display()),
            &format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            "--web.listen-address=127.0.0.1:PORT",
            "--web.enable-remote-write-receiver",
        ],
    );
    wait_for(Duration::from_secs(60), "it tries to scrape", || {
        server.get("/-/ready").0 == 200 && !server.query("up").is_empty()
    });
    let job = job();
    let words = [job.to_str().unwrap(), "burn", "2", "2000"];
    let output = run(folder.path(), &[&format!("listen={metrics}")], &words);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let last = server.query(&format!("last_over_time({USER}[10m])"));
    let sums_of_scraped = sums(folder.path(), "utime_secs");
    assert!(
        last.len() == 1 && sums_of_scraped.iter().any(|sum| is_near(last[0], *sum)),
        "{last:?}, {sums_of_scraped:?}"
    );
    assert!(last[0] > 0.7 * sums_of_scraped[sums_of_scraped.len() - 1], "{last:?}, {sums_of_scraped:?}");
    let info = server.query("last_over_time(target_info{service_name=\"nightly\",service_namespace=\"shop\"}[10m])");
    assert_eq!(info, [1.0]);

    let sent = tempfile::tempdir().unwrap();
    let url = format!("url={}", server.url("/api/v1/write"));
    let output = run(sent.path(), &["mode=remote-write", "write_interval_secs=0.5", &url], &words);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let run = samples(&fs::read(sent.path().join("run.jsonl")).unwrap())[0]["run"]["id"].as_str().unwrap().to_owned();
    let user = USER.replace('}', &format!(",instance=\"{run}\"}}"));
    for (mode, field) in [("user", "utime_secs"), ("system", "stime_secs")] {
        let last = server.query(&format!("last_over_time({}[10m])", user.replace("user", mode)));
        let sums = sums(sent.path(), field);
        assert!(last.len() == 1 && is_near(last[0], sums[sums.len() - 1]), "{mode}: {last:?}, {sums:?}");
    }
    assert!(server.query(&user).is_empty(), "the run has ended");
    let received = server.query(&format!("count_over_time({user}[10m])"));
    assert!(received.len() == 1 && received[0] >= 4.0, "{received:?}");
}

#[test]
fn victoria_metrics_receives() {
    if !has("victoria-metrics", "victoria_metrics_receives") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        "victoria-metrics",
        &[
            "-storageDataPath",
            folder.path().join("data").to_str().unwrap(),
            "-httpListenAddr",
            "127.0.0.1:PORT",
            "-search.latencyOffset=0s",
        ],
    );
    let url = format!("url={}", server.url("/api/v1/write"));
    let job = job();
    let words = [job.to_str().unwrap(), "burn", "1", "1000"];
    let output = run(folder.path(), &["mode=remote-write", "write_interval_secs=0.3", &url], &words);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    server.get("/internal/force_flush");
    let sums = sums(folder.path(), "utime_secs");
    let last = || server.query(&format!("last_over_time({USER}[10m])"));
    wait_for(Duration::from_secs(30), "it has the last value", || {
        last().first().is_some_and(|last| is_near(*last, sums[sums.len() - 1]))
    });
}

#[test]
fn a_pushgateway_keeps_the_end_of_a_run() {
    if !has("prometheus-pushgateway", "a_pushgateway_keeps_the_end_of_a_run") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("prometheus-pushgateway", &["--web.listen-address=127.0.0.1:PORT"]);
    let url = format!("url={}", server.url(""));
    let job = job();
    let output = run(folder.path(), &["mode=push", &url], &[job.to_str().unwrap(), "burn", "1", "1000"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let value = |metrics: &str, series: &str| {
        let line =
            metrics.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series}: {metrics}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (_, metrics) = server.get("/metrics");
    let sums = sums(folder.path(), "utime_secs");
    let user = value(&metrics, "system_cpu_time_seconds_total{cpu_mode=\"user\",instance=\"\",job=\"shop/nightly\"}");
    assert!(is_near(user, sums[sums.len() - 1]), "{user}, {sums:?}");
    let success = value(&metrics, "resource_tracker_run_last_success_timestamp_seconds{");
    assert_eq!(value(&metrics, "resource_tracker_run_exit_code{"), 0.0);

    let failed = tempfile::tempdir().unwrap();
    let output = run(failed.path(), &["mode=push", &url], &["sh", "-c", "sleep 0.2; exit 3"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    let (_, metrics) = server.get("/metrics");
    assert_eq!(value(&metrics, "resource_tracker_run_exit_code{"), 3.0);
    assert_eq!(value(&metrics, "resource_tracker_run_last_success_timestamp_seconds{"), success);
    assert!(value(&metrics, "resource_tracker_run_last_end_timestamp_seconds{") > success);
}

#[test]
fn the_node_exporter_reads_the_file() {
    if !has("prometheus-node-exporter", "the_node_exporter_reads_the_file") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics");
    fs::create_dir(&metrics).unwrap();
    let server = Server::start(
        "prometheus-node-exporter",
        &[
            "--collector.disable-defaults",
            "--collector.textfile",
            &format!("--collector.textfile.directory={}", metrics.display()),
            "--web.listen-address=127.0.0.1:PORT",
        ],
    );
    let job = job();
    let directory = format!("directory={}", metrics.display());
    let words = [job.to_str().unwrap(), "burn", "1", "1000"];
    let output = run(folder.path(), &["mode=textfile", "keep=true", &directory], &words);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let (_, metrics) = server.get("/metrics");
    assert!(metrics.contains("node_textfile_scrape_error 0"), "{metrics}");
    let user = metrics.lines().find(|line| {
        line.starts_with("system_cpu_time_seconds_total{cpu_mode=\"user\"") && line.contains("job=\"shop/nightly\"")
    });
    let user: f64 = user.unwrap_or_else(|| panic!("{metrics}")).rsplit(' ').next().unwrap().parse().unwrap();
    let sums = sums(folder.path(), "utime_secs");
    assert!(is_near(user, sums[sums.len() - 1]), "{user}, {sums:?}");
}
