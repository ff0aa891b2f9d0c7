//! What the job may use at most.

use std::path::Path;
use std::process::Command;

use resource_tracker_tests::{Recording, command, has, is_root, number, tracker};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// The last sample of a run.
fn last(options: &[&str], job: &[&str]) -> Json {
    let recording = Recording::new();
    let mut tracker = command(tracker());
    recording.run(tracker.args(options).arg("-o").arg(recording.path()).arg("--").args(job));
    recording.samples().pop().unwrap()
}

fn cpus(sample: &Json) -> (&str, f64) {
    (sample["cpu"]["process_cpus_allowed"].as_str().unwrap(), number(sample, "/cpu/process_cpu_limit_cores"))
}

/// How many CPUs a program gets here, and whether there are some to choose from.
fn own_cpus(test: &str) -> Option<f64> {
    let count = std::thread::available_parallelism().unwrap().get();
    if count < 2 {
        println!("skipped: {test} needs two CPUs");
    }
    (has("taskset", test) && count >= 2).then_some(count as f64)
}

fn first_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split(['-', ',']).next().unwrap().to_owned()
}

#[test]
fn four_spinners_on_one_cpu_have_one_core() {
    let Some(_) = own_cpus("a job on one CPU") else { return };
    let (cpu, recording) = (first_cpu(), Recording::new());
    // It goes on until it was looked at behind `taskset`.
    let script = format!("{JOB} burn 4 200; {}", recording.until(1, &format!("\"process_cpus_allowed\":\"{cpu}\"")));
    let mut tracker = command(tracker());
    tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "taskset", "-c", &cpu, "sh", "-c", &script]);
    recording.run(&mut tracker);
    let sample = recording.samples().pop().unwrap();
    assert_eq!(cpus(&sample), (cpu.as_str(), 1.0));
    assert!(number(&sample, "/cpu/process_memory_limit_mib") <= number(&sample, "/memory/total_mib"));
}

/// A shell that may use all CPUs, with a child that may use one; and a program with only its first thread bound to one.
#[test]
fn one_that_is_bound_does_not_bind_the_others() {
    let Some(count) = own_cpus("a part of a job on one CPU") else { return };
    let cpu = first_cpu();
    let script = format!("taskset -c {cpu} {JOB} burn 1 400; true");
    assert_eq!(cpus(&last(&["-i", "0.1", "--no-cgroup"], &["sh", "-c", &script])).1, count);
    let recording = Recording::new();
    let path = recording.path();
    let mut tracker = command(tracker());
    tracker.args(["-i", "0.1", "--no-cgroup", "-o"]).arg(&path).args(["--", JOB, "bind-first-thread", &cpu]).arg(&path);
    recording.run(&mut tracker);
    assert_eq!(cpus(&recording.samples().pop().unwrap()).1, count);
}

/// Where each cgroup counts its own: the kernel sums them up in v2.
#[test]
fn a_job_that_is_killed_in_a_cgroup_of_its_own_making() {
    let test = "a cgroup of v1 within the job's";
    if !is_root(test) || !Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists() {
        println!("skipped: {test}");
        return;
    }
    let recording = Recording::new();
    let script = format!(
        "inner=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/self/cgroup)/inner
         mkdir $inner && echo 16M >$inner/memory.limit_in_bytes
         sh -c 'echo 0 >$0/tasks; exec {JOB} touch 100 10' $inner
         {}; rmdir $inner",
        recording.until(1, "\"oom_kills\":1")
    );
    let mut run: Command = command(tracker());
    recording.run(run.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]));
    let kills: f64 = recording.samples().iter().map(|sample| number(sample, "/cgroup/oom_kills")).sum();
    assert_eq!(kills, 1.0, "also when the cgroup is gone");
}

/// The job moves to a cgroup that the test made for it, and back.
#[test]
fn a_job_that_goes_to_another_cgroup_has_its_limit() {
    let test = "a cgroup of v1 that the job goes to";
    if !is_root(test) || !Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists() {
        println!("skipped: {test}");
        return;
    }
    let recording = Recording::new();
    let script = format!(
        "here=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/self/cgroup)
         mkdir $here/other && echo 100M >$here/other/memory.limit_in_bytes
         {}; echo 0 >$here/other/tasks
         {}; echo 0 >$here/tasks; rmdir $here/other",
        recording.until(2, ""),
        recording.until(1, "\"process_memory_limit_mib\":100.0"),
    );
    let mut run: Command = command(tracker());
    recording.run(run.args(["-i", "0.1", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]));
    let limits: Vec<f64> =
        recording.samples().iter().map(|sample| number(sample, "/cpu/process_memory_limit_mib")).collect();
    assert!(limits[0] != 100.0 && limits.contains(&100.0), "{limits:?}");
}
