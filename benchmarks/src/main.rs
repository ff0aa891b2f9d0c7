//! What the tracker adds to a command that ends at once: `cargo run --release -p benchmarks -- target/release/resource-tracker`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 50;

fn main() -> anyhow::Result<()> {
    let tracker = std::env::args().nth(1).unwrap_or_else(|| "target/release/resource-tracker".into());
    let mut bare = Vec::new();
    let mut wrapped = Vec::new();
    // In turn, so that both meet the same neighbours.
    for _ in 0..RUNS {
        bare.push(time(Command::new("true"))?);
        let mut command = Command::new(&tracker);
        command.args(["-o", "/dev/null", "--", "true"]);
        wrapped.push(time(command)?);
    }
    let (bare, wrapped) = (median(bare), median(wrapped));
    println!("| command | median of {RUNS}, ms |\n| --- | --- |");
    println!("| `true` | {:.2} |", millis(bare));
    println!("| `resource-tracker -o /dev/null -- true` | {:.2} |", millis(wrapped));
    println!("| added | {:.2} |", millis(wrapped.saturating_sub(bare)));
    Ok(())
}

fn time(mut command: Command) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?} failed: {status}");
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
