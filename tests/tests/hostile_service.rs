//! Servers with wrong answers: nothing of them is shown, believed, or taken beyond what a field can hold.

use std::process::{Command, Output};
use std::thread;

use resource_tracker_tests::server::{Server, http};
use resource_tracker_tests::{command, in_time, samples, text, tracker};
use serde_json::json;

const TOKEN: &str = "token-of-the-user-0815";
/// In all that these servers say.
const SECRETS: [&str; 3] = [TOKEN, "STSKEY4711", "SESSIONTOKEN4711"];

fn registration() -> serde_json::Value {
    json!({
        "run_id": "run-1",
        "upload_uri_prefix": "s3://bucket/prefix",
        "upload_credentials": { "access_key": "A", "secret_key": SECRETS[1], "session_token": SECRETS[2] },
    })
}

/// A tracker whose service and store are this server, with its state in a folder of its own.
fn speaking(server: &Server, state: &tempfile::TempDir) -> Command {
    let mut command = command(tracker());
    command.env("SENTINEL_API_TOKEN", TOKEN).env("SENTINEL_API_URL", &server.url);
    command.env("AWS_ENDPOINT_URL_S3", &server.url).env("XDG_STATE_HOME", state.path());
    command.env("TRACKER_SOURCES__CLOUD__ENDPOINT", "http://127.0.0.1:1").env("TRACKER_UPLOAD_INTERVAL", "100ms");
    command
}

/// Runs a job, and then sends what is left of it.
fn run_and_upload(server: &Server) -> (Output, Output) {
    let state = tempfile::tempdir().unwrap();
    let options = ["-q", "-i", "50ms", "--set", "sinks.sentinel-s3.finish_timeout_secs=3"];
    let run = speaking(server, &state).args(options).args(["--", "sh", "-c", "sleep 0.5; exit 7"]).output().unwrap();
    assert_eq!(run.status.code(), Some(7), "{}", text(&run.stderr));
    (run, speaking(server, &state).arg("upload").output().unwrap())
}

#[test]
fn nothing_that_a_server_says_is_shown() {
    let all = SECRETS.join(" ");
    let detail = json!({ "detail": all }).to_string();
    let with = |key: &str, value: serde_json::Value| {
        let mut answer = registration();
        answer[key] = value;
        http("201 Created", "", &answer.to_string())
    };
    let (no_json, wrong_type) = (http("201 Created", "", &all), http("201 Created", "", &json!(all).to_string()));
    let mut odd_keys = registration();
    odd_keys["upload_credentials"]["region"] = format!("{}/x", SECRETS[1]).into();
    odd_keys["upload_credentials"]["secret_key"] = format!("{}\r\n", SECRETS[1]).into();
    let cases = [
        ("a refusal", http("422 Unprocessable", "", &detail)),
        ("a reason", http(&format!("400 {all}"), "", "")),
        ("a busy service", http("503 Busy", &format!("Retry-After: {all}\r\n"), &detail)),
        ("no token", http("401 Unauthorized", &format!("WWW-Authenticate: {all}\r\n"), &detail)),
        ("another place", http("302 Found", &format!("Location: https://example.com/?{}\r\n", SECRETS[0]), "")),
        ("no JSON", no_json),
        ("another type", wrong_type),
        ("a number", with("run_id", json!({ SECRETS[0]: 1 }))),
        ("an id", with("run_id", json!(format!("../{}", SECRETS[0])))),
        ("a good id", with("run_id", json!(SECRETS[0]))),
        ("a prefix", with("upload_uri_prefix", json!(format!("https://{}", SECRETS[1])))),
        ("a good prefix", with("upload_uri_prefix", json!(format!("s3://{}/{}", SECRETS[1], SECRETS[2])))),
        ("keys", http("201 Created", "", &odd_keys.to_string())),
        ("no HTTP", all.clone().into()),
        ("half a header", format!("HTTP/1.1 200 OK\r\n{all}").into()),
    ];
    // They wait most of the time.
    thread::scope(|scope| {
        for (name, answer) in cases {
            scope.spawn(move || {
                let registers = answer.starts_with(b"HTTP/1.1 201");
                let server = Server::start(move |head| match head.starts_with("POST /runs HTTP") || !registers {
                    true => answer.clone(),
                    // What follows is refused, with everything that is known.
                    false => http("403 Forbidden", "", &SECRETS.join("<Code>")),
                });
                let (run, upload) = run_and_upload(&server);
                let said = text(&run.stderr) + &text(&upload.stderr) + &text(&upload.stdout);
                assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{name}: {said}");
                assert!(text(&run.stderr).contains("sentinel: ") && upload.status.code() == Some(1), "{name}: {said}");
                assert!(text(&run.stderr).lines().all(|line| line.len() < 400), "{name}: {said}");
                assert!(!server.requests().is_empty());
            });
        }
    });
}

