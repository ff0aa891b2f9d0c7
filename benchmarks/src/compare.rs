//! Other programs that read the same figures, beside the tracker.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::launch::{Running, tracker};
use crate::{cputime, table};

const WINDOW: Duration = Duration::from_secs(20);

/// A program in this list is left out where it is not installed.
fn others(directory: &Path) -> Vec<(&'static str, Command)> {
    let mut list = Vec::new();
    let mut add = |name, program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        list.push((name, command));
    };
    if let Some(python) = std::env::var_os("RESOURCE_TRACKER_PYTHON").and_then(|path| path.into_string().ok()) {
        let script =
            "import time; from resource_tracker import SystemTracker; SystemTracker(interval=1); time.sleep(3600)";
        add("Python `resource-tracker`, `SystemTracker`", &python, &["-c", script]);
    }
    add("`pidstat -urd -p ALL 1`", "pidstat", &["-urd", "-p", "ALL", "1"]);
    add("`sar -u -r -n DEV -d 1`", "sar", &["-u", "-r", "-n", "DEV", "-d", "1"]);
    add("`vmstat 1`", "vmstat", &["1"]);
    let listen = "--web.listen-address=127.0.0.1:0";
    add("`prometheus-node-exporter`, never asked", "prometheus-node-exporter", &[listen]);
    let file = directory.join("collectd.conf");
    let plugins = ["cpu", "memory", "interface", "disk", "df", "load", "processes", "csv"];
    let config = plugins.map(|plugin| format!("LoadPlugin {plugin}\n")).concat();
    let data = format!("Interval 1\n{config}<Plugin csv>\nDataDir \"{}\"\n</Plugin>\n", directory.display());
    if std::fs::write(&file, data).is_ok() {
        add("`collectd`, seven plugins to CSV", "collectd", &["-f", "-C", &file.display().to_string()]);
    }
    list
}

pub(crate) fn print() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    table::head("Others at 1 s, at the same time", ["program", "CPU, ms a second", "resident, KiB"]);
    let mut ours = Command::new(tracker());
    ours.arg("-o").arg(directory.path().join("samples.jsonl"));
    let programs = [("this tracker", ours)].into_iter().chain(others(directory.path()));
    let mut missing = Vec::new();
    let mut running = Vec::new();
    for (name, mut command) in programs {
        match Running::start(command.stdout(Stdio::null()).stderr(Stdio::null())) {
            Ok(program) => running.push((name, program)),
            Err(_) => missing.push(name),
        }
    }
    std::thread::sleep(Duration::from_secs(3));
    let start = Instant::now();
    let read = |running: &[(&str, Running)]| {
        let of_tree = |pid| cputime::tree(pid).into_iter().map(cputime::of).sum::<anyhow::Result<Duration>>();
        running.iter().map(|(_, program)| of_tree(program.pid()).ok()).collect::<Vec<_>>()
    };
    let before = read(&running);
    std::thread::sleep(WINDOW);
    let (after, secs) = (read(&running), start.elapsed().as_secs_f64());
    for (index, (name, program)) in running.iter().enumerate() {
        // One that has ended meanwhile could not do its work here.
        let (Some(before), Some(after)) = (before[index], after[index]) else {
            missing.push(name);
            continue;
        };
        let resident: u64 = cputime::tree(program.pid()).into_iter().filter_map(resident).sum();
        let millis = (after - before).as_secs_f64() * 1e3 / secs;
        table::row([(*name).into(), format!("{millis:.2}"), resident.to_string()]);
    }
    let missing = if missing.is_empty() { String::new() } else { format!(" Not installed: {}.", missing.join(", ")) };
    table::note(&format!("CPU time and memory of all processes of the program, in {} s.{missing}", WINDOW.as_secs()));
    Ok(())
}

/// KiB.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
