//! Recordings of a fleet that never was: many runs of many jobs, as sink `s3` lays them out, for engines to be tried on.
//!
//! `benchmarks fleet FOLDER [RUNS [ROWS]]`: 10,000 runs with 1,000 rows each on average, unless said otherwise. Each call writes the
//! same. The names of fields are those of real samples, less those that no recipe asks for. Version 1.3 of the jobs of team
//! `vision` takes a third more memory than those before it, and teams ask for very different shares of what they use, so that there is
//! something to find.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Context;
use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

const TEAMS: [(&str, f64); 8] = [
    ("vision", 1.3),
    ("speech", 2.0),
    ("genomics", 1.1),
    ("climate", 4.0),
    ("risk", 8.0),
    ("ads", 1.5),
    ("robotics", 2.5),
    ("search", 3.0),
];
const JOBS: u64 = 240;
const HOSTS: u64 = 120;
const DAYS: u64 = 90;
/// 2026-09-01, in seconds of Unix time.
const FIRST_DAY: u64 = 1_788_220_800;
const DAY: u64 = 86_400;
const INTERVAL: u64 = 60;

pub(crate) fn run<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let folder = Path::new(words.next().context("benchmarks fleet FOLDER [RUNS [ROWS]]")?);
    let mut number = |default| words.next().map_or(Ok(default), str::parse::<u64>);
    let (runs, rows) = (number(10_000)?, number(1_000)?);
    let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return Ok(());
            }
            written.fetch_add(write(folder, number, rows)?, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
    })?;
    println!("{runs} runs, {} rows in {}", written.into_inner(), folder.display());
    Ok(())
}

/// Writes the objects of a run, one for each day. Returns how many rows they have.
fn write(folder: &Path, number: u64, mean: u64) -> anyhow::Result<u64> {
    let mut random = Rng::with_seed(number);
    let job = random.u64(..JOBS);
    let (team, asks_for) = TEAMS[(job % TEAMS.len() as u64) as usize];
    let job_name = format!("{team}-{job:03}");
    let version = ["1.1", "1.2", "1.3"][random.usize(..3)];
    let began = FIRST_DAY + random.u64(..DAYS * DAY);
    // Most runs are short, and some are long.
    let rows = ((-random.f64().max(1e-6).ln()) * mean as f64).ceil().max(2.0) as u64;
    let id = format!("{:08x}-0000-7000-8000-{number:012x}", began);
    let needs_cores = f64::from(1 << (job % 6));
    let grown = if team == "vision" && version == "1.3" { 4.0 / 3.0 } else { 1.0 };
    let needs_mib = (500.0 + (job * 37 % 64) as f64 * 400.0) * grown * (0.95 + random.f64() / 10.0);
    let (limit_cores, limit_mib) = ((needs_cores * asks_for).ceil(), (needs_mib * asks_for / 1024.0).ceil() * 1024.0);
    let host = format!("node{:03}", random.u64(..HOSTS));
    let (mut peak, mut day, mut object): (f64, _, Option<GzEncoder<fs::File>>) = (0.0, u64::MAX, None);
    for row in 0..rows {
        let time = began + row * INTERVAL;
        if time / DAY != day {
            if let Some(full) = object.take() {
                full.finish()?;
            }
            let part = if day == u64::MAX { 0 } else { 1 + (time / DAY - began / DAY) };
            day = time / DAY;
            let name = folder.join(format!("date={}/job={job_name}/host_name={host}/run_id={id}", date(day)));
            fs::create_dir_all(&name)?;
            let file = fs::File::create(name.join(format!("{part:06}.jsonl.gz")))?;
            object = Some(GzEncoder::new(file, Compression::fast()));
        }
        let warm = ((row + 1) as f64 / (rows as f64 / 4.0)).min(1.0);
        let rss = needs_mib * warm * (0.9 + random.f64() / 10.0);
        peak = peak.max(rss);
        let cores = needs_cores * (0.6 + 0.4 * random.f64());
        let mut sample = json!({
            "timestamp_secs": time, "timestamp_ms": time * 1000, "elapsed_secs": INTERVAL, "job_name": job_name,
            "cpu": {
                "process_cores_used": cores, "process_utime_secs": cores * INTERVAL as f64, "process_rss_mib": rss.round(),
                "process_peak_memory_mib": peak.round(), "process_cpu_limit_cores": limit_cores,
                "process_memory_limit_mib": limit_mib,
            },
            "memory": { "used_mib": (rss * 1.2).round(), "total_mib": 262_144 },
        });
        if row == 0 {
            sample["run"] = json!({
                "id": id, "labels": { "job_name": job_name, "team": team, "project_name": format!("p{}", job % 20) },
                "tags": { "version": version, "cost_centre": format!("c{}", job % 5) }, "interval_secs": INTERVAL,
            });
            sample["host"] = json!({ "host_name": host, "host_vcpus": 64, "host_memory_mib": 262_144 });
        }
        if row + 1 == rows {
            let failed = random.u8(..20) == 0;
            sample["outcome"] = json!({ "exit_code": u8::from(failed), "wall_secs": rows * INTERVAL, "samples": rows });
        }
        if let Some(object) = &mut object {
            serde_json::to_writer(&mut *object, &sample)?;
            object.write_all(b"\n")?;
        }
    }
    if let Some(last) = object {
        last.finish()?;
    }
    Ok(rows)
}

/// `YYYY-MM-DD` of a day since 1970.
fn date(day: u64) -> String {
    let time = jiff::Timestamp::from_second((day * DAY) as i64).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}
