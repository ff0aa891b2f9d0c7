//! A tree of processes to be watched.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use nix::unistd::{ForkResult, fork};

use crate::launch::{Running, part};

/// What the processes of the tree do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// They wait for ever.
    Asleep,
    /// Each runs for a moment, so often.
    Awake(Duration),
}

/// A root with children; its process ids are its own first.
pub(crate) struct Tree {
    pub(crate) pids: Vec<u32>,
    _root: Running,
}

impl Tree {
    /// A root and as many children that it takes `size` processes.
    pub(crate) fn grow(size: usize, life: Life) -> anyhow::Result<Self> {
        let pause = if let Life::Awake(pause) = life { pause } else { Duration::ZERO };
        let mut root = Running::start(
            part(&["tree", &size.to_string(), &pause.as_secs_f64().to_string()])?.stdout(Stdio::piped()),
        )?;
        let mut line = String::new();
        let output = root.child().stdout.take().context("the tree has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let pids = line.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(pids.len() == size, "the tree has {} processes instead of {size}", pids.len());
        Ok(Self { pids, _root: root })
    }
}

/// `tree SIZE PAUSE`: prints the process ids and lives until it gets a signal.
pub(crate) fn run<'a>(mut arguments: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let mut next = || arguments.next().context("tree SIZE PAUSE");
    let (size, pause): (usize, f64) = (next()?.parse()?, next()?.parse()?);
    let mut pids = vec![std::process::id()];
    for _ in 1..size {
        // SAFETY: this program has one thread.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => pids.push(child.as_raw() as u32),
            ForkResult::Child => live(pause),
        }
    }
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut output = std::io::stdout();
    writeln!(output, "{}", pids.join(" "))?;
    output.flush()?;
    live(pause)
}

fn live(pause: f64) -> ! {
    // Children are not left behind.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    loop {
        match Duration::try_from_secs_f64(pause) {
            Ok(pause) if !pause.is_zero() => std::thread::sleep(pause),
            _ => std::thread::park(),
        }
    }
}
