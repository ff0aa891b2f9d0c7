//! Streaming to the Sentinel service, against a stand-in that is strict about the contract.

use std::process::Command;
use std::time::{Duration, Instant};

use resource_tracker_tests::sentinel::{BUCKET, Service, TOKEN, Trouble, gunzip, run, run_until, streaming, waiting};
use resource_tracker_tests::{Recording, command, in_time, samples, stop_after, text, tracker};
use serde_json::{Value as Json, json};

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

#[test]
fn t_str_02_03_t_eor_04_t_s3_06_a_longer_run_goes_to_the_store_in_batches() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let mut command = streaming(&service, state.path(), &["-i", "50ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    let output = run_until(&recording, &mut command, "three batches", || service.known().count("PUT") >= 3);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
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
    let stamps: Vec<String> = recording
        .samples()
        .iter()
        .map(|sample| {
            let millis = sample["timestamp_ms"].as_u64().unwrap();
            format!("{}.{:03}", millis / 1000, millis % 1000)
        })
        .collect();
    assert_eq!(rows.iter().map(|row| row.split(',').next().unwrap()).collect::<Vec<_>>(), stamps);
    assert_eq!(service.known().complaints, [""; 0]);
}

#[test]
fn t_str_04_credentials_that_end_within_five_minutes_are_refreshed_before_they_are_used() {
    let service = Service::start();
    service.known().lifetime = Duration::from_secs(299);
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "100ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    run_until(&Recording::new(), &mut command, "a batch", || service.known().count("PUT") >= 1);
    let known = service.known();
    let first = known.requests.iter().position(|request| request.starts_with("PUT")).unwrap();
    assert_eq!(known.requests[first - 1], "POST /runs/run-1/refresh-credentials", "{:?}", known.requests);
    drop(known);
    // An hour is left: there is nothing to refresh.
    let service = Service::start();
    let mut command = streaming(&service, state.path(), &["-i", "100ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    run_until(&Recording::new(), &mut command, "a batch", || service.known().count("PUT") >= 1);
    let known = service.known();
    assert_eq!(known.runs["run-1"].refreshes, 0);
    assert!(known.requests.iter().any(|request| request.starts_with("PUT")));
}

#[test]
fn credentials_that_end_before_their_time_are_replaced() {
    let service = Service::start();
    service.known().early_end = Some(Duration::from_millis(500));
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let mut command = streaming(&service, state.path(), &["-i", "100ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    let output = run_until(&recording, &mut command, "credentials for the second time", || {
        service.known().runs.get("run-1").is_some_and(|run| run.refreshes >= 2)
    });
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(service.rows("run-1").0.len(), recording.samples().len());
}

#[test]
fn t_s3_05_the_region_of_a_bucket_is_asked_for_once() {
    let service = Service::start();
    service.known().tells_region = false;
    let state = tempfile::tempdir().unwrap();
    let mut command = streaming(&service, state.path(), &["-i", "100ms"]);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    run_until(&Recording::new(), &mut command, "three batches", || service.known().count("PUT") >= 3);
    let known = service.known();
    assert_eq!(known.count("HEAD"), 1, "{:?}", known.requests);
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

#[test]
fn t_cld_01_without_a_cloud_its_fields_are_null_and_nothing_is_waited_for() {
    let recording = Recording::new();
    let script = format!("{}; {}", recording.until(1, "\"cloud\":{"), recording.until(1, "\"host_vcpus\":"));
    let mut tracked = command(tracker());
    tracked.args(["-i", "100ms", "--enable", "cloud", "--set", "sources.cloud.endpoint=http://127.0.0.1:1", "-o"]);
    recording.run(tracked.arg(recording.path()).args(["--", "sh", "-c", &script]));
    let samples = recording.samples();
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
    in_time(|| {
        let start = Instant::now();
        let mut tracked = command(tracker());
        tracked.args(["-q", "--enable", "cloud", "--set", &endpoint, "--", "true"]);
        assert!(tracked.status().unwrap().success());
        start.elapsed() < Duration::from_secs(2)
    });
}

#[test]
fn a_suppressed_field_of_the_host_appears_nowhere() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let script = recording.until(1, "\"host_vcpus\":");
    let mut command =
        streaming(&service, state.path(), &["-i", "50ms", "--set", "sources.host.suppress=[\"host_name\"]"]);
    command.env("TRACKER_HOST_IP", "0").env("TRACKER_HOST_ID", "").arg("-o").arg(recording.path());
    recording.run(command.args(["--", "sh", "-c", &script]));
    let facts = service.known().runs["run-1"].facts.clone();
    let host = recording.samples().iter().find_map(|sample| sample.get("host").cloned()).unwrap();
    for field in ["host_ip", "host_id", "host_name", "host_hostname"] {
        assert!(facts.get(field).is_none() && host.get(field).is_none(), "{field}: {facts} {host}");
    }
    assert!(host["host_vcpus"].is_u64());
}

#[test]
fn the_token_and_the_keys_are_nowhere() {
    let service = Service::start();
    service.trouble(&[("PUT", Trouble::Status(500, None))]);
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let options = ["-i", "50ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"];
    let mut command = streaming(&service, state.path(), &options);
    command.env("TRACKER_UPLOAD_INTERVAL", "1");
    let output = run_until(&recording, &mut command, "a batch", || service.known().count("PUT") >= 1);
    let samples = std::fs::read(recording.path()).unwrap();
    let mut texts = vec![text(&output.stderr), text(&output.stdout), text(&samples)];
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
    for secret in [TOKEN, "secret/key+", "secret%2Fkey", "session//token", "session%2F%2Ftoken", "X-Amz-Signature"] {
        assert!(texts.iter().all(|text| !text.contains(secret)), "{secret}");
    }
    // There is something in the spool.
    assert!(files >= 3, "{files}");
}

/// The command gets the descriptors, and a program that prints the token can take its time.
#[test]
fn the_token_can_come_by_a_descriptor() {
    for redirected in ["9<\"$0\"", "9< <(sleep 0.2; cat \"$0\")"] {
        let service = Service::start();
        let state = tempfile::tempdir().unwrap();
        let token = state.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let mut shell = command("bash");
        shell.envs(service.environment(state.path())).env_remove("SENTINEL_API_TOKEN");
        shell.args(["-c", &format!("\"$@\" {redirected}")]).arg(token).arg(tracker());
        shell.args(["-q", "-i", "50ms", "--set", "sinks.sentinel-s3.token_file=/dev/fd/9", "--", "sleep", "0.2"]);
        let output = shell.output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{redirected}");
        assert_eq!(service.known().requests, ["POST /runs", "POST /runs/run-1/finish"], "{redirected}");
    }
}

#[test]
fn a_token_that_never_comes_does_not_keep_the_command() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let fifo = state.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let token_file = |path: &std::path::Path| format!("sinks.sentinel-s3.token_file={}", path.display());
    for path in [fifo, state.path().join("none")] {
        let mut command = command("timeout");
        command.arg("60").arg(tracker()).envs(service.environment(state.path())).env_remove("SENTINEL_API_TOKEN");
        let output = command.args(["-q", "--set", &token_file(&path), "--", "sh", "-c", "exit 3"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.contains("token") && said.contains("rows are kept"), "{said}");
    }
    assert!(service.known().requests.is_empty());
}

#[test]
fn tls_with_the_certificates_of_the_system_and_no_others() {
    let service = Service::start_tls();
    let state = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let mut known = streaming(&service, state.path(), &["-i", "50ms"]);
    known.env("SSL_CERT_FILE", service.certificate.as_ref().unwrap()).env("TRACKER_UPLOAD_INTERVAL", "1");
    let output = run_until(&recording, &mut known, "a batch", || service.known().count("PUT") >= 1);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(service.rows("run-1").0.len(), recording.samples().len());

    let recording = Recording::new();
    let script = format!("{}; exit 5", recording.until_said("certificate"));
    let mut unknown = streaming(&service, state.path(), &["-i", "50ms", "-q", "--", "sh", "-c", &script]);
    let output = recording.run(&mut unknown);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("certificate"), "{said}");
    assert_eq!(service.known().runs.len(), 1);
}

#[test]
fn what_the_surroundings_tell_is_sent_unless_it_is_turned_off() {
    let service = Service::start();
    let state = tempfile::tempdir().unwrap();
    let variables = [
        ("SLURM_JOB_ID", "77"),
        ("SLURM_JOB_NAME", "fit"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "2"),
    ];
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
    let options = ["-q", "-i", "100ms", "--set", &endpoint];
    let recording = Recording::new();
    let script = format!("{}; {}", recording.until_said("refused"), recording.until_told());
    let mut command = streaming(&service, state.path(), &[&options[..], &["--", "sh", "-c", &script]].concat());
    let asked = || service.known().count("PUT /latest") >= 1;
    command.env("ALL_PROXY", "http://127.0.0.1:1").env("SENTINEL_API_URL", "https://sentinel.example.com");
    let output = recording.run_until(&mut command, "a request for metadata", asked);
    assert!(output.status.success() && text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
    let requests = std::mem::take(&mut service.known().requests);
    assert!(requests.iter().any(|request| request.ends_with("/latest/api/token")), "{requests:?}");
    assert!(!requests.iter().any(|request| request.contains("/runs")), "{requests:?}");

    // What is on this machine needs none.
    let mut command = streaming(&service, state.path(), &[&options[..], &["--", "true"]].concat());
    let output = command.env("ALL_PROXY", "http://127.0.0.1:1").output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(service.known().requests.contains(&"POST /runs".to_owned()));
}
