//! What the tests of the whole binary share.

pub mod bare;
pub mod gpu;
pub mod plugin;
mod recording;
pub mod sandbox;
pub mod sentinel;
pub mod server;
pub mod slurm;
pub mod spool;
pub mod terminal;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use serde_json::Value as Json;

pub use recording::Recording;

/// The real binary, built if need be, in the profile of the tests.
pub fn tracker() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build(&profile_directory(), "resource-tracker"))
}

/// The names in a folder, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// A copy of the real binary. Another process makes it: a process that this one forks meanwhile would have it open for
/// writing, and a file that is open for writing cannot be executed.
pub fn copy_tracker(to: &Path) {
    let status = Command::new("cp").arg(tracker()).arg(to).status().expect("cp runs");
    assert!(status.success(), "cannot copy the tracker to {}", to.display());
}

/// The program with jobs whose use of the machine is known. It was built with the tests.
pub fn job() -> PathBuf {
    profile_directory().join("job")
}

/// The program of the benchmarks, whose jobs are hard to account for.
pub fn benchmarks() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build(&profile_directory(), "benchmarks"))
}

/// The folder of the tests' own profile: `target/debug`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(2).expect("tests lie in PROFILE/deps").to_owned()
}

/// The release binary, which is what users get.
pub fn release_tracker() -> PathBuf {
    build(&profile_directory().with_file_name("release"), "resource-tracker")
}

/// A shared library of this workspace, built if need be, in the profile of the tests.
pub fn shared_library(package: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let directory = profile_directory();
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.insert(package.to_owned()) {
        build(&directory, package);
    }
    directory.join(format!("lib{}.so", package.replace('-', "_")))
}

fn build(directory: &Path, package: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package, "--target-dir"]);
    build.arg(directory.parent().expect("a profile lies in the target directory"));
    if directory.ends_with("release") {
        build.arg("--release");
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let status = build.args(["--manifest-path", manifest]).status().expect("cargo runs");
    assert!(status.success(), "the binary does not build");
    directory.join(package)
}

/// A command with none of the tracker's variables in its environment, nothing on its standard input, and no signal ignored.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let is_ours = |name: &str| {
        let starts = ["TRACKER_", "SENTINEL_", "AWS_", "SLURM_", "GITHUB_", "CI_", "GITLAB_"];
        starts.iter().any(|start| name.starts_with(start)) || name.to_lowercase().ends_with("_proxy")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    // The program that started the tests may ignore some: `nohup` and `&` in a script do, and a program in Python.
    let hear_all = || {
        let ignored = Signal::iterator().filter(|signal| ![Signal::SIGKILL, Signal::SIGSTOP].contains(signal));
        for ignored in ignored {
            // SAFETY: no handler is set.
            unsafe { signal(ignored, SigHandler::SigDfl)? };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes nothing but system calls.
    unsafe { command.pre_exec(hear_all) };
    command.stdin(Stdio::null());
    command
}

/// Runs the tracker with these arguments, to its end.
pub fn track<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command(tracker()).args(arguments).output().expect("the tracker runs")
}

/// Runs a tracker without a command until it has printed so many lines, then stops it with SIGTERM.
pub fn stop_after(lines: usize, tracker: &mut Command) -> Output {
    stop_when(lines, "", tracker)
}

/// As `stop_after`, of lines that contain the text.
pub fn stop_when(lines: usize, text: &str, tracker: &mut Command) -> Output {
    let mut child = tracker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tracker runs");
    let mut reader = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut stdout = String::new();
    let mut missing = lines;
    while missing > 0 {
        let start = stdout.len();
        let count = reader.read_line(&mut stdout).expect("a pipe can be read");
        assert!(count > 0, "it ended before {missing} more lines with {text:?}: {stdout}");
        missing -= usize::from(stdout[start..].contains(text));
    }
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGTERM);
    let mut stdout = stdout.into_bytes();
    reader.read_to_end(&mut stdout).expect("a pipe can be read");
    Output { stdout, ..child.wait_with_output().expect("the tracker ends") }
}

/// Does something up to three times, until it reports that it was in time: a shared machine can stand still for
/// seconds. It asserts everything else itself, and so fails at once. The file `RESOURCE_TRACKER_LATE` gets a line for
/// each time that it was too late.
pub fn in_time(mut was_in_time: impl FnMut() -> bool) {
    for _ in 0..3 {
        if was_in_time() {
            return;
        }
        let test = std::thread::current().name().unwrap_or("a thread of a test").to_owned();
        println!("{test}: too late");
        if let Some(path) = std::env::var_os("RESOURCE_TRACKER_LATE") {
            let file = std::fs::File::options().create(true).append(true).open(path);
            file.and_then(|mut file| file.write_all(format!("{test}\n").as_bytes())).expect("a note can be taken");
        }
    }
    panic!("too late, three times");
}

/// Looks again and again until it is so, for a minute at most: a machine can be busy with much else.
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_for(Duration::from_secs(60), what, is_so);
}

/// As `wait_until`, for what takes so long at most.
pub fn wait_for(time: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The samples in what was printed; every line must be one.
pub fn samples(text: &[u8]) -> Vec<Json> {
    let text = std::str::from_utf8(text).expect("samples are UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// What was printed, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number at a path such as `/cpu/utilization_pct`.
pub fn number(sample: &Json, pointer: &str) -> f64 {
    sample.pointer(pointer).and_then(Json::as_f64).unwrap_or_else(|| panic!("no number at {pointer} in {sample}"))
}

/// Whether the test runs as root; says that it is skipped otherwise.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {test} needs root");
    }
    root
}

/// Whether a program is installed; says that the test is skipped otherwise.
pub fn has(program: &str, test: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("skipped: {test} needs {program}");
    }
    found
}
