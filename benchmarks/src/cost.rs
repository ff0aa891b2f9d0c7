//! What watching costs, as a multiple of the floor, or of another binary of the tracker.

use std::ffi::OsStr;
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

/// Two binaries are measured for as long as all that they do now and then (mounts, limits, links) comes round twice.
const BESIDE: Duration = Duration::from_secs(20);

/// So many of each run at the same time then.
const PAIRS: usize = 5;

const NO_PSS: [&str; 2] = ["--set", "sources.process.pss_budget_pct=0"];
const TOP: [&str; 2] = ["--set", "sources.process.top=5"];

/// Something that is watched.
struct Case<'a> {
    what: String,
    interval: Duration,
    tree: Option<&'a Tree>,
    /// Whether PSS is read.
    pss: bool,
    /// Whether the busiest processes are listed.
    top: bool,
}

pub(crate) fn print() -> anyhow::Result<()> {
    if let Some(before) = std::env::var_os("BEFORE") {
        return print_beside(&before);
    }
    table::head(
        "Cost of a sample",
        ["watched", "interval", "floor, µs", "tracker, µs", "tracker / floor", "share of a core"],
    );
    each_case(&mut row)?;
    table::note(
        "Floor and tracker run in turn on the same CPU; CPU time of all threads, from `schedstat`; medians of three turns, \
         without PSS unless it is said. The floor reads the same files of the machine, and `stat` and `io` of each \
         process, through descriptors that it keeps open, and writes as many bytes. `BEFORE=FILE` names another binary to compare with \
         in place of the floor.",
    );
    Ok(())
}

/// The same for another binary of the tracker, which may not know yet what the busiest processes are, and this one.
fn print_beside(before: &OsStr) -> anyhow::Result<()> {
    table::head("Cost of a sample, before and now", ["watched", "interval", "before, µs", "now, µs", "now / before"]);
    each_case(&mut |case| if case.top { Ok(()) } else { row_beside(before, case) })?;
    table::note(&format!(
        "{PAIRS} of each run at the same time on the same CPU, one of each at 10 ms; CPU time of all threads in {BESIDE:?}, from \
         `schedstat`; medians of each, and of the ratios of neighbours; without PSS unless it is said."
    ));
    Ok(())
}

fn each_case(show: &mut dyn FnMut(&Case<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for interval in INTERVALS {
        show(&Case { what: "the machine".into(), interval, tree: None, pss: true, top: false })?;
    }
    for size in [1, 100, 1000, 5000] {
        let grown = Tree::grow(size, Life::Asleep)?;
        let (what, tree) = (format!("and {size} that sleep"), Some(&grown));
        for interval in INTERVALS {
            show(&Case { what: what.clone(), interval, tree, pss: false, top: false })?;
        }
        if size >= 1000 {
            let what = format!("{what}, the busiest 5");
            show(&Case { what, interval: INTERVALS[0], tree, pss: false, top: true })?;
        }
    }
    for (size, interval) in [(100, INTERVALS[1]), (100, INTERVALS[0]), (1000, INTERVALS[0]), (5000, INTERVALS[0])] {
        let grown = Tree::grow(size, Life::Awake(interval / 2))?;
        let tree = Some(&grown);
        let what = format!("and {size} that all run in each interval");
        show(&Case { what, interval, tree, pss: false, top: false })?;
        if size >= 1000 {
            let what = format!("and {size} that all run, the busiest 5");
            show(&Case { what, interval, tree, pss: false, top: true })?;
        }
    }
    let strangers = Tree::grow(5000, Life::Asleep)?;
    let interval = INTERVALS[0];
    show(&Case { what: "the machine, with 5000 others".into(), interval, tree: None, pss: true, top: false })?;
    let grown = Tree::grow(100, Life::Asleep)?;
    let (what, tree) = ("and 100 that sleep, with 5000 others", Some(&grown));
    show(&Case { what: what.into(), interval, tree, pss: false, top: false })?;
    show(&Case { what: format!("{what}, and PSS"), interval, tree, pss: true, top: false })?;
    drop(strangers);
    Ok(())
}

impl Case<'_> {
    fn root(&self) -> Option<String> {
        self.tree.map(|tree| tree.pids[0].to_string())
    }

    fn options<'a>(&self, root: &'a Option<String>) -> Vec<&'a str> {
        let root = root.iter().flat_map(|root| ["--pid", root]);
        root.chain(NO_PSS.into_iter().filter(|_| !self.pss)).chain(TOP.into_iter().filter(|_| self.top)).collect()
    }
}

