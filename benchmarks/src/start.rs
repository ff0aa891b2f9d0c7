//! What the tracker adds to a command that ends at once, whatever else is on the machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::launch::{part, spread, tracker};
use crate::size::time;
use crate::table;
use crate::tree::{Life, Tree};

const RUNS: usize = 200;

/// So many other processes sleep meanwhile.
const OTHERS: [usize; 3] = [0, 1000, 5000];

/// Options of the runs that are compared with the bare command.
const WAYS: [&[&str]; 3] = [&["-q"], &["-o", "/dev/null"], &["-q", "--no-cgroup"]];

pub(crate) fn print() -> anyhow::Result<()> {
    begin()?;
    let before = std::env::var_os("BEFORE").map(PathBuf::from);
    table::head(
        "`true`, from start to end",
        ["run", "others", "bare, ms", "wrapped, ms", "added, ms", "CPU time added, ms"],
    );
    for others in OTHERS {
        let _tree = if others > 0 { Some(Tree::grow(others, Life::Asleep)?) } else { None };
        for (name, binary) in [("before", before.as_ref()), ("", Some(&tracker()))] {
            if let Some(binary) = binary {
                compare(name, binary, others)?;
            }
        }
    }
    table::note(&format!(
        "Medians of {RUNS} runs, in turn with the bare ones. CPU time is that of all processes, `RUSAGE_CHILDREN`. \
         `BEFORE=FILE` names another binary to compare with."
    ));
    Ok(())
}

fn compare(name: &str, binary: &PathBuf, others: usize) -> anyhow::Result<()> {
    let mut commands = vec![Command::new("/bin/true")];
    commands.extend(WAYS.map(|options| {
        let mut command = Command::new(binary);
        command.args(options).args(["--", "/bin/true"]);
        command
    }));
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new(); commands.len()];
    for _ in 0..RUNS {
        for (runs, command) in runs.iter_mut().zip(&mut commands) {
            runs.push(run(command)?);
        }
    }
    let medians = runs.into_iter().map(|runs| {
        let (wall, cpu): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
        (spread(wall).0, spread(cpu).0)
    });
    let medians: Vec<(f64, f64)> = medians.collect();
    let bare = medians[0];
    for (options, wrapped) in WAYS.iter().zip(&medians[1..]) {
        let what = format!("`{}` {name}", options.join(" "));
        let numbers = [bare.0, wrapped.0, wrapped.0 - bare.0, wrapped.1 - bare.1];
        let [bare, wrapped, added, cpu] = numbers.map(|number| format!("{number:.2}"));
        table::row([what.trim().to_owned(), others.to_string(), bare, wrapped, added, cpu]);
    }
    Ok(())
}

/// Milliseconds that pass, and that CPUs work.
fn run(command: &mut Command) -> anyhow::Result<(f64, f64)> {
    let (start, before) = (Instant::now(), cpu_time());
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    let (wall, cpu) = (start.elapsed(), cpu_time() - before);
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok((wall.as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e3))
}

/// Of all processes that this one has waited for.
fn cpu_time() -> Duration {
    // SAFETY: all fields are numbers, for which zeros are a value, and the call writes one struct, which outlives it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// How much later a command begins, and how much longer all takes, than without the tracker.
fn begin() -> anyhow::Result<()> {
    let mut times: [Vec<(f64, f64)>; 2] = Default::default();
    let bare = part(&["clock"])?;
    let mut wrapped = Command::new(tracker());
    wrapped.args(["-o", "/dev/null", "--"]).arg(bare.get_program()).args(bare.get_args());
    // In turn, so that both meet the same neighbours.
    for _ in 0..RUNS {
        for (times, command) in times.iter_mut().zip([&bare, &wrapped]) {
            times.push(time(command)?);
        }
    }
    let [bare, wrapped] = times.map(|times| {
        let median = |of: fn(&(f64, f64)) -> f64| spread(times.iter().map(of).collect()).0;
        (median(|time| time.0), median(|time| time.1))
    });
    table::head("A command that ends at once", ["what", "until it begins, ms", "until all is over, ms"]);
    let row = |what: &str, (begins, ends): (f64, f64)| {
        table::row([what.into(), format!("{begins:.2}"), format!("{ends:.2}")])
    };
    row("bare", bare);
    row("wrapped", wrapped);
    row("added", (wrapped.0 - bare.0, wrapped.1 - bare.1));
    table::note(&format!("Medians of {RUNS}."));
    Ok(())
}
