//! What watching costs, as a multiple of the floor.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::launch::{Running, part, seconds, spread, tracker};
use crate::tree::{Life, Tree};
use crate::{cputime, table};

const INTERVALS: [Duration; 3] = [Duration::from_secs(1), Duration::from_millis(100), Duration::from_millis(10)];

/// Each figure is the median of so many.
const WINDOWS: usize = 3;

pub(crate) fn print() -> anyhow::Result<()> {
    table::head(
        "Cost of a sample",
        ["watched", "interval", "floor, µs", "tracker, µs", "tracker / floor", "share of a core"],
    );
    let no_pss = ["--set", "sources.process.pss_budget_pct=0"];
    let with_top = [&no_pss[..], &["--set", "sources.process.top=5"]].concat();
    for interval in INTERVALS {
        row("the machine", interval, None, &[])?;
    }
    for size in [1, 100, 1000, 5000] {
        let tree = Tree::grow(size, Life::Asleep)?;
        for interval in INTERVALS {
            row(&format!("and {size} that sleep"), interval, Some(&tree), &no_pss)?;
        }
        if size >= 1000 {
            row(&format!("and {size} that sleep, the busiest 5"), INTERVALS[0], Some(&tree), &with_top)?;
        }
    }
    for (size, interval) in [(100, INTERVALS[1]), (100, INTERVALS[0]), (1000, INTERVALS[0]), (5000, INTERVALS[0])] {
        let tree = Tree::grow(size, Life::Awake(interval / 2))?;
        row(&format!("and {size} that all run in each interval"), interval, Some(&tree), &no_pss)?;
        if size >= 1000 {
            row(&format!("and {size} that all run, the busiest 5"), interval, Some(&tree), &with_top)?;
        }
    }
    let strangers = Tree::grow(5000, Life::Asleep)?;
    row("the machine, with 5000 others", INTERVALS[0], None, &[])?;
    let tree = Tree::grow(100, Life::Asleep)?;
    row("and 100 that sleep, with 5000 others", INTERVALS[0], Some(&tree), &no_pss)?;
    row("and 100 that sleep, with 5000 others, and PSS", INTERVALS[0], Some(&tree), &[])?;
    drop(strangers);
    table::note(
        "Floor and tracker run in turn on the same CPU; CPU time of all threads, from `schedstat`; medians of three turns, \
         without PSS unless it is said. The floor reads the same files of the machine, and `stat` and `io` of each \
         process, through descriptors that it keeps open, and writes as many bytes.",
    );
    Ok(())
}

fn row(what: &str, interval: Duration, tree: Option<&Tree>, options: &[&str]) -> anyhow::Result<()> {
    let root = tree.map(|tree| tree.pids[0].to_string());
    let options = root.iter().flat_map(|root| ["--pid", root]).chain(options.iter().copied()).collect::<Vec<_>>();
    let pids = tree.map_or(&[][..], |tree| &tree.pids);
    let watched = Watched { options: &options, pids, procfs: Path::new("/proc") };
    let (floor, tracker, ratio) = measure(interval, &watched, |_| ())?;
    table::row([
        what.into(),
        format!("{interval:?}"),
        format!("{floor:.0}"),
        format!("{tracker:.0}"),
        format!("{ratio:.2}"),
        format!("{:.3} %", tracker / interval.as_secs_f64() / 1e4),
    ]);
    Ok(())
}

/// What tracker and floor look at.
pub(crate) struct Watched<'a> {
    /// Flags of the tracker.
    pub(crate) options: &'a [&'a str],
    /// Processes that the floor reads.
    pub(crate) pids: &'a [u32],
    /// Where the floor reads.
    pub(crate) procfs: &'a Path,
}

/// Microseconds that a sample costs the floor and the tracker, and the tracker's as a multiple of the floor's.
pub(crate) fn measure(
    interval: Duration,
    watched: &Watched<'_>,
    prepare: impl FnOnce(&mut Command),
) -> anyhow::Result<(f64, f64, f64)> {
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("samples.jsonl");
    let mut command = Command::new(tracker());
    command.args(["-i", &seconds(interval), "-o"]).arg(&output).args(watched.options).stderr(Stdio::null());
    prepare(&mut command);
    pin()?;
    let tracker = Running::start(&mut command)?;
    let bytes = line_length(&output, interval)?;
    let floor = start_floor(interval, bytes, &directory.path().join("floor"), watched)?;
    // Both are warm after a while.
    std::thread::sleep((interval * 3).max(Duration::from_secs(1)));
    let window = Duration::from_secs(if interval >= Duration::from_secs(1) { 5 } else { 2 });
    let costs = (0..WINDOWS).map(|_| cost(&floor, &tracker, interval, window)).collect::<anyhow::Result<Vec<_>>>()?;
    let median = |of: fn(&(f64, f64)) -> f64| spread(costs.iter().map(of).collect()).0;
    Ok((median(|cost| cost.0), median(|cost| cost.1), median(|cost| cost.1 / cost.0)))
}

/// Microseconds a sample of both, one after the other.
fn cost(floor: &Running, tracker: &Running, interval: Duration, window: Duration) -> anyhow::Result<(f64, f64)> {
    Ok((alone(floor, tracker, interval, window)?, alone(tracker, floor, interval, window)?))
}

/// Microseconds a sample of one, while the other one is stopped.
pub(crate) fn alone(one: &Running, other: &Running, interval: Duration, window: Duration) -> anyhow::Result<f64> {
    other.signal(Signal::SIGSTOP)?;
    std::thread::sleep(interval);
    let now = || anyhow::Ok((Instant::now(), cputime::of(one.pid())?));
    let before = now()?;
    std::thread::sleep(window);
    let after = now()?;
    other.signal(Signal::SIGCONT)?;
    let samples = (after.0 - before.0).as_secs_f64() / interval.as_secs_f64();
    Ok((after.1 - before.1).as_secs_f64() * 1e6 / samples)
}

/// Keeps this thread, and what it starts from now on, on the last CPU: they differ by more than what is measured.
pub(crate) fn pin() -> anyhow::Result<()> {
    let mut cpus = rustix::thread::sched_getaffinity(None)?;
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rfind(|cpu| cpus.is_set(*cpu)).context("no CPU")?;
    cpus.clear();
    cpus.set(last);
    Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
}

/// How long a sample is, as soon as there are two.
fn line_length(output: &Path, interval: Duration) -> anyhow::Result<usize> {
    let deadline = Instant::now() + interval * 2 + Duration::from_secs(10);
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        let text = fs::read_to_string(output).unwrap_or_default();
        if let Some(line) = text.split_inclusive('\n').nth(1).filter(|line| line.ends_with('\n')) {
            return Ok(line.len());
        }
    }
    anyhow::bail!("the tracker writes no samples to {}", output.display())
}

fn start_floor(interval: Duration, bytes: usize, output: &Path, watched: &Watched<'_>) -> anyhow::Result<Running> {
    let (output, procfs) = (output.to_str().context("a path")?, watched.procfs.to_str().context("a path")?);
    let mut command = part(&["floor", &seconds(interval), &bytes.to_string(), output, procfs])?;
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("the floor has no input")?;
    for pid in watched.pids {
        writeln!(input, "{pid}")?;
    }
    drop(input);
    Ok(Running::from(child))
}
