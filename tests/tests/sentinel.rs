//! Streaming to the Sentinel service, against a stand-in that is strict about the contract.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flaky_test::flaky_test;
use resource_tracker_tests::sentinel::{BUCKET, Service, TOKEN, Trouble, gunzip, wait_for_rows};
use resource_tracker_tests::{command, has, in_time, is_root, samples, stop_after, tracker};
use serde_json::{Value as Json, json};

/// A tracker that streams to the service, with its state in this directory.
fn streaming(service: &Service, state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(tracker());
    command.args(arguments).envs(service.environment(state));
    command
}

fn run(service: &Service, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    let output = streaming(service, state.path(), arguments).output().unwrap();
    (output, state)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first columns, which are of one length.
fn stamps(rows: &[String]) -> Vec<&str> {
    rows.iter().filter_map(|row| row.split(',').next()).collect()
}

/// The runs that wait in the spool.
fn waiting(state: &Path) -> usize {
    std::fs::read_dir(state.join("resource-tracker/spool")).map_or(0, Iterator::count)
}

fn upload(service: &Service, state: &Path, arguments: &[&str]) -> Output {
    streaming(service, state, &[&["upload"], arguments].concat()).output().unwrap()
}

#[test]
fn t_str_01_without_a_token_nothing_is_connected_to() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "50ms", "--", "sleep", "0.2"]);
    assert!(command.env_remove("SENTINEL_API_TOKEN").output().unwrap().status.success());
    assert!(command.env("SENTINEL_API_TOKEN", "").output().unwrap().status.success());
    assert!(service.known().requests.is_empty());
    assert_eq!(waiting(state.path()), 0);
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped the rest: there is no strace");
    }
    let mut traced = resource_tracker_tests::command("strace");
    traced
        .args(["-f", "-qq", "-e", "trace=connect,sendto,socket"])
        .arg(tracker())
        .args(["-i", "50ms", "--", "sleep", "0.2"]);
    let said = text(&traced.output().unwrap().stderr);
    let calls: Vec<&str> = said.lines().filter(|line| line.contains("connect(") || line.contains("AF_INET")).collect();
    assert!(calls.is_empty(), "{calls:?}");
}

#[test]
fn t_eor_02_03_a_short_run_is_registered_and_goes_inline() {
    let service = Service::start();
    let arguments = [
        "-i",
        "50ms",
        "--job-name",
        "fit",
        "--project-name",
        "p",
        "--team",
        "t",
        "--tag",
        "a=1",
        "--tag",
        "b=x=y",
        "--",
        "sh",
        "-c",
        "sleep 0.3; exit 3",
        "--token=hidden",
    ];
    let (output, state) = run(&service, &arguments);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let known = service.known();
    assert_eq!(known.complaints, [""; 0]);
    assert_eq!(known.requests, ["POST /runs", "POST /runs/run-1/finish"], "T-EOR-02: the id is that of the answer");
    let run = &known.runs["run-1"];
    for (key, value) in [("job_name", "fit"), ("project_name", "p"), ("team", "t")] {
        assert_eq!(run.facts[key], value);
    }
    assert_eq!(run.facts["tags"], json!({"a": "1", "b": "x=y"}));
    let words: Vec<String> = serde_json::from_str(run.facts["command"].as_str().unwrap()).unwrap();
    assert_eq!(words, ["sh", "-c", "sleep 0.3; exit 3", "--token=***"]);
    assert!(run.facts["host_vcpus"].as_u64() > Some(0) && run.facts["host_hostname"].is_string(), "{}", run.facts);
    let finish = run.finish.clone().unwrap();
    assert_eq!(
        (&finish["exit_code"], &finish["run_status"], &finish["data_source"]),
        (&3.into(), &"failed".into(), &"inline".into())
    );
    drop(known);
    let (rows, inline) = service.rows("run-1");
    assert!(inline, "T-EOR-03");
    assert_eq!(rows.len(), samples(&output.stderr).len());
    assert_eq!(waiting(state.path()), 0, "what has arrived is gone");
}

