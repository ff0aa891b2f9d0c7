//! The cost of the sinks that work on each sample: those that show a person a run at its end, and Prometheus.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cost::{PAIRS, beside};
use crate::launch::{Running, seconds, tracker};
use crate::size::resident;
use crate::table;

const INTERVALS: [Duration; 3] = [Duration::from_secs(1), Duration::from_millis(100), Duration::from_millis(10)];
/// As many samples as a day has seconds, at 1 ms, and a part of them.
const DAY: Duration = Duration::from_secs(87);
const PART: Duration = Duration::from_secs(10);

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let report = format!("sinks.report.path={}", directory.path().join("report.html").display());
    let sinks: [(&str, &[&str]); 4] = [
        ("`summary`", &["--summary"]),
        ("`report`", &["--set", &report]),
        ("both", &["--summary", "--set", &report]),
        ("`prometheus`", &["--set", "sinks.prometheus.listen=127.0.0.1:0"]),
    ];
    table::head(
        "Cost of a sample with sinks that work on each",
        ["sink", "interval", "without, µs", "with, µs", "adds"],
    );
    for (name, options) in sinks {
        for interval in INTERVALS {
            let which: [&[&str]; 2] = [&[], options];
            let (without, with, ratio) = beside(PAIRS, interval, |number| start(interval, which[number]))?;
            table::row([
                name.into(),
                format!("{interval:?}"),
                format!("{without:.0}"),
                format!("{with:.0}"),
                format!("{:.1} %", 100.0 * (ratio - 1.0)),
            ]);
        }
    }
    table::note(&format!(
        "Of the machine. {PAIRS} trackers with and without it at the same time on the same CPU; CPU time of all threads in 20 s; \
         medians of each, and of the ratios of neighbours."
    ));
    table::head("Their memory", ["sink", "KiB more after 10,000 samples", "after 87,000"]);
    for (name, options) in sinks {
        let (early, late) = memory(options)?;
        table::row([name.into(), format!("{early}"), format!("{late}")]);
    }
    table::note("What `VmRSS` is more by, at 1 ms.");
    Ok(())
}

fn start(interval: Duration, options: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(tracker());
    command.args(["-i", &seconds(interval), "-o", "/dev/null"]).args(options);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
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