#[test]
fn the_region_that_a_store_names_is_one() {
    in_time(|| {
        let server = Server::start(|head| match head.split(' ').next() {
            Some("POST") if head.contains("/finish") => http("200 OK", "", "{}"),
            Some("POST") => http("201 Created", "", &registration().to_string()),
            Some("HEAD") => http("200 OK", "x-amz-bucket-region: evil.example/x\r\n", ""),
            _ => http("200 OK", "", ""),
        });
        run_and_upload(&server);
        let requests = server.requests();
        let puts: Vec<&String> = requests.iter().filter(|request| request.starts_with("PUT ")).collect();
        assert!(puts.iter().all(|put| put.contains("%2Feu-central-1%2Fs3%2F") && !put.contains("evil")), "{puts:?}");
        // A run that was held up has one batch, which goes without the store.
        !puts.is_empty()
    });
}

#[test]
fn what_is_only_on_this_machine_never_goes_through_a_proxy() {
    let proxy = Server::start(|_| http("502 Bad Gateway", "", ""));
    for url in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "http://169.254.169.254:1"] {
        let state = tempfile::tempdir().unwrap();
        let mut command = speaking(&proxy, &state);
        command.env("SENTINEL_API_URL", url).env("AWS_ENDPOINT_URL_S3", url);
        for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
            command.env(name, &proxy.url);
        }
        let limits = ["--set", "sinks.sentinel-s3.allow_http=true", "--set", "sinks.sentinel-s3.finish_timeout_secs=1"];
        let output = command.args(limits).args(["-q", "--enable", "cloud", "--", "true"]).output().unwrap();
        assert!(output.status.success());
        assert_eq!(proxy.requests(), [""; 0], "{url}");
    }
    // What is elsewhere does, so it would have been seen.
    let state = tempfile::tempdir().unwrap();
    let mut command = speaking(&proxy, &state);
    command.env("SENTINEL_API_URL", "https://sentinel.example.com").env("ALL_PROXY", &proxy.url);
    command.args(["-q", "--", "true"]).output().unwrap();
    assert!(proxy.requests().iter().any(|request| request.starts_with("CONNECT ")), "{:?}", proxy.requests());
}

#[test]
fn metadata_is_bounded_to_what_a_field_can_hold() {
    let long = "x".repeat(900_000);
    for (value, expected) in
        [(long.as_str(), None), ("a <b> c", None), ("eu\u{1b}[2Jwest", None), ("eu-west-1", Some("eu-west-1"))]
    {
        let body = value.to_owned();
        let server = Server::start(move |head| match head {
            _ if head.starts_with("PUT") => http("404 Not Found", "", ""),
            _ if head.contains("/services/domain") => http("200 OK", "", "amazonaws.com"),
            _ if head.contains("/latest/meta-data/") && !head.contains("region-id") => http("200 OK", "", &body),
            _ => http("404 Not Found", "", ""),
        });
        let endpoint = format!("sources.cloud.endpoint={}", server.url);
        in_time(|| {
            let mut command = command(tracker());
            command.args(["-i", "100ms", "--enable", "cloud", "--set", &endpoint, "--", "sleep", "3"]);
            let output = command.output().unwrap();
            assert!(output.stderr.len() < 400_000, "{} bytes", output.stderr.len());
            let samples = samples(&output.stderr);
            let clouds: Vec<_> = samples.iter().filter_map(|sample| sample.get("cloud")).collect();
            // Nobody has answered within the two seconds.
            if clouds.iter().all(|cloud| cloud["cloud_vendor_id"].is_null()) {
                return false;
            }
            assert_eq!(clouds[0]["cloud_vendor_id"], "aws");
            for field in ["cloud_region_id", "cloud_zone_id", "cloud_instance_type"] {
                assert!(clouds.iter().all(|cloud| cloud[field].as_str() == expected), "{field}: {:?}", clouds[0]);
            }
            true
        });
    }
}

#[test]
fn secrets_on_the_command_line_are_not_sent() {
    let server = Server::start(|_| http("503 Busy", "", ""));
    let state = tempfile::tempdir().unwrap();
    let words = ["-H", "Authorization: Bearer SECRET", "--pass", "SECRET", "--password", "-SECRET", "-u", "me:SECRET"];
    let mut command = speaking(&server, &state);
    command.args(["-q", "--set", "sinks.sentinel-s3.finish_timeout_secs=1", "--", "echo"]).args(words);
    command.args(["host=h password = SECRET", "os.environ[\"HF_TOKEN\"] = \"SECRET\"", "Server=h;Password=SECRET;"]);
    command.args(["OPENAI_KEY=SECRET", "username=a,password=SECRET", "me:SECRET@host", "curl", "-su", "me:SECRET"]);
    command.args(["sh -c \"curl -H 'Cookie: SECRET' https://me:SECRET@host/\""]).output().unwrap();
    // What would be sent is what waits.
    let runs = std::fs::read_dir(state.path().join("resource-tracker/spool")).unwrap().flatten();
    let sent: Vec<String> = runs.map(|run| std::fs::read_to_string(run.path().join("run.json")).unwrap()).collect();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].contains("Authorization:***") && sent[0].contains("me:***"), "{}", sent[0]);
    assert!(!sent[0].contains("SECRET"), "{}", sent[0]);
}
