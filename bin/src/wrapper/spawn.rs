//! The command as it would have been started without the tracker.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use rustix::process::Pid;

use super::cgroup::OwnCgroup;
use super::fork::fork_exec;
use crate::inherited::Inherited;

/// Exit codes of the shell for a command that cannot be run.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

pub(super) enum Spawned {
    Child(Pid),
    /// It could not be run, which was said; the exit code.
    Failed(i32),
}

/// Starts the command, in the cgroup if there is one. To be called before the program starts threads.
pub(super) fn spawn(command: &[OsString], inherited: &Inherited, cgroup: &mut OwnCgroup) -> Spawned {
    let mut process = prepare(command, inherited);
    let doors = cgroup.doors();
    let mut exec = || {
        doors.iter().for_each(enter);
        process.exec()
    };
    // SAFETY: this is still the only thread.
    let mut child = unsafe { fork_exec(cgroup.unified(), &mut exec) };
    if cgroup.unified().is_some() && child.as_ref().is_err_and(may_be_of_the_cgroup) {
        cgroup.give_up_unified();
        // SAFETY: as above.
        child = unsafe { fork_exec(None, &mut exec) };
    }
    match child {
        Ok(child) => Spawned::Child(child),
        Err(error) if is_out_of_processes(&error) => {
            // No room for two: the command takes the tracker's place.
            log::warn!("no process for the command ({error}); it runs without the tracker");
            Spawned::Failed(complain(command, &process.exec()))
        }
        Err(error) => Spawned::Failed(complain(command, &error)),
    }
}

fn prepare(command: &[OsString], inherited: &Inherited) -> Command {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]);
    let inherited = *inherited;
    // SAFETY: between fork and exec, the closure makes nothing but system calls.
    unsafe { process.pre_exec(move || inherited.restore().map_err(io::Error::from)) };
    process
}

/// The command runs whether or not it gets into its cgroup.
fn enter(mut door: &File) {
    let _ = door.write_all(b"0");
}

/// Whether it is worth trying again without: a kernel or a sandbox that does not know `clone3`, or a cgroup that takes
/// no process. Errors of `exec` can be among them; those come again.
fn may_be_of_the_cgroup(error: &io::Error) -> bool {
    !is_out_of_processes(error) && error.kind() != io::ErrorKind::NotFound
}

fn is_out_of_processes(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EAGAIN | Errno::ENOMEM))
}

fn complain(command: &[OsString], error: &io::Error) -> i32 {
    log::error!("cannot run {}: {error}", command[0].display());
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}
