//! Where the kernel refuses what the tracker asks for, the command runs and ends as it does without it.

use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use resource_tracker_tests::bare::{bare_and_wrapped, same_end};
use resource_tracker_tests::sandbox::refuse;

/// Waits for the end, which must come: a tracker that waits for something impossible would wait for ever.
fn end(command: &mut Command) -> ExitStatus {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_end_is_that_of_the_command_whatever_a_sandbox_refuses() {
    let calls = [
        ("kill", libc::SYS_kill),
        ("waitid", libc::SYS_waitid),
        ("wait4", libc::SYS_wait4),
        ("pipe2", libc::SYS_pipe2),
        ("signalfd4", libc::SYS_signalfd4),
        ("clone", libc::SYS_clone),
    ];
    // A program that makes none of these calls itself.
    let job = resource_tracker_tests::job();
    for (name, call) in calls {
        for error in [Errno::EPERM, Errno::ENOSYS] {
            let mut commands = bare_and_wrapped(&[job.to_str().unwrap(), "exit", "7"]);
            commands.iter_mut().for_each(|command| refuse(command, &[call], error));
            let status = same_end(commands, &format!("{name}: {error}"), end);
            assert_eq!(status.code(), Some(7), "{name}: {error}");
        }
    }
}
