//! CPU time of a program that runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// Of all threads that it has: `/proc/PID/task/*/schedstat`.
pub(crate) fn of(pid: u32) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))? {
        // A thread can end in between.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += on_cpu(&text)?;
    }
    Ok(sum)
}

/// Of the thread whose folder in `/proc` this is.
pub(crate) fn of_thread(task: &Path) -> anyhow::Result<Duration> {
    on_cpu(&fs::read_to_string(task.join("schedstat"))?)
}

/// The first number of `schedstat`, in nanoseconds.
fn on_cpu(schedstat: &str) -> anyhow::Result<Duration> {
    let nanos = schedstat.split(' ').next().unwrap_or_default().parse().context("schedstat")?;
    Ok(Duration::from_nanos(nanos))
}

/// The process and those that it has started, and so on.
pub(crate) fn tree(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()).collect::<String>();
    let below = children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(tree);
    [pid].into_iter().chain(below).collect()
}
