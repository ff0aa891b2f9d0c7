//! What the tracker takes on disk and in memory, and a clock for what it takes of the time to start a command.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::launch::{Running, tracker};
use crate::table;

pub(crate) fn print() -> anyhow::Result<()> {
    table::head("Size", ["what", "is"]);
    table::row(["binary".into(), format!("{:.2} MB", fs::metadata(tracker())?.len() as f64 / 1e6)]);
    let (minute, later) = over_time()?;
    table::row(["resident memory after a minute".into(), format!("{minute} KiB")]);
    table::row(["resident memory after 100,000 samples".into(), format!("{later} KiB")]);
    table::note("Memory is `VmRSS` of a tracker of the whole machine, at 1 ms.");
    Ok(())
}

/// After a minute, and after 100,000 ticks of a millisecond.
fn over_time() -> anyhow::Result<(u64, u64)> {
    let mut command = Command::new(tracker());
    let tracker = Running::start(command.args(["-i", "0.001", "-o", "/dev/null"]).stderr(Stdio::null()))?;
    std::thread::sleep(Duration::from_secs(60));
    let minute = resident(&tracker)?;
    std::thread::sleep(Duration::from_secs(41));
    Ok((minute, resident(&tracker)?))
}

/// `VmRSS`, in KiB.
pub(crate) fn resident(tracker: &Running) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", tracker.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Milliseconds until the command looks at the clock, and until it has ended.
pub(crate) fn time(command: &Command) -> anyhow::Result<(f64, f64)> {
    let mut again = Command::new(command.get_program());
    again
        .args(command.get_args())
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let (start, began) = (Instant::now(), now());
    let output = again.output()?;
    let all = start.elapsed();
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    let begins = String::from_utf8(output.stdout)?.trim().parse::<u64>()?.saturating_sub(began);
    Ok((begins as f64 / 1e6, all.as_secs_f64() * 1e3))
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
