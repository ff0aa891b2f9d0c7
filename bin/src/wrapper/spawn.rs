//! The command as it would have been started without the tracker.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use rustix::process::Pid;

use super::cgroup::OwnCgroup;
use super::children::Children;
use super::environment::Environment;
use super::fork::Launch;
use super::supervise::Supervisor;
use crate::inherited::Inherited;

/// Exit codes of the shell for a command that cannot be run.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// From this similarity on, one name is a slip of another: `sumary` is one of `summary`, `compile` is none of
/// `compare`.
const SLIP: f64 = 0.9;

pub(super) enum Spawned {
    Child(Pid),
    /// There is no room for it beside the tracker, or a sandbox refuses a process of its own.
    NoRoom(io::Error),
    /// It could not be run, and a message has said so; the exit code.
    Failed(i32),
}

/// Starts the command, in the cgroup if there is one. Returns when it is the program, or has ended before that; `meanwhile` is
/// called when it has a process.
pub(super) fn spawn(
    command: &[OsString],
    inherited: &Inherited,
    cgroup: &mut OwnCgroup,
    supervisor: &mut Supervisor,
    children: &mut Children,
    meanwhile: &mut dyn FnMut(),
) -> Spawned {
    let program = match Program::new(command) {
        Ok(program) => program,
        Err(error) => return Spawned::Failed(complain(command, &error, "")),
    };
    let tasks_files = cgroup.tasks_files();
    let tracker = std::process::id() as i32;
    let witness = &supervisor.witness;
    let prepare = || {
        inherited.die_with(tracker);
        witness.catch_up();
        tasks_files.iter().for_each(enter);
    };
    let exec = || program.exec(inherited);
    // SAFETY: entering and executing make nothing but system calls.
    let mut launch = unsafe { Launch::begin(cgroup.unified(), prepare, exec) };
    if cgroup.unified().is_some() && launch.as_ref().is_err_and(is_of_the_cgroup) {
        cgroup.give_up_unified();
        // SAFETY: as above.
        launch = unsafe { Launch::begin(None, prepare, exec) };
    }
    let mut launch = match launch {
        Ok(launch) => launch,
        Err(error) => return Spawned::NoRoom(error),
    };
    children.command_began(launch.child().as_raw_nonzero().get());
    meanwhile();
    supervisor.until_exec(&mut launch);
    match launch.end() {
        Ok(child) => Spawned::Child(child),
        Err(error) if is_out_of_room(&error) => Spawned::NoRoom(error),
        Err(error) => {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let hint = || meant_recording(&command[0]).or_else(|| meant_tool(&command[0]));
            let hint = if is_missing { hint().unwrap_or_default() } else { String::new() };
            Spawned::Failed(complain(command, &error, &hint))
        }
    }
}

/// Replaces the tracker by the command. Returns the exit code if that fails.
pub(super) fn replace_tracker(command: &[OsString], inherited: &Inherited, reason: &io::Error) -> i32 {
    log::warn!("no room for the command beside the tracker ({reason}); it runs without");
    let error = match Program::new(command) {
        Ok(program) => program.exec(inherited),
        Err(error) => error,
    };
    complain(command, &error, "")
}

/// What `execvp` takes, made before the fork, after which no memory may be asked for.
struct Program {
    pointers: Vec<*const c_char>,
    /// What the pointers point to.
    _arguments: Vec<CString>,
    environment: Option<Environment>,
}

impl Program {
    fn new(command: &[OsString]) -> io::Result<Self> {
        let arguments = command.iter().map(|argument| CString::new(argument.as_bytes()));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let pointers = arguments.iter().map(|argument| argument.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { pointers, _arguments: arguments, environment: Environment::naming_the_command() })
    }

    /// Becomes the program, searched for in `PATH`, or says why not. Makes nothing but system calls.
    fn exec(&self, inherited: &Inherited) -> io::Error {
        if let Err(error) = inherited.restore() {
            return error.into();
        }
        if let Some(environment) = &self.environment {
            environment.enter();
        }
        // SAFETY: the pointers are strings that live as long as `self`, and end with a null.
        unsafe { libc::execvp(self.pointers[0], self.pointers.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The command runs whether or not it gets into its cgroup.
fn enter(mut tasks: &File) {
    let _ = tasks.write_all(b"0");
}

/// Whether to try again without the cgroup: the kernel or a sandbox does not know `clone3`, or the cgroup takes no
/// process, or it is gone, or its handle is the one descriptor too many.
fn is_of_the_cgroup(error: &io::Error) -> bool {
    !is_out_of_processes(error)
}

/// No more processes, memory or descriptors.
fn is_out_of_room(error: &io::Error) -> bool {
    is_out_of_processes(error) || matches!(number(error), Some(Errno::EMFILE | Errno::ENFILE))
}

fn is_out_of_processes(error: &io::Error) -> bool {
    matches!(number(error), Some(Errno::EAGAIN | Errno::ENOMEM))
}

fn number(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

fn complain(command: &[OsString], error: &io::Error, hint: &str) -> i32 {
    log::error!("cannot run {}: {error}{hint}", command[0].display());
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// A hint if a recording was named in place of a program.
fn meant_recording(program: &OsStr) -> Option<String> {
    let name = program.to_str().filter(|name| name.contains(".jsonl") && Path::new(name).is_file())?;
    Some(format!("; `{} summary {name}` says what a recording holds", crate::PROGRAM))
}

/// A hint if the name of a tool of the tracker was mistyped, and is no program.
fn meant_tool(program: &OsStr) -> Option<String> {
    let name = program.to_str().filter(|name| !name.contains('/'))?;
    // A program that is there may lack its interpreter.
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(name).exists()) {
        return None;
    }
    let command = crate::cli::command();
    let mut tools = command.get_subcommands().map(clap::Command::get_name);
    let meant = tools.find(|tool| strsim::jaro_winkler(name, tool) > SLIP)?;
    Some(format!("; did you mean `{} {meant}`?", crate::PROGRAM))
}
