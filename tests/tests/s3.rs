//! Samples as objects in a bucket, against a real S3 server that verifies signatures.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use resource_tracker_tests::sentinel::{BUCKET, Service, Trouble, gunzip, waiting};
use resource_tracker_tests::server::{Server, http};
use resource_tracker_tests::{command, samples, text, tracker, wait_until};

const ACCESS: &str = "AKTESTTESTTEST";
const SECRET: &str = "hunter2/hunter2+hunter2";
const HOUR: Duration = Duration::from_secs(3600);

/// A service with keys that last.
fn store() -> Service {
    let service = Service::start();
    service.known().add_keys(ACCESS, SECRET, "", HOUR);
    service
}

/// A tracker that has no keys yet, with its spool and its home in a folder.
fn bare(url: &str, home: &Path, arguments: &[&str]) -> Command {
    let mut command = command(tracker());
    command
        .env("AWS_ENDPOINT_URL_S3", url)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("XDG_STATE_HOME", home)
        .env("HOME", home)
        .args(["--enable", "s3", "--set", &format!("sinks.s3.url=s3://{BUCKET}/runs")])
        .args(arguments);
    command
}

/// A tracker with keys in its environment.
fn to_bucket(service: &Service, home: &Path, arguments: &[&str]) -> Command {
    let mut command = bare(&service.url, home, arguments);
    command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command
}

fn upload(service: &Service, home: &Path) -> Output {
    let mut command = command(tracker());
    command.env("XDG_STATE_HOME", home).env("HOME", home).env("AWS_ACCESS_KEY_ID", ACCESS);
    command.env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_ENDPOINT_URL_S3", &service.url).arg("upload");
    command.output().unwrap()
}

/// All rows that are in the bucket, in the order of the objects' names.
fn rows(service: &Service) -> Vec<String> {
    let objects = service.objects();
    let texts = objects.iter().map(|name| gunzip(&fs::read(service.object(&format!("s3://{BUCKET}/{name}"))).unwrap()));
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn is_clean(output: &Output) {
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn objects_are_where_engines_look_for_them() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    let recording = home.path().join("run.jsonl");
    let arguments = ["-i", "50ms", "--job-name", "train it", "-o", recording.to_str().unwrap()];
    let mut command = to_bucket(&service, home.path(), &arguments);
    is_clean(&command.args(["--set", "sinks.s3.object_rows=5", "--", "sleep", "0.6"]).output().unwrap());
    let recorded = fs::read_to_string(&recording).unwrap();
    let objects = service.objects();
    assert!(objects.len() >= 3, "{objects:?}");
    let run = samples(recorded.as_bytes())[0]["run"]["id"].as_str().unwrap().to_owned();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (part, object) in objects.iter().enumerate() {
        let rest = format!("/job=train%20it/host_name={}/run_id={run}/{part:06}.jsonl.gz", host.trim());
        let date = object.strip_prefix("runs/date=").and_then(|rest| rest.get(..10)).unwrap_or_default();
        assert_eq!(object, &format!("runs/date={date}{rest}"));
        assert_eq!((date.len(), date.matches('-').count()), (10, 2), "{object}");
    }
    assert_eq!(rows(&service).join("\n") + "\n", recorded, "each row is there once, as in a file");
    assert_eq!(waiting(home.path()), 0, "what has arrived is gone");
}

#[test]
fn a_csv_with_a_template_of_ones_own() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    let mut command = to_bucket(&service, home.path(), &["-i", "50ms", "--quiet", "--team", "a/b", "--tag", "seed=7"]);
    let sets = ["sinks.s3.format=csv", "sinks.s3.key={year}/{hour}/{team}/{tag:seed}/{stage}-{run}-{part}"];
    is_clean(&command.args(["--set", sets[0], "--set", sets[1], "--", "sleep", "0.2"]).output().unwrap());
    let objects = service.objects();
    let [object] = &objects[..] else { panic!("{objects:?}") };
    let parts: Vec<_> = object.split('/').collect();
    assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("runs", 4, 2));
    assert_eq!(parts[3..5], ["a%2Fb", "7"]);
    assert!(parts[5].starts_with("__HIVE_DEFAULT_PARTITION__-") && parts[5].ends_with("-000000.csv.gz"), "{object}");
    let rows = rows(&service);
    assert!(rows.len() > 2 && rows[0].starts_with("timestamp,") && rows[0].contains("process_pid"), "{}", rows[0]);
}

