//! The command cannot tell that it is wrapped: the same run, bare and behind the tracker, side by side.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use resource_tracker_tests::{Recording, command, has, in_time, is_root, samples, text, track, tracker, wait_until};

/// The exit code as a shell reports it.
fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap())
}

/// Runs a command bare and wrapped, with the same preparation, and compares what comes out.
fn same(arguments: &[&OsStr], prepare: impl Fn(&mut Command)) -> Output {
    let mut bare = command(arguments[0]);
    prepare(bare.args(&arguments[1..]));
    let bare = bare.output().unwrap();
    let mut wrapped = command(tracker());
    prepare(wrapped.args(["-o", "/dev/null", "--"]).args(arguments));
    let wrapped = wrapped.output().unwrap();
    assert_eq!(code(&wrapped), code(&bare), "{arguments:?}");
    assert_eq!(text(&wrapped.stdout), text(&bare.stdout), "{arguments:?}");
    assert_eq!(text(&wrapped.stderr), text(&bare.stderr), "{arguments:?}");
    assert_eq!(wrapped.status.signal(), bare.status.signal(), "{arguments:?}");
    wrapped
}

fn same_shell(script: &str) -> Output {
    same(&["sh".as_ref(), "-c".as_ref(), script.as_ref()], |_| ())
}

#[test]
fn exit_codes_and_deaths() {
    for script in ["exit 0", "exit 1", "exit 255", "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$", "kill -40 $$"] {
        same_shell(script);
    }
}

#[test]
fn what_cannot_be_run() {
    assert_eq!(track(["-q", "--", "no-such-program"]).status.code(), Some(127));
    assert_eq!(track(["-q", "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(track(["-q", "--", "/"]).status.code(), Some(126));
    assert_eq!(track(["-q", "--", ""]).status.code(), Some(127));
    let message = text(&track(["-q", "--", "no-such-program"]).stderr);
    assert!(message.contains("no-such-program") && message.lines().count() == 1);
}

#[test]
fn arguments_environment_and_directory() {
    let odd = OsString::from_vec(b"\xff\xfe not utf-8".to_vec());
    same(
        &[
            "printf".as_ref(),
            "%s|".as_ref(),
            "two words".as_ref(),
            "a\nb".as_ref(),
            "".as_ref(),
            &odd,
            "--flag".as_ref(),
            "-x".as_ref(),
        ],
        |_| (),
    );
    same(&["env".as_ref()], |command| {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("ODD", &odd)
            .env("SENTINEL_API_URL", "https://sentinel.example.com");
    });
    same_shell("pwd; umask; ulimit -a; ps -o pgid= -p $$ | tr -d ' ' | grep -q . && echo grouped");
    same(&["pwd".as_ref()], |command| _ = command.current_dir("/"));
}

#[test]
fn standard_streams() {
    let shout = "tr a-z A-Z; echo done >&2";
    let wrapped = |program: &mut Command| {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"some text\n").unwrap();
        child.wait_with_output().unwrap()
    };
    let output = wrapped(command(tracker()).args(["-o", "/dev/null", "--", "sh", "-c", shout]));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("SOME TEXT\n", "done\n"));

    let lines = [env!("CARGO_BIN_EXE_job").as_ref(), "lines".as_ref(), "10000".as_ref()];
    assert_eq!(same(&lines, |_| ()).stdout.iter().filter(|byte| **byte == b'\n').count(), 10_000);

    // Closed descriptors stay closed.
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = |prefix: &str| {
            format!(
                "{prefix} sh -c 'for fd in 0 1 2; do test -e /proc/self/fd/$fd || echo $fd; done > \"$OUT\"; exit 7' {closed}"
            )
        };
        let directory = tempfile::tempdir().unwrap();
        let run = |name: &str, prefix: &str| {
            let out = directory.path().join(name);
            let status = command("sh").args(["-c", &script(prefix)]).env("OUT", &out).status().unwrap();
            (status.code(), std::fs::read_to_string(out).unwrap())
        };
        let wrapped = run("wrapped", &format!("{} -o /dev/null --", tracker().display()));
        assert_eq!(wrapped, run("bare", ""), "{closed}");
        assert_eq!(wrapped.0, Some(7));
    }
}

#[test]
fn only_the_three_standard_descriptors_are_inherited() {
    same_shell("ls /proc/self/fd | wc -l");
}

#[test]
fn a_reader_that_leaves_early() {
    let tracker = tracker().display().to_string();
    let script = |prefix: &str| format!("{prefix} yes | head -1; echo ${{PIPESTATUS[@]}}");
    let bash = |script: &str| text(&command("bash").args(["-c", script]).output().unwrap().stdout);
    assert_eq!(bash(&script(&format!("{tracker} -o /dev/null --"))), bash(&script("")));
}

#[test]
fn signal_dispositions_and_mask() {
    let show = "grep -E '^(SigBlk|SigIgn)' /proc/self/status";
    same_shell(show);
    for ignored in [Signal::SIGHUP, Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGINT] {
        same(&["grep".as_ref(), "-E".as_ref(), "^(SigBlk|SigIgn)".as_ref(), "/proc/self/status".as_ref()], |command| {
            // SAFETY: ignoring a signal runs no code, and the call is async-signal-safe.
            unsafe { command.pre_exec(move || signal(ignored, SigHandler::SigIgn).map(drop).map_err(Into::into)) };
        });
    }
}

#[test]
fn the_exit_code_survives_an_ignored_sigchld() {
    let mut command = command(tracker());
    // SAFETY: ignoring a signal runs no code, and the call is async-signal-safe.
    unsafe { command.pre_exec(|| signal(Signal::SIGCHLD, SigHandler::SigIgn).map(drop).map_err(Into::into)) };
    assert_eq!(command.args(["-q", "--", "sh", "-c", "exit 9"]).status().unwrap().code(), Some(9));
}

