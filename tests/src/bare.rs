//! A command bare and behind the tracker.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{command, tracker, wait_until};

/// The names of the companions: one shows which signals went to the group, the other wakes a stopped tracker.
pub const WITNESS: &str = "signal-witness";
pub const GUARDIAN: &str = "stop-guardian";

/// A command without and with the tracker in front. No core is written.
pub fn bare_and_wrapped(arguments: &[&str]) -> [Command; 2] {
    let wrapped = [tracker().as_os_str(), "-q".as_ref(), "--".as_ref()].map(OsStr::to_owned);
    let bare: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    [bare.clone(), wrapped.into_iter().chain(bare).collect()].map(|words| {
        let mut command = command(&words[0]);
        command.args(&words[1..]);
        before_exec(&mut command, || setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }));
        command
    })
}

/// A script of a shell, without and with the tracker.
pub fn shell(script: &str) -> [Command; 2] {
    bare_and_wrapped(&["sh", "-c", script])
}

/// Makes the call in the child, before it becomes the program.
pub fn before_exec(command: &mut Command, call: impl Fn() -> rustix::io::Result<()> + Send + Sync + 'static) {
    // SAFETY: what is called makes nothing but system calls.
    unsafe { command.pre_exec(move || Ok(call()?)) };
}

/// Both end in the same way, which is returned.
pub fn same_end(mut commands: [Command; 2], case: &str, mut end: impl FnMut(&mut Command) -> ExitStatus) -> ExitStatus {
    let [bare, wrapped] = commands.each_mut().map(&mut end);
    assert_eq!(wrapped.into_raw(), bare.into_raw(), "{case}: {wrapped} and not {bare}");
    bare
}

/// Its process id.
pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Starts it, and waits until the job has said that it runs: its first line, and the lines that follow.
pub fn start(command: &mut Command) -> (Child, String, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    (child, first, lines)
}

/// `R`, `S`, `T` and so on; nothing when there is no such process.
pub fn state(pid: impl std::fmt::Display) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").map_or(String::new(), |(_, rest)| rest[..1].to_owned())
}

/// Whether it is there and not stopped.
pub fn runs(pid: impl std::fmt::Display) -> bool {
    !["", "Z", "T"].contains(&state(pid).as_str())
}

/// The tracker and what it started.
pub fn kill_all(mut child: Child, job: &str) {
    if let Ok(job) = job.trim().parse() {
        let _ = kill(Pid::from_raw(job), Signal::SIGKILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until the child is stopped, and says by what.
pub fn stopped(child: &Child) -> Signal {
    match waitpid(pid(child), Some(WaitPidFlag::WUNTRACED)) {
        Ok(WaitStatus::Stopped(_, signal)) => signal,
        other => panic!("not stopped: {other:?}"),
    }
}

/// Whether the signal waits for the process.
pub fn is_pending(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    (set("SigPnd:") | set("ShdPnd:")) & (1 << (signal as i32 - 1)) != 0
}

/// What a job hears of these signals, each sent when the one before it was heard.
pub fn heard(command: &mut Command, signals: &[Signal], send: impl Fn(Pid, Signal)) -> Vec<String> {
    let (mut child, first, mut lines) = start(command.process_group(0));
    assert!(first.starts_with("ready"));
    let mut heard = Vec::new();
    for signal in signals {
        send(pid(&child), *signal);
        heard.push(lines.next().unwrap().unwrap());
    }
    // Of what is pending, the lowest number comes first: nothing is under way when this one comes.
    // SAFETY: a system call on numbers; the child was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGRTMAX()) };
    heard.extend(lines.map(Result::unwrap));
    assert!(child.wait().unwrap().success());
    heard
}

/// The companion of this name that a tracker has, once it has settled.
pub fn companion(tracker: &Child, name: &str) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", tracker.id())).ok()?;
    let pid = children.split_whitespace().find(|pid| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("comm").trim() == name && !["", "Z"].contains(&state(pid).as_str())
    })?;
    let pid = Pid::from_raw(pid.parse().ok()?);
    // The guardian enters a session of its own a moment after it has its name.
    (name != GUARDIAN || nix::unistd::getsid(Some(pid)) == Ok(pid)).then_some(pid)
}

/// Waits until there is such a companion, and not this one.
pub fn another_companion(tracker: &Child, name: &str, last: Option<Pid>) -> Pid {
    let mut found = None;
    wait_until(name, || {
        found = companion(tracker, name).filter(|pid| Some(*pid) != last);
        found.is_some()
    });
    found.unwrap()
}
