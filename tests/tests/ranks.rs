//! Jobs of several processes, each under a tracker of its own.

use std::fs;

use resource_tracker_tests::{command, job, number, samples, text, tracker};
use serde_json::{Value as Json, json};

/// The samples of a rank that Slurm is said to have started.
fn rank(rank: u32, local_rank: u32, arguments: &[&str]) -> Vec<Json> {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.jsonl");
    let (rank, local_rank) = (rank.to_string(), local_rank.to_string());
    let step = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", &rank),
        ("SLURM_LOCALID", &local_rank),
        ("SLURM_STEP_NUM_TASKS", "8"),
        ("SLURM_NODEID", "1"),
        ("SLURMD_NODENAME", "n2"),
    ];
    let mut command = command(tracker());
    command.envs(step).args(["-q", "-i", "50ms", "-o"]).arg(&recording).args(arguments);
    let output = command.arg("--").arg(job()).args(["burn", "1", "300"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    samples(&fs::read(recording).unwrap())
}

#[test]
fn a_rank_says_which_part_of_the_job_it_is() {
    let first = &rank(5, 1, &[])[0];
    let expected = json!({
        "id": "7.0", "rank": 5, "size": 8, "local_rank": 1, "local_size": null, "node": "n2", "node_rank": 1, "nodes": null,
        "launcher": "slurm",
    });
    assert_eq!(first["run"]["group"], expected);
    let clock = &first["run"]["clock"];
    assert!(clock.is_null() || clock["max_error_secs"].as_f64() >= Some(0.0), "{clock}");
    assert!(first["memory"]["total_mib"].is_u64(), "each rank reads the machine unless it is told otherwise");
    let alone = command(tracker()).args(["-i", "50ms", "--", "true"]).output().unwrap();
    assert!(samples(&alone.stderr)[0]["run"]["group"].is_null());
}

#[test]
fn one_rank_of_a_node_reads_the_machine_and_all_read_their_own_processes() {
    let once = ["--set", "tracker.per_node=once"];
    let (first, second) = (rank(4, 0, &once), rank(5, 1, &once));
    for section in ["memory", "network", "disk"] {
        assert!(first[0].get(section).is_some() && second[0].get(section).is_none(), "{section}");
    }
    assert!(first[0]["cpu"]["utilization_pct"].is_number() && second[0]["cpu"]["utilization_pct"].is_null());
    for samples in [&first, &second] {
        let burnt: f64 = samples.iter().map(|sample| number(sample, "/cpu/process_utime_secs")).sum();
        assert!(burnt > 0.1, "{burnt}");
    }
    let asked = rank(5, 1, &[&once[..], &["--enable", "memory"]].concat());
    assert!(asked[0].get("memory").is_some() && asked[0].get("network").is_none(), "who asks for a source gets it");
}