#[test]
fn each_signal_reaches_the_command_once() {
    let mut job = command(tracker());
    let mut job =
        job.args(["-q", "--", env!("CARGO_BIN_EXE_job"), "signals", "5000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let sent = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1];
    for signal in sent {
        kill(Pid::from_raw(job.id() as i32), signal).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), (signal as i32).to_string(), "a command that ignores it lives on");
    }
    assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), [""; 0], "each once");
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

#[test]
fn a_command_that_dies_of_the_signal_ends_the_tracker_by_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let recording = Recording::new();
        let mut job = command(tracker());
        let mut job = job.args(["-i", "50ms", "-o"]).arg(recording.path()).args(["--", "sleep", "30"]).spawn().unwrap();
        wait_until("a sample", || !recording.samples().is_empty());
        kill(Pid::from_raw(job.id() as i32), signal).unwrap();
        assert_eq!(job.wait().unwrap().signal(), Some(signal as i32));
    }
}

#[test]
fn the_command_lives_on_when_the_tracker_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (begun, done) = (directory.path().join("begun"), directory.path().join("done"));
    let script = format!("touch {}; sleep 0.5; touch {}", begun.display(), done.display());
    let mut job = command(tracker()).args(["-q", "--", "sh", "-c", &script]).spawn().unwrap();
    wait_until("the command", || begun.exists());
    job.kill().unwrap();
    job.wait().unwrap();
    wait_until("its end", || done.exists());
}

#[test]
fn orphans_stay_in_the_tree_and_are_reaped() {
    let recording = Recording::new();
    // The parent of the orphan has ended and was waited for before anything is printed.
    let script = format!("setsid sh -c 'sleep 100 & echo $!'; sleep 100 & echo $!; {}", recording.until_told());
    let mut tracker = command(tracker());
    tracker.args(["-i", "50ms", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]);
    let run = recording.start(&mut tracker);
    let said = || text(&std::fs::read(recording.stdout()).unwrap());
    wait_until("both of them", || said().lines().count() == 2);
    let before = recording.samples().len();
    wait_until("samples", || recording.samples().len() >= before + 4);
    let children = |samples: &[serde_json::Value]| -> Vec<Option<u64>> {
        samples.iter().map(|sample| sample["cpu"]["process_child_count"].as_u64()).collect()
    };
    // The orphaned sleep, the shell's own, and the program that waits; the first sample can be of before.
    let seen = children(&recording.samples()[before + 1..]);
    assert!(seen.iter().all(|count| *count == Some(3)), "{seen:?}");
    let said = said();
    let [orphan, own] = said.lines().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>()[..] else {
        panic!("{said}")
    };
    kill(Pid::from_raw(orphan), Signal::SIGKILL).unwrap();
    wait_until("the end of the orphan", || !std::path::Path::new(&format!("/proc/{orphan}")).exists());
    kill(Pid::from_raw(own), Signal::SIGKILL).unwrap();
    recording.go_on();
    assert_eq!(recording.end(run).status.code(), Some(0));
}

#[test]
fn as_the_first_process_of_a_container() {
    in_time(|| {
        if !is_root("a pid namespace") || !has("unshare", "a pid namespace") {
            return true;
        }
        let unshare = |arguments: &[&str]| {
            command("unshare").args(["--pid", "--fork", "--mount-proc"]).args(arguments).output().unwrap()
        };
        let tracker = tracker().to_str().unwrap();
        let script = "for i in 1 2 3; do (sleep 0.1 &) ; done; sleep 0.4; ps -eo stat= | grep -c Z; exit 5";
        let output = unshare(&[tracker, "-i", "50ms", "-o", "/dev/null", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        let zombies = text(&output.stdout);
        let output = unshare(&["sh", "-c", &format!("exec {tracker} -q -- sh -c 'kill -TERM 1; sleep 5'")]);
        assert_eq!(output.status.code(), Some(143), "a SIGTERM to process 1 reaches the command");
        zombies.trim() == "0"
    });
}

#[test]
fn under_nohup() {
    let mut job = command("nohup");
    let mut job = job.arg(tracker()).args(["-i", "50ms"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0];
    job.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    kill(Pid::from_raw(job.id() as i32), Signal::SIGHUP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(job.try_wait().unwrap().is_none(), "SIGHUP is ignored, as nohup wishes");
    kill(Pid::from_raw(job.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

#[test]
fn with_few_descriptors_and_few_processes() {
    in_time(|| {
        let tracker = tracker().display().to_string();
        let bash = |limit: &str| {
            let script = format!("{limit}; {tracker} -i 50ms -o /dev/stdout -- sh -c 'sleep 0.3; exit 4'");
            command("bash").args(["-c", &script]).output().unwrap()
        };
        let output = bash("ulimit -n 64");
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(4), ""));
        let count = samples(&output.stdout).len();
        let output = bash("ulimit -v 300000");
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));

        if !is_root("a limit of processes") || !has("setpriv", "a limit of processes") {
            return count >= 4;
        }
        // The limit does not bind root. The binary must be where another user can read it.
        let directory = tempfile::Builder::new()
            .prefix("tracker")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .unwrap();
        let copy = directory.path().join("resource-tracker");
        resource_tracker_tests::copy_tracker(&copy);
        for processes in 1..12 {
            let script = format!(
                "ulimit -u {processes}; exec setpriv --reuid 54321 --regid 54321 --clear-groups {} -q -i 10ms -- sh -c 'exit 4'",
                copy.display()
            );
            let output = command("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.status.code(), Some(4), "{processes} processes: {}", text(&output.stderr));
        }
        count >= 4
    });
}
