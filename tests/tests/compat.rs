//! T-COMPAT-01: the same machine, seen by the Python package at the same time.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use resource_tracker_tests::{Recording, command, in_time, stop_after, text, tracker, wait_for};

/// The Python interpreter that has the package: `RESOURCE_TRACKER_PYTHON`, or `python3`.
fn python() -> Option<String> {
    let python = std::env::var("RESOURCE_TRACKER_PYTHON").unwrap_or_else(|_| "python3".into());
    let check = command(&python).args(["-c", "import resource_tracker"]).stderr(Stdio::null()).status();
    check.is_ok_and(|status| status.success()).then_some(python)
}

fn columns(csv: &str) -> BTreeMap<String, Vec<f64>> {
    let mut lines = csv.lines().map(|line| line.split(',').map(|word| word.trim_matches('"')).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in lines.filter(|row| row.len() == names.len()) {
        for (name, value) in names.iter().zip(row) {
            columns.entry((*name).to_owned()).or_default().push(value.parse().unwrap());
        }
    }
    columns
}

#[test]
fn t_compat_01_the_python_package_sees_the_same() {
    let Some(python) = python() else {
        println!("skipped: T-COMPAT-01 needs the Python package resource-tracker (see RESOURCE_TRACKER_PYTHON)");
        return;
    };
    // The whole minute with the variable that CI sets.
    let seconds = if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some() { 60 } else { 15 };
    in_time(|| both_see_the_same(&python, seconds));
}

/// Whether the means over the run are the same. A burst can fall into the seconds of one program and not of the other,
/// which begin at another moment; a real difference is there each time.
fn both_see_the_same(python: &str, seconds: usize) -> bool {
    let recording = Recording::new();
    let theirs = recording.path();
    let program =
        format!("from resource_tracker import SystemTracker\nSystemTracker(interval=1, output_file={theirs:?})");
    let rows = || std::fs::read_to_string(&theirs).unwrap_or_default().lines().count();
    // A steady load, so that there is something to agree about.
    let mut load =
        command(env!("CARGO_BIN_EXE_job")).args(["burn", "1", "600000"]).stdout(Stdio::null()).spawn().unwrap();
    let mut their_run = command(python).args(["-c", &program]).spawn().unwrap();
    // Python takes seconds to start on a busy machine.
    wait_for(Duration::from_secs(60), "a row of Python", || rows() >= 2);
    // The header and the rows.
    let ours = stop_after(seconds + 1, command(tracker()).args(["-i", "1", "--csv-columns", "python"]));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(their_run.id() as i32), nix::sys::signal::Signal::SIGTERM)
        .unwrap();
    their_run.wait().unwrap();
    load.kill().unwrap();
    load.wait().unwrap();

    let (ours, theirs) = (columns(&text(&ours.stdout)), columns(&std::fs::read_to_string(&theirs).unwrap()));
    assert!(theirs.keys().eq(ours.keys()), "the columns have the same names");
    // Rows of the same moment: the nearest ones. The first row of Python covers its own start.
    let nearest = |at: f64| {
        let near = |row: &usize| (ours["timestamp"][*row] + 0.5 - at).abs();
        (1..ours["timestamp"].len()).min_by(|a, b| near(a).total_cmp(&near(b))).filter(|row| near(row) <= 0.75)
    };
    let pairs: Vec<(usize, usize)> =
        (1..theirs["timestamp"].len()).filter_map(|row| Some((row, nearest(theirs["timestamp"][row])?))).collect();
    // Python leaves out rows that it is late for.
    if pairs.len() < seconds / 2 {
        println!("{} rows", pairs.len());
        return false;
    }
    println!("{:<22} {:>16} {:>16} {:>8}", "column", "python", "tracker", "off");
    let mut off = Vec::new();
    for (name, their) in &theirs {
        let our = &ours[name];
        let mean = |rows: &mut dyn Iterator<Item = f64>| rows.sum::<f64>() / pairs.len() as f64;
        // A burst in the first or the last second can fall into one run's window and not into the other's.
        let (first, last) = (pairs[0], pairs[pairs.len() - 1]);
        let around = |rows: &[f64], at: usize| rows[at - 1..rows.len().min(at + 2)].iter().copied().fold(0.0, f64::max);
        let edges = [around(their, first.0), around(their, last.0), around(our, first.1), around(our, last.1)];
        let edge = edges.into_iter().fold(0.0, f64::max) / pairs.len() as f64;
        let their = mean(&mut pairs.iter().map(|(row, _)| their[*row]));
        let our = mean(&mut pairs.iter().map(|(_, row)| our[*row]));
        let difference = (our - their).abs();
        let share = if their == 0.0 { 0.0 } else { difference / their.abs() * 100.0 };
        println!("{name:<22} {their:>16.4} {our:>16.4} {share:>7.2}%");
        let unit = match name.as_str() {
            // Whole MiB against fractions of one.
            name if name.starts_with("memory_") => 1.0,
            // A tick of the kernel, and the work of the two trackers themselves, which each sees at another moment.
            "utime" | "stime" | "cpu_usage" => 0.05,
            "timestamp" | "processes" => 3.0,
            // Python prints two decimals.
            name if name.starts_with("disk_space") => 0.02,
            _ => edge,
        };
        if share > 5.0 && difference > unit {
            off.push(name.clone());
        }
    }
    println!("more than 5 % off: {off:?}");
    off.is_empty()
}