#[test]
fn what_the_store_is_to_do_is_signed() {
    let (server, home) = (Server::start(|_| http("200 OK", "", "")), tempfile::tempdir().unwrap());
    let mut command = bare(&server.url, home.path(), &["-i", "50ms", "--quiet"]);
    command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_SESSION_TOKEN", "to/ken=");
    command.env("AWS_REGION", "eu-west-3");
    for set in ["sse=aws:kms", "sse_kms_key_id=arn:aws:kms:x:1:key/2", "storage_class=STANDARD_IA"] {
        command.args(["--set", &format!("sinks.s3.{set}")]);
    }
    is_clean(&command.args(["--", "sleep", "0.1"]).output().unwrap());
    let requests = server.requests();
    let [put] = &requests[..] else { panic!("the region is known: {requests:?}") };
    assert!(put.starts_with(&format!("PUT /{BUCKET}/runs/date%3D")), "{put}");
    for header in [
        "x-amz-server-side-encryption: aws:kms\r\n",
        "x-amz-server-side-encryption-aws-kms-key-id: arn:aws:kms:x:1:key/2\r\n",
        "x-amz-storage-class: STANDARD_IA\r\n",
        "content-type: application/gzip\r\n",
    ] {
        assert!(put.contains(header), "{put}");
    }
    for signed in [
        "SignedHeaders=host%3Bx-amz-server-side-encryption%3Bx-amz-server-side-encryption-aws-kms-key-id%3Bx-amz-storage-class",
        "%2Feu-west-3%2Fs3%2Faws4_request",
        "X-Amz-Security-Token=to%2Fken%3D",
    ] {
        assert!(put.contains(signed), "{signed}: {put}");
    }
}

#[test]
fn a_store_that_is_away_gets_each_row_once_later() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    service.trouble(&[("PUT", Trouble::Status(503, None))]);
    let recording = home.path().join("run.jsonl");
    let arguments = ["-i", "50ms", "-o", recording.to_str().unwrap(), "--set", "sinks.s3.object_rows=4"];
    let mut command = to_bucket(&service, home.path(), &arguments);
    let output = command.args(["--set", "sinks.s3.finish_timeout_secs=2", "--", "sleep", "0.5"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("s3: not everything has arrived"), "{said}");
    assert!(said.contains("for `resource-tracker upload`") && !said.contains(SECRET), "{said}");
    let kept = fs::read_dir(home.path().join("resource-tracker/spool")).unwrap().flatten().next().unwrap().path();
    let saved = fs::read_to_string(kept.join("run.json")).unwrap();
    assert!(saved.contains(BUCKET) && !saved.contains(SECRET) && !saved.contains(ACCESS), "{saved}");

    let listed = text(&command_dry(home.path()).stdout);
    assert!(listed.contains(&format!("a run for s3://{BUCKET}/runs/")) && listed.contains("objects"), "{listed}");
    // The answer to one object gets lost: it is put again.
    service.trouble(&[("000001", Trouble::CutHalfway)]);
    upload(&service, home.path());
    service.trouble(&[]);
    let output = upload(&service, home.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(rows(&service).join("\n") + "\n", fs::read_to_string(&recording).unwrap());
    assert_eq!(waiting(home.path()), 0);
}

/// A batch that others can read is not read, and the run stays until it is mended.
#[test]
fn a_batch_that_cannot_be_looked_at_keeps_its_run() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    service.trouble(&[("PUT", Trouble::Status(503, None))]);
    let arguments = ["-q", "-i", "50ms", "--set", "sinks.s3.object_rows=2", "--set", "sinks.s3.finish_timeout_secs=1"];
    to_bucket(&service, home.path(), &[&arguments[..], &["--", "sleep", "0.5"]].concat()).output().unwrap();
    service.trouble(&[]);
    let run = fs::read_dir(home.path().join("resource-tracker/spool")).unwrap().flatten().next().unwrap().path();
    let batch = run.join("000001.jsonl.gz");
    let mode = |mode| fs::set_permissions(&batch, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let output = upload(&service, home.path());
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("1 of its files could not be read, and stay"), "{said}");
    mode(0o600);
    assert!(upload(&service, home.path()).status.success());
    let objects = service.objects();
    assert!(objects.iter().any(|object| object.ends_with("/000001.jsonl.gz")), "{objects:?}");
    assert_eq!(waiting(home.path()), 0);
}

