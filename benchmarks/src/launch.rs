//! The programs that are measured: the tracker, and this one in its other parts.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tracker's binary.
pub(crate) fn tracker() -> PathBuf {
    std::env::var_os("TRACKER").map_or_else(|| "target/release/resource-tracker".into(), PathBuf::from)
}

/// This program in another part.
pub(crate) fn part(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

/// What is measured on.
pub(crate) fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
    format!("{cpus} cores of {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}

/// A program that is stopped when it is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) -> nix::Result<()> {
        kill(Pid::from_raw(self.0.id() as i32), signal)
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already needs no signal.
        let _ = self.signal(Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

pub(crate) fn seconds(interval: Duration) -> String {
    interval.as_secs_f64().to_string()
}

/// The middle one, the smallest and the largest.
pub(crate) fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    (values[last / 2], values[0], values[last])
}