fn row(case: &Case<'_>) -> anyhow::Result<()> {
    let root = case.root();
    let pids = case.tree.map_or(&[][..], |tree| &tree.pids);
    let watched = Watched { options: &case.options(&root), pids, procfs: Path::new("/proc") };
    let (floor, tracker, ratio) = measure(case.interval, &watched, |_| ())?;
    table::row([
        case.what.clone(),
        format!("{:?}", case.interval),
        format!("{floor:.0}"),
        format!("{tracker:.0}"),
        format!("{ratio:.2}"),
        format!("{:.3} %", tracker / case.interval.as_secs_f64() / 1e4),
    ]);
    Ok(())
}

fn row_beside(before: &OsStr, case: &Case<'_>) -> anyhow::Result<()> {
    let root = case.root();
    let options = case.options(&root);
    let now = tracker();
    let pairs = if case.interval < INTERVALS[1] { 1 } else { PAIRS };
    let (before, now, ratio) = beside(pairs, case.interval, |release| {
        let mut command = Command::new([before, now.as_os_str()][release]);
        command.args(["-i", &seconds(case.interval), "-o", "/dev/null"]).args(&options);
        Running::start(command.stderr(Stdio::null()))
    })?;
    table::row([
        case.what.clone(),
        format!("{:?}", case.interval),
        format!("{before:.0}"),
        format!("{now:.0}"),
        format!("{ratio:.2}"),
    ]);
    Ok(())
}

/// Microseconds that a sample costs two, which `start` starts by their numbers, and the second's as a multiple of the
/// first's: medians of so many pairs, all of which run at the same time.
///
/// None is stopped: what comes round once in ten seconds, and what is made up for after a stop, would count in full.
fn beside(
    pairs: usize,
    interval: Duration,
    start: impl Fn(usize) -> anyhow::Result<Running>,
) -> anyhow::Result<(f64, f64, f64)> {
    pin()?;
    let mut running = Vec::new();
    for pair in 0..pairs {
        for which in [pair % 2, 1 - pair % 2] {
            running.push((which, start(which)?));
        }
    }
    std::thread::sleep((interval * 3).max(Duration::from_secs(3)));
    let taken = || {
        let each = running.iter().map(|(_, one)| cputime::of(one.pid()));
        each.collect::<anyhow::Result<Vec<_>>>()
    };
    let (began, at_first) = (Instant::now(), taken()?);
    std::thread::sleep(BESIDE);
    let (samples, at_last) = (began.elapsed().as_secs_f64() / interval.as_secs_f64(), taken()?);
    let mut micros = [Vec::new(), Vec::new()];
    for ((which, _), (first, last)) in running.iter().zip(at_first.into_iter().zip(at_last)) {
        micros[*which].push((last - first).as_secs_f64() * 1e6 / samples);
    }
    let [first, second] = micros;
    let ratios = first.iter().zip(&second).map(|(first, second)| second / first).collect();
    let median = |values| spread(values).0;
    Ok((median(first), median(second), median(ratios)))
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
    in_turn(&floor, &tracker, interval)
}

/// Microseconds that a sample costs both, and the second's as a multiple of the first's: medians of the turns.
fn in_turn(first: &Running, second: &Running, interval: Duration) -> anyhow::Result<(f64, f64, f64)> {
    // Both are warm after a while.
    std::thread::sleep((interval * 3).max(Duration::from_secs(1)));
    let window = Duration::from_secs(if interval >= Duration::from_secs(1) { 5 } else { 2 });
    let costs = (0..WINDOWS).map(|_| cost(first, second, interval, window)).collect::<anyhow::Result<Vec<_>>>()?;
    let median = |of: fn(&(f64, f64)) -> f64| spread(costs.iter().map(of).collect()).0;
    Ok((median(|cost| cost.0), median(|cost| cost.1), median(|cost| cost.1 / cost.0)))
}

/// Microseconds a sample of both, one after the other.
fn cost(first: &Running, second: &Running, interval: Duration, window: Duration) -> anyhow::Result<(f64, f64)> {
    Ok((alone(first, second, interval, window)?, alone(second, first, interval, window)?))
}

/// Microseconds a sample of one, while the other one is stopped.
fn alone(one: &Running, other: &Running, interval: Duration, window: Duration) -> anyhow::Result<f64> {
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
