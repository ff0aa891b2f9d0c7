//! System calls a tick, counted by `strace`.

use std::fs;
use std::process::{Command, Stdio};

use crate::launch::{part, tracker};
use crate::table;

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut tracker = Command::new(tracker());
    tracker.args(["-i", "0.1", "-o"]).arg(directory.path().join("samples.jsonl"));
    let mut floor = part(&["floor", "0.1", "3000"])?;
    floor.arg(directory.path().join("floor"));
    let (Some(floor), Some(tracker)) = (count(&floor)?, count(&tracker)?) else {
        println!("System calls a tick: not counted, because `strace` is not installed.\n");
        return Ok(());
    };
    table::head("System calls a tick", ["floor", "tracker", "more"]);
    table::row([format!("{floor:.1}"), format!("{tracker:.1}"), format!("{:.1}", tracker - floor)]);
    table::note("At 100 ms, as the difference of 10 s and 2 s under `strace -f -c`.");
    Ok(())
}

fn count(program: &Command) -> anyhow::Result<Option<f64>> {
    let (Some(short), Some(long)) = (count_for(program, 2)?, count_for(program, 10)?) else { return Ok(None) };
    Ok(Some((long - short) / 80.0))
}

fn count_for(program: &Command, secs: u32) -> anyhow::Result<Option<f64>> {
    let summary = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("timeout");
    strace.args(["-s", "INT", &secs.to_string(), "strace", "-f", "-c", "-o"]).arg(summary.path());
    strace.arg(program.get_program()).args(program.get_args()).stdin(Stdio::null()).stderr(Stdio::null());
    strace.status()?;
    let text = fs::read_to_string(summary.path())?;
    let total = text.lines().find(|line| line.ends_with(" total")).and_then(|line| line.split_whitespace().nth(3));
    Ok(total.and_then(|word| word.parse().ok()))
}
