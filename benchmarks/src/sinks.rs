//! The cost of the sinks that show a person a run at its end.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cost::{alone, pin};
use crate::launch::{Running, seconds, spread, tracker};
use crate::size::resident;
use crate::table;

const INTERVAL: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_secs(2);
const WINDOWS: usize = 7;
/// As many samples as a day has seconds, at 1 ms, and a part of them.
const DAY: Duration = Duration::from_secs(87);
const PART: Duration = Duration::from_secs(10);

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let report = format!("sinks.report.path={}", directory.path().join("report.html").display());
    let sinks: [(&str, &[&str]); 3] =
        [("`summary`", &["--summary"]), ("`report`", &["--set", &report]), ("both", &["--summary", "--set", &report])];
    table::head(
        "Cost of a sample with what is told at the end, at 10 ms",
        ["sink", "without, µs", "with, µs", "adds", "KiB more after 10,000 samples", "after 87,000"],
    );
    for (name, options) in sinks {
        let (without, with, ratio) = cost(options)?;
        let (early, late) = memory(options)?;
        table::row([
            name.into(),
            format!("{without:.0}"),
            format!("{with:.0}"),
            format!("{:.1} %", 100.0 * (ratio - 1.0)),
            format!("{early}"),
            format!("{late}"),
        ]);
    }
    table::note(&format!(
        "Of the machine. Trackers with and without it run in turn on the same CPU; CPU time of all threads, medians of \
         {WINDOWS} turns. Memory is what `VmRSS` is more by, at 1 ms."
    ));
    Ok(())
}

fn start(interval: Duration, options: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(tracker());
    command.args(["-i", &seconds(interval), "-o", "/dev/null"]).args(options);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Microseconds without and with it, and the second as a multiple of the first.
fn cost(options: &[&str]) -> anyhow::Result<(f64, f64, f64)> {
    pin()?;
    let (without, with) = (start(INTERVAL, &[])?, start(INTERVAL, options)?);
    // Both are warm after a while.
    std::thread::sleep(Duration::from_secs(1));
    let cost = || anyhow::Ok((alone(&without, &with, INTERVAL, WINDOW)?, alone(&with, &without, INTERVAL, WINDOW)?));
    let costs = (0..WINDOWS).map(|_| cost()).collect::<anyhow::Result<Vec<_>>>()?;
    let median = |of: fn(&(f64, f64)) -> f64| spread(costs.iter().map(of).collect()).0;
    Ok((median(|cost| cost.0), median(|cost| cost.1), median(|cost| cost.1 / cost.0)))
}

/// KiB that it takes more after a part of a day's samples, and after all.
fn memory(options: &[&str]) -> anyhow::Result<(i64, i64)> {
    let interval = Duration::from_millis(1);
    let (without, with) = (start(interval, &[])?, start(interval, options)?);
    let more = || anyhow::Ok(resident(&with)? as i64 - resident(&without)? as i64);
    std::thread::sleep(PART);
    let early = more()?;
    std::thread::sleep(DAY - PART);
    Ok((early, more()?))
}