/// Keys are for the store that the environment names.
#[test]
fn keys_go_to_no_other_store() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    service.trouble(&[("PUT", Trouble::Status(503, None))]);
    let arguments = ["-q", "-i", "50ms", "--set", "sinks.s3.finish_timeout_secs=1", "--", "sleep", "0.2"];
    to_bucket(&service, home.path(), &arguments).output().unwrap();
    service.trouble(&[]);
    let asked = service.known().requests.len();
    for endpoint in [None, Some("http://127.0.0.1:9")] {
        let mut command = command(tracker());
        command.env("XDG_STATE_HOME", home.path()).env("HOME", home.path()).arg("upload");
        command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET);
        let output = command.envs(endpoint.map(|endpoint| ("AWS_ENDPOINT_URL_S3", endpoint))).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("it belongs to s3://"), "{said}");
    }
    assert_eq!(service.known().requests.len(), asked, "nobody was asked");
    assert!(upload(&service, home.path()).status.success());
}

fn command_dry(home: &Path) -> Output {
    command(tracker()).env("XDG_STATE_HOME", home).env("HOME", home).args(["upload", "--dry-run"]).output().unwrap()
}

#[test]
fn a_tracker_that_was_killed_leaves_its_rows_to_the_next_run() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    let mut all = Vec::new();
    for number in 0..20 {
        let recording = home.path().join(format!("{number}.jsonl"));
        let arguments = ["-i", "20ms", "-o", recording.to_str().unwrap(), "--set", "sinks.s3.object_rows=3"];
        let mut tracker = to_bucket(&service, home.path(), &arguments).args(["--", "sleep", "0.5"]).spawn().unwrap();
        wait_until("rows", || fs::read_to_string(&recording).is_ok_and(|text| text.lines().count() > 4 + number % 5));
        tracker.kill().unwrap();
        tracker.wait().unwrap();
        let recorded = fs::read_to_string(&recording).unwrap();
        all.extend(recorded.split_inclusive('\n').filter(|row| row.ends_with('\n')).map(str::to_owned));
    }
    let output = upload(&service, home.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stamp = |row: &str| {
        let sample: serde_json::Value = serde_json::from_str(row).unwrap();
        (sample["timestamp_ms"].as_u64().unwrap(), sample["elapsed_secs"].to_string())
    };
    let mut arrived: Vec<_> = rows(&service).iter().map(|row| stamp(row)).collect();
    let count = arrived.len();
    arrived.sort();
    arrived.dedup();
    assert_eq!(count, arrived.len(), "no row is there twice");
    // The sample that was on its way to both when the tracker was killed can be in one of them alone.
    let missing = all.iter().filter(|row| !arrived.contains(&stamp(row))).count();
    assert!(missing <= 20, "{missing} of {} are missing", all.len());
    assert!(count >= all.len() - 20, "{count} of {}", all.len());
    assert_eq!(waiting(home.path()), 0);
}

