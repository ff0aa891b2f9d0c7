//! What the tracker was started with is what the command is started with, also where the tracker has made use of it itself.

use std::ffi::OsString;
use std::process::Command;

use resource_tracker_tests::bare::{bare_and_wrapped, before_exec};
use resource_tracker_tests::{command, has, is_root, text, tracker};

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Runs the program in a shell, after these words.
fn after(words: &str, program: &Command) -> String {
    let mut shell = command("bash");
    shell.args(["-c", &format!("{words}; exec \"$@\""), "bash"]).arg(program.get_program()).args(program.get_args());
    let output = shell.output().unwrap();
    format!("{}{}", text(&output.stdout), output.status)
}

/// The soft limit is the mark by which the tracker knows its own children. With only four descriptors the command takes
/// the tracker's place.
#[test]
fn the_limit_of_resident_memory_is_the_command_s() {
    let show = ["bash", "-c", "ulimit -Sm; ulimit -Hm; cat /proc/self/limits"];
    for limit in ["true", "ulimit -Sm 1000", "ulimit -m 5000000", "ulimit -m 0", "ulimit -Hm 40000000"] {
        for descriptors in ["true", "ulimit -n 4"] {
            let words = format!("{limit}; {descriptors}");
            let [bare, wrapped] = bare_and_wrapped(&show).map(|command| after(&words, &command));
            assert!(bare.contains("Max resident set"), "{bare}");
            assert_eq!(wrapped, bare, "{words}");
        }
    }
}

/// Little room for a stack is room enough for a command, and not for the tracker.
#[test]
fn a_small_limit_of_the_stack_is_the_command_s() {
    let script = format!("ulimit -Ss 32; exec {} -q -- sh -c 'ulimit -s; exit 3'", tracker().display());
    let output = command("sh").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(3), "32"), "{}", text(&output.stderr));
}

#[test]
fn a_command_adopts_orphans_when_who_started_the_tracker_has_said_so() {
    for adopts in [false, true] {
        for (options, limit) in [(&[][..], 64), (&["--no-subreaper"], 64), (&[], 4)] {
            let mut bare = command(JOB);
            let mut wrapped = command(tracker());
            for command in [bare.arg("is-subreaper"), wrapped.arg("-q").args(options).args(["--", JOB, "is-subreaper"])]
            {
                before_exec(command, move || {
                    let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
                    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
                    rustix::process::set_child_subreaper(adopts.then(rustix::process::getpid))
                });
                let output = command.output().unwrap();
                assert_eq!(text(&output.stdout), format!("{adopts}\n"), "{command:?} {limit}");
            }
        }
    }
}

#[test]
fn scheduling_that_a_fork_resets_is_the_command_s() {
    if !is_root("real-time scheduling") || !has("chrt", "real-time scheduling") {
        return;
    }
    let show = ["sh", "-c", "chrt -p $$ | sed 's/[0-9]*.s current//'"];
    for words in ["--reset-on-fork --rr 5", "--reset-on-fork --batch 0", "--fifo 7"] {
        let run = |command: &Command| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let mut chrt = resource_tracker_tests::command("chrt");
            let output = chrt.args(words).arg(command.get_program()).args(command.get_args()).output().unwrap();
            (output.status.code(), text(&output.stdout))
        };
        let [bare, wrapped] = bare_and_wrapped(&show).each_ref().map(run);
        assert_eq!(wrapped, bare, "{words}");
    }
}

/// Files that are opened later must not be taken for the standard ones, to which messages are written.
#[test]
fn closed_descriptors_are_filled_also_without_a_dev() {
    if !is_root("a /dev that is empty") || !has("unshare", "a /dev that is empty") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs none /dev && exec \"$@\" <&- >&- 2>&-";
    let show = "for n in 0 1 2; do readlink /proc/$PPID/fd/$n || echo none; done >found; ls -l /proc/self/fd >own";
    let mut unshare = command("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(tracker()).args(["-o", "samples", "--", "sh", "-c", show]);
    assert!(unshare.current_dir(folder.path()).status().unwrap().success());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("found"), "/\n/\n/\n");
    assert!(!read("own").contains("-> /\n"), "the command finds them closed: {}", read("own"));
}
