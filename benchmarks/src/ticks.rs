//! A hundred samples a second, on a machine that is busy and on one that is not.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use crate::launch::{Running, part, tracker};
use crate::{cputime, jobs, table};

const BUSY: Duration = Duration::from_secs(60);
const IDLE_SECS: u32 = 30;
const INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("samples.jsonl");
    let mut command = Command::new(tracker());
    command.args(["-i", "10ms", "-o"]).arg(&output).stderr(Stdio::null());
    let running = Running::start(&mut command)?;
    std::thread::sleep(Duration::from_secs(1));
    let mut idle = Vec::new();
    for _ in 0..IDLE_SECS {
        let before = sampler(running.pid())?;
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        idle.push((sampler(running.pid())? - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0);
    }
    idle.sort_by(f64::total_cmp);
    drop(running);
    let bare = bare_loop()?;

    fs::remove_file(&output)?;
    let load = Running::start(&mut part(&["job", jobs::LOAD])?)?;
    let running = Running::start(&mut command)?;
    let start = Instant::now();
    std::thread::sleep(BUSY);
    let due = start.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    drop((running, load));
    let text = fs::read_to_string(&output)?;
    let gap = |line: &str| serde_json::from_str::<Value>(line)?["elapsed_secs"].as_f64().context("no time");
    let gaps = text.lines().map(gap).collect::<anyhow::Result<Vec<f64>>>()?;
    let (taken, shortest) = (gaps.len() as f64, gaps.iter().copied().fold(f64::MAX, f64::min));
    table::head("A hundred samples a second", ["what", "is"]);
    table::row(["ticks taken in 60 s, with all cores busy".into(), format!("{:.1} %", (taken / due).min(1.0) * 100.0)]);
    table::row(["the shortest interval".into(), format!("{:.1} ms", shortest * 1e3)]);
    table::row([
        "the sampling thread, with the machine idle".into(),
        format!("{:.2} % of a core ({:.2} to {:.2})", idle[idle.len() / 2], idle[0], idle[idle.len() - 1]),
    ]);
    table::row(["a bare loop, likewise".into(), format!("{bare:.2} % of a core")]);
    table::note(
        "The load is a thread that spins on each core. Idle: the median, least and most of 30 seconds. The bare loop sleeps \
         and reads `stat`, `meminfo`, `net/dev` and `diskstats` as often, in the 30 seconds that follow.",
    );
    Ok(())
}

/// What sleeping, waking and four reads take at this interval, in percent of a core.
fn bare_loop() -> anyhow::Result<f64> {
    let open = |name: &str| fs::File::open(format!("/proc/{name}"));
    let files = [open("stat")?, open("meminfo")?, open("net/dev")?, open("diskstats")?];
    let mut buffer = vec![0; 1 << 16];
    let used = || cputime::of_thread("/proc/thread-self".as_ref());
    let (before, start) = (used()?, Instant::now());
    while start.elapsed() < Duration::from_secs(IDLE_SECS.into()) {
        std::thread::sleep(INTERVAL);
        for file in &files {
            file.read_at(&mut buffer, 0)?;
        }
    }
    Ok((used()? - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}

/// CPU time of the thread that reads the sources.
fn sampler(pid: u32) -> anyhow::Result<Duration> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "sampler" {
            return cputime::of_thread(&task);
        }
    }
    anyhow::bail!("process {pid} has no sampling thread")
}
