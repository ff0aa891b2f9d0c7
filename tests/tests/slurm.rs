//! Jobs of ranks on two nodes of a real Slurm, each rank under a tracker.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use resource_tracker_tests::slurm::Cluster;
use resource_tracker_tests::{number, samples, text, tracker, wait_for};
use serde_json::Value as Json;

const RANKS: u32 = 8;

/// What a rank runs under its tracker.
fn script(command: &str) -> String {
    let tracker = tracker().display();
    format!("exec {tracker} -q -i 100ms --set tracker.per_node=once -o \"$SLURM_PROCID.jsonl\" -- sh -c '{command}'")
}

fn recorded(cluster: &Cluster, rank: u32) -> Vec<Json> {
    samples(&fs::read(cluster.recording(rank)).unwrap())
}

fn step(script: &str) -> [&str; 6] {
    ["-N2", "-n8", "--ntasks-per-node=4", "sh", "-c", script]
}

#[test]
fn ranks_on_two_nodes_in_each_way_to_end() {
    let Some(cluster) = Cluster::start("a job on two nodes") else { return };

    // One rank fails.
    let burn = script(
        "i=0; while [ $i -lt $((20000 * (SLURM_PROCID + 1))) ]; do i=$((i+1)); done; exit $((SLURM_PROCID == 3 ? 7 : 0))",
    );
    let output = cluster.command("srun").args(step(&burn)).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let mut nodes = Vec::new();
    for rank in 0..RANKS {
        let samples = recorded(&cluster, rank);
        let group = &samples[0]["run"]["group"];
        assert_eq!(
            (&group["rank"], &group["size"], &group["nodes"]),
            (&rank.into(), &RANKS.into(), &2.into()),
            "{group}"
        );
        let is_first = group["local_rank"] == 0;
        assert_eq!(samples[0].get("memory").is_some(), is_first, "one rank of a node reads the machine");
        nodes.push((group["id"].clone(), group["node"].clone(), group["local_rank"].clone()));
        let outcome = &samples.last().unwrap()["outcome"];
        assert_eq!(outcome["exit_code"], if rank == 3 { 7 } else { 0 }, "{outcome}");
        let burnt: f64 = samples.iter().map(|sample| number(sample, "/cpu/process_utime_secs")).sum();
        assert!(burnt > 0.0, "rank {rank}");
    }
    assert!(
        nodes.iter().all(|(id, ..)| *id == nodes[0].0 && id.as_str().is_some_and(|id| id.ends_with(".0"))),
        "{nodes:?}"
    );
    for node in ["n1", "n2"] {
        let mut local: Vec<_> =
            nodes.iter().filter(|part| part.1 == node).map(|part| part.2.as_u64().unwrap()).collect();
        local.sort_unstable();
        assert_eq!(local, [0, 1, 2, 3], "{node}");
    }

    // It is cancelled.
    let clear = || (0..RANKS).for_each(|rank| drop(fs::remove_file(cluster.recording(rank))));
    clear();
    let sleep = script("sleep 60");
    let mut srun = cluster.command("srun");
    let mut job = srun.args(["--job-name=cut"]).args(step(&sleep)).stderr(Stdio::null()).spawn().unwrap();
    let have_begun = || (0..RANKS).all(|rank| fs::metadata(cluster.recording(rank)).is_ok_and(|file| file.len() > 0));
    wait_for(Duration::from_secs(30), "a sample of each rank", have_begun);
    assert!(cluster.command("scancel").args(["--name=cut"]).status().unwrap().success());
    let status = job.wait().unwrap();
    assert!(!status.success(), "{status:?}");
    // `srun` does not wait for the last of them.
    let has_ended = |rank: u32| recorded(&cluster, rank).last().unwrap()["outcome"]["signal"] == 15;
    wait_for(Duration::from_secs(10), "the end of each rank, by SIGTERM", || (0..RANKS).all(has_ended));

    // A rank takes more memory than it asked for: Slurm kills the step. Every line that was written is whole.
    clear();
    let eat = script("[ $SLURM_PROCID = 0 ] && exec head -c 900M /dev/zero | tail; sleep 20");
    let output = cluster.command("srun").args(["--mem-per-cpu=100M"]).args(step(&eat)).output().unwrap();
    assert!(!output.status.success() && output.status.signal().is_none(), "{:?}", output.status);
    for rank in 0..RANKS {
        assert!(!recorded(&cluster, rank).is_empty());
    }

    // The script of a batch job is no rank, whatever variables it has.
    let batch = format!(
        "#!/bin/sh\n#SBATCH -N2 -n8 --ntasks-per-node=4 --output=batch.log\n{} -q -o batch.jsonl -- true\n",
        tracker().display()
    );
    fs::write(cluster.path().join("batch.sh"), batch).unwrap();
    let output = cluster.command("sbatch").args(["--wait", "batch.sh"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = &samples(&fs::read(cluster.path().join("batch.jsonl")).unwrap())[0]["run"];
    assert!(run["group"].is_null() && run["tags"].get("mpi_rank").is_none(), "{run}");
    assert_eq!(run["labels"]["executor"], "slurm");
}
