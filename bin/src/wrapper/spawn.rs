//! The command as it would have been started without the tracker.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use rustix::process::Pid;

use crate::inherited::Inherited;

/// Exit codes of the shell for a command that cannot be run.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

pub(super) enum Spawned {
    Child(Pid),
    /// It could not be run, which was said; the exit code.
    Failed(i32),
}

pub(super) fn spawn(command: &[OsString], inherited: &Inherited) -> Spawned {
    let mut process = prepare(command, inherited);
    match process.spawn() {
        Ok(child) => Spawned::Child(Pid::from_child(&child)),
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