#[flaky_test]
fn t_str_02_03_t_eor_04_t_s3_06_a_longer_run_goes_to_the_store_in_batches() {
    let service = Service::start();
    let arguments = ["-i", "50ms", "--", "sleep", "2.6"];
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &arguments);
    let output = command.env("TRACKER_UPLOAD_INTERVAL", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!((&finish["data_source"], &finish["run_status"]), (&"s3".into(), &"finished".into()), "T-EOR-04");
    let uris: Vec<&str> = finish["data_uris"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let expected: Vec<String> =
        (0..uris.len()).map(|batch| format!("s3://{BUCKET}/some/prefix/run-1/{batch:06}.csv.gz")).collect();
    assert!(uris.len() >= 3, "{uris:?}");
    assert_eq!(uris, expected, "T-STR-03");
    for uri in uris {
        let csv = gunzip(&std::fs::read(service.object(uri)).unwrap());
        assert!(csv.starts_with("timestamp,system_processes,") && csv.lines().count() > 1, "T-STR-02");
    }
    let (rows, _) = service.rows("run-1");
    let stamps: Vec<String> = samples(&output.stderr)
        .iter()
        .map(|sample| {
            let millis = sample["timestamp_ms"].as_u64().unwrap();
            format!("{}.{:03}", millis / 1000, millis % 1000)
        })
        .collect();
    assert_eq!(rows.iter().map(|row| row.split(',').next().unwrap()).collect::<Vec<_>>(), stamps);
    assert_eq!(service.known().complaints, [""; 0]);
}

#[flaky_test]
fn t_str_04_credentials_that_end_within_five_minutes_are_refreshed_before_they_are_used() {
    let service = Service::start();
    service.known().lifetime = Duration::from_secs(299);
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "100ms", "-q", "--", "sleep", "1.5"]);
    assert!(command.env("TRACKER_UPLOAD_INTERVAL", "1").status().unwrap().success());
    let known = service.known();
    let first = known.requests.iter().position(|request| request.starts_with("PUT")).unwrap();
    assert_eq!(known.requests[first - 1], "POST /runs/run-1/refresh-credentials", "{:?}", known.requests);
    drop(known);
    // An hour is left: there is nothing to refresh.
    let service = Service::start();
    let mut command = streaming(&service, state.path(), &["-i", "100ms", "-q", "--", "sleep", "1.5"]);
    assert!(command.env("TRACKER_UPLOAD_INTERVAL", "1").status().unwrap().success());
    let known = service.known();
    assert_eq!(known.runs["run-1"].refreshes, 0);
    assert!(known.requests.iter().any(|request| request.starts_with("PUT")));
}

#[flaky_test]
fn credentials_that_end_before_their_time_are_replaced() {
    let service = Service::start();
    service.known().early_end = Some(Duration::from_millis(500));
    let state = tempfile::tempdir().unwrap();
    // Registration can take three seconds, where the machine is slow to tell what it is.
    let mut command = streaming(&service, state.path(), &["-i", "100ms", "-q", "--", "sleep", "6.3"]);
    let output = command.env("TRACKER_UPLOAD_INTERVAL", "1").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert!(service.known().runs["run-1"].refreshes >= 2);
    assert!(service.rows("run-1").0.len() >= 55);
}

#[flaky_test]
fn t_s3_05_the_region_of_a_bucket_is_asked_for_once() {
    let service = Service::start();
    service.known().tells_region = false;
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "100ms", "-q", "--", "sleep", "2.6"]);
    assert!(command.env("TRACKER_UPLOAD_INTERVAL", "1").status().unwrap().success());
    let known = service.known();
    let count = |start: &str| known.requests.iter().filter(|request| request.starts_with(start)).count();
    assert!(count("PUT") >= 3, "{:?}", known.requests);
    assert_eq!(count("HEAD"), 1, "{:?}", known.requests);
}

