//! CPU time that the tracker attributes to a command, beside what the kernel counted.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use rustix::fs::Mode;
use serde_json::Value;

use crate::launch::{part, seconds, tracker};
use crate::{jobs, table};

const RUNS: usize = 5;
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];

pub(crate) fn print() -> anyhow::Result<()> {
    table::head(
        "CPU time attributed to the command",
        ["command", "interval", "true, s", "attributed, s", "worst of five", "counted"],
    );
    let [second, tenth] = INTERVALS;
    let ways: [(Duration, &[&str]); 3] = [(second, &[]), (tenth, &[]), (tenth, &["--no-cgroup"])];
    for (name, what) in jobs::ALL {
        let job = part(&["job", name])?;
        ways.iter().try_for_each(|(interval, options)| row(&format!("{name}: {what}"), *interval, options, &job))?;
    }
    let crate_directory = tempfile::tempdir()?;
    if let Some(build) = build_of_a_crate(crate_directory.path())? {
        ways.iter()
            .try_for_each(|(interval, options)| row("`cargo build` of a small crate", *interval, options, &build))?;
    }
    table::note(
        "The truth is the CPU time of a cgroup that holds tracker and command, where one can be made, else that of \
         `wait4` for the tracker as a subreaper; both less the tracker's own. Without the right to make a cgroup, or with \
         `--no-cgroup`, the tracker counts as `exact`, or `sampled` where it knows that there is more to count.",
    );
    others()
}

fn row(what: &str, interval: Duration, options: &[&str], job: &Command) -> anyhow::Result<()> {
    let runs = (0..RUNS).map(|_| run(interval, options, job)).collect::<anyhow::Result<Vec<_>>>()?;
    let off = |run: &Measured| (run.attributed / run.truth - 1.0) * 100.0;
    let worst = runs.iter().max_by(|a, b| off(a).abs().total_cmp(&off(b).abs())).context("no run")?;
    table::row([
        options.iter().fold(what.to_owned(), |what, option| format!("{what}, `{option}`")),
        format!("{interval:?}"),
        format!("{:.3}", worst.truth),
        format!("{:.3}", worst.attributed),
        format!("{:+.2} %", off(worst)),
        worst.accounting.clone(),
    ]);
    Ok(())
}

struct Measured {
    truth: f64,
    attributed: f64,
    accounting: String,
    samples: Vec<Value>,
}

fn run(interval: Duration, options: &[&str], job: &Command) -> anyhow::Result<Measured> {
    let directory = tempfile::tempdir()?;
    let output = directory.path().join("samples.jsonl");
    let mut command = Command::new(fs::canonicalize(tracker())?);
    command.args(["-i", &seconds(interval), "-o"]).arg(&output).args(options).arg("--");
    command.arg(job.get_program()).args(job.get_args()).stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(directory) = job.get_current_dir() {
        command.current_dir(directory);
    }
    let cgroup = Cgroup::make();
    if let Some(cgroup) = &cgroup {
        let door = cgroup.0.join("cgroup.procs");
        // SAFETY: between fork and exec it opens and writes one file, in a program of one thread.
        unsafe { command.pre_exec(move || fs::write(&door, "0")) };
    }
    let child = command.spawn()?;
    let (waited, own) = end_of(&child)?;
    let total = cgroup.as_ref().and_then(Cgroup::cpu_time).unwrap_or(waited);
    let lines = fs::read_to_string(&output)?;
    let samples = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let sum = |key: &str| samples.iter().filter_map(|sample| sample["cpu"][key].as_f64()).sum::<f64>();
    let last = samples.last().context("no sample")?;
    Ok(Measured {
        truth: (total - own).as_secs_f64(),
        attributed: sum("process_utime_secs") + sum("process_stime_secs"),
        accounting: last["cpu"]["process_accounting"].as_str().unwrap_or("-").to_owned(),
        samples,
    })
}

/// Waits for the tracker: CPU time of it and of all that it waited for, and its own.
fn end_of(child: &Child) -> anyhow::Result<(Duration, Duration)> {
    let pid = child.id() as i32;
    // While it is a zombie, its clock can still be read.
    waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    let own = clock_of(pid).context("the tracker has no clock")?;
    let mut status = 0;
    // SAFETY: zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid to write to.
    let reaped = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    ensure!(reaped == pid && status == 0, "the tracker ended with status {status}");
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok((time(usage.ru_utime) + time(usage.ru_stime), own))
}

fn clock_of(pid: i32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write one value of their type.
    let read = unsafe { libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0 };
    read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// A cgroup of v2 for one run.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount =
            mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?.to_owned();
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let path = PathBuf::from(format!("{mount}{own}/benchmark.{}", std::process::id()));
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).ok()?;
        Some(Self(path))
    }

    fn cpu_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).ok()?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
        Some(Duration::from_micros(micros))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A worker that outlives its parent may still be about to end.
        let mut removed = fs::remove_dir(&self.0);
        for _ in 0..100 {
            if removed.is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
            removed = fs::remove_dir(&self.0);
        }
        if let Err(error) = removed {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// A crate with a few thousand lines, and the command that compiles it anew each time.
fn build_of_a_crate(directory: &Path) -> anyhow::Result<Option<Command>> {
    if Command::new("cargo").arg("--version").output().is_err() {
        return Ok(None);
    }
    fs::create_dir(directory.join("src"))?;
    fs::write(
        directory.join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
    )?;
    let functions = (0..500).map(|n| {
        format!("pub fn f{n}(v: &[u64]) -> String {{ v.iter().map(|x| format!(\"{{}}\", x + {n})).collect::<Vec<_>>().join(\",\") }}\n")
    });
    fs::write(directory.join("src/lib.rs"), functions.collect::<String>())?;
    let mut build = Command::new("sh");
    build.args(["-c", "rm -rf target && cargo build --quiet --offline"]).current_dir(directory);
    Ok(Some(build))
}

/// Disk bytes and peak memory.
fn others() -> anyhow::Result<()> {
    table::head("Other figures of the command", ["command", "interval", "true", "in the samples"]);
    let directory = tempfile::tempdir_in(".")?;
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1M", "count=64", "conv=fsync"])
        .arg(format!("of={}", directory.path().join("file").display()));
    let measured = run(INTERVALS[0], &[], &dd)?;
    let written: u64 =
        measured.samples.iter().filter_map(|sample| sample["cpu"]["process_disk_write_bytes"].as_u64()).sum();
    table::row([
        "`dd` of 64 MiB to a file".into(),
        "1s".into(),
        format!("{} bytes", 64 << 20),
        format!("{written} bytes"),
    ]);
    let measured = run(INTERVALS[0], &[], &part(&["job", "peak"])?)?;
    let peak = measured.samples.last().and_then(|sample| sample["cpu"]["process_peak_rss_mib"].as_f64()).unwrap_or(0.0);
    table::row([
        "500 MiB for 50 ms".into(),
        "1s".into(),
        "500 MiB and the program".into(),
        format!("{peak:.1} MiB at most"),
    ]);
    println!();
    Ok(())
}