/// Variables, and their values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Where keys are found, in which variables of the environment it is said, and what is said of it.
#[test]
fn keys_are_found_where_amazons_tools_find_them() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    service.known().add_keys("AKTEMPORARY", SECRET, "to/ken==", HOUR);
    let json = format!(
        r#"{{"AccessKeyId":"AKTEMPORARY","SecretAccessKey":"{SECRET}","Token":"to/ken==","Expiration":"2099-01-01T00:00:00Z"}}"#
    );
    let xml = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKTEMPORARY</AccessKeyId>\
         <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>to/ken==</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    let server = Server::start(move |head| {
        let head = head.to_lowercase();
        let has = |line: &str| head.contains(line);
        match head.split(' ').nth(1).unwrap() {
            "/keys" if has("authorization: bearer 7\r\n") => http("200 OK", "", &json),
            "/latest/api/token" if head.starts_with("put ") && has("token-ttl-seconds: ") => http("200 OK", "", "t0k"),
            "/latest/meta-data/iam/security-credentials/" if has("metadata-token: t0k") => {
                http("200 OK", "", "my-role")
            }
            "/latest/meta-data/iam/security-credentials/my-role" if has("metadata-token: t0k") => {
                http("200 OK", "", &json)
            }
            "/" if head.starts_with("post ") => http("200 OK", "", &xml),
            _ => http("404 Not Found", "", ""),
        }
    });
    fs::create_dir(home.path().join(".aws")).unwrap();
    let token = home.path().join("token");
    fs::write(&token, "Bearer 7\n").unwrap();
    let profile = format!(
        "[lab]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n[bad]\naws_access_key_id = x\n"
    );
    fs::write(home.path().join(".aws/credentials"), profile).unwrap();
    fs::write(home.path().join(".aws/config"), "[profile sso]\nsso_session = s\n").unwrap();
    let token = token.to_str().unwrap();
    let keys = format!("{}/keys", server.url);
    let found: [(Variables, &[&str]); 6] = [
        (&[("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", SECRET)], &[]),
        (&[("AWS_PROFILE", "lab")], &[]),
        (&[("AWS_ACCESS_KEY_ID", "wrong"), ("AWS_SECRET_ACCESS_KEY", "wrong")], &["--set", "sinks.s3.profile=lab"]),
        (
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", token),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
                ("AWS_ENDPOINT_URL_STS", &server.url),
            ],
            &[],
        ),
        (&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &keys), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)], &[]),
        (&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server.url), ("AWS_EC2_METADATA_DISABLED", "false")], &[]),
    ];
    for (number, (environment, arguments)) in found.into_iter().enumerate() {
        let mut command = bare(&service.url, home.path(), &["-i", "50ms", "--quiet"]);
        command.envs(environment.iter().copied()).args(arguments);
        is_clean(&command.args(["--", "sleep", "0.1"]).output().unwrap());
        assert_eq!(service.objects().len(), number + 1, "{environment:?}");
    }
    let posted = server.bodies().into_iter().find(|body| body.starts_with(b"Action=AssumeRole")).unwrap();
    assert!(
        text(&posted).contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&WebIdentityToken=Bearer+7&"),
        "{posted:?}"
    );

    let missing: [(Variables, &str); 5] = [
        (&[], "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        (&[("AWS_ACCESS_KEY_ID", "x")], "AWS_ACCESS_KEY_ID is set, but not AWS_SECRET_ACCESS_KEY"),
        (&[("AWS_PROFILE", "nobody")], "no profile \"nobody\""),
        (&[("AWS_PROFILE", "bad")], "profile \"bad\" has no aws_secret_access_key"),
        (&[("AWS_PROFILE", "sso")], "profile \"sso\" has sso_session"),
    ];
    for (environment, why) in missing {
        let state = tempfile::tempdir().unwrap();
        let mut command = bare(&service.url, home.path(), &["-i", "50ms", "--quiet"]);
        command.env("XDG_STATE_HOME", state.path()).envs(environment.iter().copied());
        let output = command.args(["--", "sh", "-c", "exit 3"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(why) && said.contains("rows are kept for"), "{why}: {said}");
        assert_eq!((output.status.code(), waiting(state.path())), (Some(3), 1), "{said}");
    }
}

#[test]
fn keys_that_end_are_asked_for_again() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    service.known().add_keys("AK0", SECRET, "t", Duration::ZERO);
    service.known().add_keys("AK1", SECRET, "t", HOUR);
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = Server::start(move |_| {
        let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed).min(1);
        http("200 OK", "", &format!(r#"{{"AccessKeyId":"AK{number}","SecretAccessKey":"{SECRET}","Token":"t"}}"#))
    });
    let mut command = bare(&service.url, home.path(), &["-i", "50ms", "--quiet"]);
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &server.url);
    is_clean(&command.args(["--", "sleep", "0.2"]).output().unwrap());
    assert_eq!((server.requests().len(), service.objects().len()), (2, 1));
}

#[test]
fn keys_that_are_cut_keep_the_rows() {
    let (service, home) = (store(), tempfile::tempdir().unwrap());
    let mut command = to_bucket(&service, home.path(), &["-i", "50ms", "--quiet", "--", "sleep", "0.2"]);
    let output = command.env("AWS_SECRET_ACCESS_KEY", &SECRET[..SECRET.len() - 1]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("the answer is 403 SignatureDoesNotMatch"), "{said}");
    assert!(said.contains("rows are kept for `resource-tracker upload`") && !said.contains("hunter2"), "{said}");
    assert!(upload(&service, home.path()).status.success());
    assert_eq!((service.objects().len(), waiting(home.path())), (1, 0));
}

#[test]
fn what_cannot_be_meant_is_told_before_the_job_starts() {
    let home = tempfile::tempdir().unwrap();
    for (set, why) in [
        ("url=https://b/x", "must be s3://BUCKET/FOLDER"),
        ("url=s3://b/../x", "must be s3://BUCKET/FOLDER"),
        ("url=", "needs a url"),
        ("key={run}", "{run} and {part}"),
        ("key={run}/{part}/{rnu}", "{rnu} is none of {date}"),
        ("sse=rot13", "must be one of AES256, aws:kms"),
        ("sse_kms_key_id=x", "set sse to aws:kms"),
        ("columns=job", "JSON has none"),
        ("endpoint=http://store.example", "spoken to unencrypted"),
        ("endpoint=nowhere", "is no URL"),
        ("region=eu/../x", "region"),
    ] {
        let mut command = bare("http://127.0.0.1:1", home.path(), &["--set", &format!("sinks.s3.{set}")]);
        let output = command.args(["--", "touch", "begun"]).current_dir(home.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{set}: {said}");
    }
    assert!(!home.path().join("begun").exists());
}
