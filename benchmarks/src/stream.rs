//! What streaming costs when neither the service nor the metadata of a cloud can be reached.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::launch::{Running, part, spread, tracker};
use crate::size::{resident, time};
use crate::table;

const RUNS: usize = 20;

pub(crate) fn print() -> anyhow::Result<()> {
    let state = tempfile::tempdir()?;
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", silent.local_addr()?);
    start(&address, state.path())?;
    memory(&address, state.path())
}

fn streaming(command: &mut Command, address: &str, state: &Path) {
    let endpoint = format!("sources.cloud.endpoint={address}");
    command.args(["--set", &endpoint, "--set", "sinks.sentinel-s3.finish_timeout_secs=1"]);
    command.env("SENTINEL_API_TOKEN", "x").env("SENTINEL_API_URL", address).env("XDG_STATE_HOME", state);
}

fn start(address: &str, state: &Path) -> anyhow::Result<()> {
    let bare = part(&["clock"])?;
    let wrapped = |streams: bool| {
        let mut command = Command::new(tracker());
        command.args(["-o", "/dev/null"]);
        if streams {
            streaming(&mut command, address, state);
        }
        command.arg("--").arg(bare.get_program()).args(bare.get_args());
        command
    };
    let mut times: [Vec<(f64, f64)>; 2] = Default::default();
    let commands = [wrapped(false), wrapped(true)];
    for _ in 0..RUNS {
        for (times, command) in times.iter_mut().zip(&commands) {
            times.push(time(command)?);
        }
    }
    table::head(
        "Streaming to a service that does not answer",
        ["run", "until the command begins, ms", "until all is over, ms"],
    );
    for (what, times) in ["without a token", "with one, and a limit of 1 s for the end"].into_iter().zip(times) {
        let median = |of: fn(&(f64, f64)) -> f64| spread(times.iter().map(of).collect()).0;
        table::row([what.into(), format!("{:.2}", median(|time| time.0)), format!("{:.1}", median(|time| time.1))]);
    }
    table::note(&format!("Medians of {RUNS}. The metadata service does not answer either."));
    Ok(())
}

/// As many samples as a day has seconds.
fn memory(address: &str, state: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(tracker());
    command.args(["-q", "-i", "0.001"]).stderr(Stdio::null());
    streaming(&mut command, address, state);
    let tracker = Running::start(command.env("TRACKER_UPLOAD_INTERVAL", "1"))?;
    std::thread::sleep(Duration::from_secs(10));
    let early = resident(&tracker)?;
    std::thread::sleep(Duration::from_secs(77));
    let late = resident(&tracker)?;
    let spool = state.join("resource-tracker/spool");
    let runs = fs::read_dir(spool)?.flatten();
    let files = runs.flat_map(|run| fs::read_dir(run.path())).flatten().flatten();
    let size: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    table::head("A day of samples while the service does not answer", ["what", "is"]);
    table::row(["resident memory after 10,000 samples".into(), format!("{early} KiB")]);
    table::row(["resident memory after 87,000 samples".into(), format!("{late} KiB")]);
    table::row(["what waits on the disk".into(), format!("{:.1} MB", size as f64 / 1e6)]);
    table::note("At 1 ms, with a batch every second.");
    Ok(())
}