#[test]
fn t_eor_01_sigterm_without_a_command_flushes_and_ends_with_0() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let output = stop_after(9, &mut streaming(&service, state.path(), &["-i", "50ms"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let finish = service.known().runs["run-1"].finish.clone().unwrap();
    assert_eq!((&finish["run_status"], &finish["exit_code"]), (&"finished".into(), &Json::Null));
    assert_eq!(service.rows("run-1").0.len(), samples(&output.stdout).len());
}

#[flaky_test]
fn t_cld_01_without_a_cloud_its_fields_are_null_and_nothing_is_waited_for() {
    let output = command(tracker())
        .args([
            "-i",
            "100ms",
            "--enable",
            "cloud",
            "--set",
            "sources.cloud.endpoint=http://127.0.0.1:1",
            "--",
            "sleep",
            "0.5",
        ])
        .output()
        .unwrap();
    let samples = samples(&output.stderr);
    let clouds: Vec<&Json> = samples.iter().filter_map(|sample| sample.get("cloud")).collect();
    assert_eq!(clouds.len(), 1, "once, when it is known");
    assert!(clouds[0].as_object().unwrap().values().all(Json::is_null), "{}", clouds[0]);
    let hosts: Vec<&Json> = samples.iter().filter_map(|sample| sample.get("host")).collect();
    assert_eq!(hosts.iter().filter(|host| host["host_vcpus"].is_u64()).count(), 1);
    let last = samples.last().unwrap();
    assert!(["dedicated", "shared"].contains(&last["host"]["host_allocation"].as_str().unwrap()), "{last}");

    // A service that never answers holds up neither the start nor the end.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("sources.cloud.endpoint=http://{}", listener.local_addr().unwrap());
    let start = Instant::now();
    let status =
        command(tracker()).args(["-q", "--enable", "cloud", "--set", &endpoint, "--", "true"]).status().unwrap();
    assert!(status.success() && start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_suppressed_field_of_the_host_appears_nowhere() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(
        &service,
        state.path(),
        &["-i", "50ms", "--set", "sources.host.suppress=[\"host_name\"]", "--", "sleep", "0.2"],
    );
    let output = command.env("TRACKER_HOST_IP", "0").env("TRACKER_HOST_ID", "").output().unwrap();
    let facts = service.known().runs["run-1"].facts.clone();
    let host = samples(&output.stderr).iter().find_map(|sample| sample.get("host").cloned()).unwrap();
    for field in ["host_ip", "host_id", "host_name", "host_hostname"] {
        assert!(facts.get(field).is_none() && host.get(field).is_none(), "{field}: {facts} {host}");
    }
    assert!(host["host_vcpus"].is_u64());
}

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

#[test]
fn the_token_and_the_keys_are_nowhere() {
    in_time(|| {
        let service = Service::start();
        service.trouble(&[("PUT", Trouble::Status(500, None))]);
        let state = tempfile::tempdir().unwrap();
        let mut command = streaming(
            &service,
            state.path(),
            &["-i", "50ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=1", "--", "sleep", "2.2"],
        );
        let output = command.env("TRACKER_UPLOAD_INTERVAL", "1").output().unwrap();
        let mut texts = vec![text(&output.stderr), text(&output.stdout)];
        let mut folders = vec![state.path().to_owned()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                use std::os::unix::fs::PermissionsExt;
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                if entry.path().is_dir() {
                    folders.push(entry.path());
                    assert!(mode == 0o700 || !entry.path().to_string_lossy().contains("spool"), "{mode:o}");
                } else {
                    assert_eq!(mode, 0o600, "{}", entry.path().display());
                    texts.push(text(&std::fs::read(entry.path()).unwrap()));
                    files += 1;
                }
            }
        }
        for arguments in [&["config", "show"][..], &["components"]] {
            texts.push(text(&streaming(&service, state.path(), arguments).output().unwrap().stdout));
        }
        for secret in [TOKEN, "secret/key+", "secret%2Fkey", "session//token", "session%2F%2Ftoken", "X-Amz-Signature"]
        {
            assert!(texts.iter().all(|text| !text.contains(secret)), "{secret}");
        }
        // There is something in the spool.
        files >= 3
    });
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
fn tls_with_the_certificates_of_the_system_and_no_others() {
    let service = Service::start_tls();
    let state = tempfile::tempdir().unwrap();
    let arguments = ["-i", "50ms", "-q", "--", "sh", "-c", "sleep 1.4; exit 5"];
    let mut known = streaming(&service, state.path(), &arguments);
    known.env("SSL_CERT_FILE", service.certificate.as_ref().unwrap()).env("TRACKER_UPLOAD_INTERVAL", "1");
    let output = known.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(5), ""));
    assert!(service.rows("run-1").0.len() >= 20);
    assert!(service.known().requests.iter().any(|request| request.starts_with("PUT")));

    let output = streaming(&service, state.path(), &arguments).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("certificate"), "{said}");
    assert_eq!(service.known().runs.len(), 1);
}

#[test]
fn what_the_surroundings_tell_is_sent_unless_it_is_turned_off() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let variables = [("SLURM_JOB_ID", "77"), ("SLURM_JOB_NAME", "fit"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
    let arguments = ["-q", "--team", "t", "--tag", "mpi_rank=mine", "--", "sh", "-c", "exit 0", "x.py"];
    streaming(&service, state.path(), &arguments).envs(variables).status().unwrap();
    let arguments = [&["--set", "tracker.detect=false"], &arguments[..]].concat();
    streaming(&service, state.path(), &arguments).envs(variables).status().unwrap();
    let known = service.known();
    assert_eq!(known.complaints, [""; 0]);
    let facts = &known.runs["run-1"].facts;
    for (key, value) in
        [("executor", "slurm"), ("external_run_id", "77"), ("job_name", "fit"), ("team", "t"), ("language", "python")]
    {
        assert_eq!(facts[key], value, "{facts}");
    }
    assert_eq!(facts["tags"], json!({ "mpi_rank": "mine", "mpi_size": "2" }));
    let facts = &known.runs["run-2"].facts;
    assert!(facts.get("executor").is_none() && facts.get("language").is_none() && facts["team"] == "t", "{facts}");
}

#[test]
fn the_proxy_of_the_environment_is_for_the_service_and_not_for_metadata() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let endpoint = format!("sources.cloud.endpoint={}", service.url);
    let mut command =
        streaming(&service, state.path(), &["-q", "-i", "100ms", "--set", &endpoint, "--", "sleep", "0.4"]);
    command.env("ALL_PROXY", "http://127.0.0.1:1").env("SENTINEL_API_URL", "https://sentinel.example.com");
    let output = command.output().unwrap();
    assert!(output.status.success() && text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
    let requests = std::mem::take(&mut service.known().requests);
    assert!(requests.iter().any(|request| request.ends_with("/latest/api/token")), "{requests:?}");
    assert!(!requests.iter().any(|request| request.contains("/runs")), "{requests:?}");

    // What is on this machine needs none.
    let output = command.env("SENTINEL_API_URL", &service.url).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(service.known().requests.contains(&"POST /runs".to_owned()));
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
