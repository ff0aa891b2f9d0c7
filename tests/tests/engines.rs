//! Engines that read what sink `s3` wrote, where they are installed: their sums are those of the runs' own files.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use resource_tracker_tests::sentinel::{BUCKET, Service};
use resource_tracker_tests::{command, number, samples, text, tracker};
use serde_json::Value as Json;

const ACCESS: &str = "AKTESTTESTTEST";
const SECRET: &str = "hunter2hunter2hunter2";

#[test]
fn engines_give_the_sums_of_the_runs_own_files() {
    let Some(python) = std::env::var_os("RESOURCE_TRACKER_PYTHON") else {
        return println!("skipped: RESOURCE_TRACKER_PYTHON names no Python with duckdb, chdb and pyspark");
    };
    let service = Service::start();
    service.known().add_keys(ACCESS, SECRET, "", Duration::from_secs(3600));
    let home = tempfile::tempdir().unwrap();
    // By job: runs, rows, CPU seconds in user mode, the highest memory in use.
    let mut expected = BTreeMap::<&str, (u64, u64, f64, f64)>::new();
    for (number_of, job) in ["night-shift", "night-shift", "train"].into_iter().enumerate() {
        let recording = home.path().join(format!("{number_of}.jsonl"));
        let output = command(tracker())
            .env("AWS_ENDPOINT_URL_S3", &service.url)
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("XDG_STATE_HOME", home.path())
            .args(["-i", "50ms", "--job-name", job, "--enable", "s3", "--set", "sinks.s3.object_rows=7"])
            .args(["--set", &format!("sinks.s3.url=s3://{BUCKET}/runs"), "-o"])
            .arg(&recording)
            .args(["--", "sleep", "1"])
            .output()
            .unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let (runs, rows, utime, used) = expected.entry(job).or_default();
        let samples = samples(&fs::read(&recording).unwrap());
        *runs += 1;
        *rows += samples.len() as u64;
        *utime += samples.iter().map(|sample| number(sample, "/cpu/utime_secs")).sum::<f64>();
        *used = samples.iter().map(|sample| number(sample, "/memory/used_mib")).fold(*used, f64::max);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sums.py");
    let folder = service.object(&format!("s3://{BUCKET}"));
    for engine in ["duckdb", "clickhouse", "spark"] {
        let mut command = Command::new(&python);
        command.arg(script).args([engine, &service.url, BUCKET]).arg(&folder);
        let output = command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET).output().unwrap();
        if output.status.code() == Some(77) {
            println!("skipped {engine}: {}", text(&output.stderr));
            continue;
        }
        assert!(output.status.success(), "{engine}: {}", text(&output.stderr));
        let said: Vec<Json> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said.len(), expected.len(), "{engine}: {said:?}");
        for (row, (job, (runs, rows, utime, used))) in said.iter().zip(&expected) {
            let of = |key: &str| row[key].as_f64().or_else(|| row[key].as_str()?.parse().ok()).unwrap();
            assert_eq!(row["job"], *job, "{engine}: {row}");
            assert_eq!((of("runs"), of("rows")), (*runs as f64, *rows as f64), "{engine}: {row}");
            assert!((of("utime_secs") - utime).abs() <= 1e-9 * utime && of("used_mib") == *used, "{engine}: {row}");
        }
    }
}
