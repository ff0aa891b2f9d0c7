//! Signals, stops and ends are those of the bare command: each case is run bare and behind the tracker, and compared by
//! what `waitpid` says.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use nix::libc;
use nix::sys::signal::{Signal, kill, killpg};
use resource_tracker_tests::bare::{
    bare_and_wrapped, before_exec, heard, is_pending, kill_all, pid, runs, same_end, shell, start, state, stopped,
};
use resource_tracker_tests::{command, has, samples, text, tracker, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const JOB: &str = env!("CARGO_BIN_EXE_job");

#[test]
fn the_end_is_that_of_the_command() {
    for script in ["exit 0", "exit 7", "exit 255"] {
        same_end(shell(script), script, |command| command.status().unwrap());
    }
    for signal in ["HUP", "INT", "QUIT", "ABRT", "KILL", "SEGV", "PIPE", "ALRM", "TERM", "USR1", "XCPU", "40"] {
        let script = format!("kill -{signal} $$");
        let ended = same_end(shell(&script), &script, |command| command.status().unwrap());
        assert!(ended.signal().is_some(), "{script}: {ended}");
    }
}

#[test]
fn the_core_is_the_commands() {
    let directory = tempfile::tempdir().unwrap();
    let mut tracker = command(tracker());
    tracker.args(["-q", "--", "sh", "-c", "ulimit -c 0; kill -SEGV $$"]).current_dir(&directory);
    before_exec(&mut tracker, || setrlimit(Resource::Core, Rlimit { current: None, maximum: None }));
    let ended = tracker.status().unwrap();
    assert_eq!((ended.signal(), ended.core_dumped()), (Some(libc::SIGSEGV), false));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn every_signal_to_the_tracker_is_one_to_the_command() {
    let is_deadly = |signal: &i32| {
        let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        // SIGKILL is what no parent can pass on.
        !harmless.contains(signal) && !stops.contains(signal) && *signal != libc::SIGKILL
    };
    for signal in (1..32).chain([libc::SIGRTMIN(), libc::SIGRTMAX()]).filter(is_deadly) {
        let ended = same_end(shell("echo ready; exec sleep 100"), &signal.to_string(), |command| {
            let (mut child, _, _) = start(command);
            // SAFETY: a system call on numbers; the child was not waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
            child.wait().unwrap()
        });
        assert_eq!(ended.signal(), Some(signal));
    }
}

/// Not even for a moment, in which a signal would have another effect than it has bare.
#[test]
fn the_disposition_of_requests_to_stop_is_asked_for_and_not_replaced() {
    if !has("strace", "the calls that the tracker makes") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    let mut strace = command("strace");
    strace.args(["-f", "-e", "trace=rt_sigaction,execve", "-o"]).arg(&log).arg(tracker());
    let output = strace.args(["-q", "--", "sh", "-c", "exit 7"]).output().unwrap();
    let calls = std::fs::read_to_string(&log).unwrap_or_default();
    if calls.is_empty() {
        eprintln!("skipped: strace may not trace here: {}", text(&output.stderr));
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{calls}");
    let started = |line: &&str| line.contains("execve(") && line.contains("\"exit 7\"") && !line.contains("\"--\"");
    let before: Vec<&str> = calls.lines().take_while(|line| !started(line)).collect();
    assert!(before.len() < calls.lines().count(), "the command's start is seen: {calls}");
    // Dispositions that the tracker sets for itself, of which one is known, are in the trace.
    assert!(before.iter().any(|line| line.contains("rt_sigaction(SIGPIPE, {")), "{calls}");
    for signal in ["HUP", "INT", "TERM", "QUIT"] {
        let replaced = format!("rt_sigaction(SIG{signal}, {{");
        assert!(!before.iter().any(|line| line.contains(&replaced)), "{signal}: {calls}");
    }
}

#[test]
fn an_alarm_that_was_set_before_ends_the_command() {
    let mut commands = bare_and_wrapped(&["sleep", "100"]);
    for command in &mut commands {
        before_exec(command, || {
            // SAFETY: it sets a timer of the process.
            unsafe { libc::alarm(1) };
            Ok(())
        });
    }
    let ended = same_end(commands, "alarm", |command| command.status().unwrap());
    assert_eq!(ended.signal(), Some(libc::SIGALRM));
}

#[test]
fn a_hang_up_reaches_the_command_of_a_session_leader() {
    let ended = same_end(shell("echo ready; exec sleep 100"), "hang-up", |command| {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        command.stdin(File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap());
        before_exec(command, || {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
        });
        let (mut child, _, _) = start(command);
        drop(terminal);
        child.wait().unwrap()
    });
    assert_eq!(ended.signal(), Some(libc::SIGHUP));
}

const REQUESTS: [Signal; 10] = [
    Signal::SIGCHLD,
    Signal::SIGURG,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGTERM,
    Signal::SIGTERM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

#[test]
fn a_signal_to_the_whole_group_is_heard_once() {
    let expected: Vec<String> =
        REQUESTS.iter().map(|signal| (*signal as i32).to_string()).chain([libc::SIGRTMAX().to_string()]).collect();
    for command in &mut bare_and_wrapped(&[JOB, "hear"]) {
        assert_eq!(heard(command, &REQUESTS, |group, signal| killpg(group, signal).unwrap()), expected, "{command:?}");
    }
    for command in &mut bare_and_wrapped(&[JOB, "hear"]) {
        assert_eq!(heard(command, &REQUESTS, |pid, signal| kill(pid, signal).unwrap()), expected, "{command:?}");
    }
    // A signal to the tracker alone, and then to the group: an earlier one to the group says nothing of the next.
    let [_, mut wrapped] = bare_and_wrapped(&[JOB, "hear"]);
    let signals = [Signal::SIGTERM; 20];
    let sent = std::cell::Cell::new(0);
    let heard = heard(&mut wrapped, &signals, |pid, signal| {
        // The command hears of one to the group at once. A second one while the first is pending is no second one.
        wait_until("the tracker has read the last one", || !is_pending(pid, signal));
        sent.set(sent.get() + 1);
        if sent.get() % 3 == 0 { killpg(pid, signal).unwrap() } else { kill(pid, signal).unwrap() }
    });
    assert_eq!(heard.len(), 21, "{heard:?}");
}

#[test]
fn a_signal_to_the_group_is_passed_on_to_a_command_that_has_left_it() {
    if !has("setsid", "a command that leaves its group") {
        return;
    }
    let [_, mut wrapped] = bare_and_wrapped(&["setsid", JOB, "hear"]);
    let heard = heard(&mut wrapped, &[Signal::SIGTERM, Signal::SIGINT], |group, signal| killpg(group, signal).unwrap());
    assert_eq!(heard, ["15".to_owned(), "2".to_owned(), libc::SIGRTMAX().to_string()]);
}

#[test]
fn nested_trackers_pass_a_signal_on_once() {
    let tracker = tracker().to_str().unwrap();
    let [_, mut wrapped] = bare_and_wrapped(&[tracker, "-q", "--", JOB, "hear"]);
    let heard_by_group = heard(&mut wrapped, &[Signal::SIGTERM], |group, signal| killpg(group, signal).unwrap());
    assert_eq!(heard_by_group, ["15".to_owned(), libc::SIGRTMAX().to_string()]);
}

/// A signal to all processes with the tracker's name is one to the tracker.
#[test]
fn a_signal_by_name_is_no_signal_to_the_group() {
    for finder in ["pidof", "pgrep"] {
        if !has(finder, "a signal by name") {
            continue;
        }
        // A name that no other program has, and not longer than the kernel keeps.
        let directory = tempfile::tempdir().unwrap();
        let name = format!("rt-{}", std::process::id());
        let copy = directory.path().join(&name);
        std::os::unix::fs::symlink(tracker(), &copy).unwrap();
        let (mut child, _, _) = start(command(&copy).args(["-q", "--", "sh", "-c", "echo ready; exec sleep 100"]));
        let found = text(&command(finder).arg(&name).output().unwrap().stdout);
        let found: Vec<&str> = found.split_whitespace().collect();
        assert_eq!(found, [child.id().to_string()], "{finder}");
        kill(pid(&child), Signal::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}

#[test]
fn a_command_that_stops_itself_stops_the_tracker_and_goes_on_with_it() {
    for signal in ["STOP", "TSTP", "TTIN", "TTOU"] {
        let script = format!("kill -{signal} $$; exit 7");
        let mut seen = Vec::new();
        let ended = same_end(shell(&script), &script, |command| {
            let mut child = command.process_group(0).spawn().unwrap();
            seen.push(stopped(&child));
            match seen.len() {
                1 => kill(pid(&child), Signal::SIGCONT).unwrap(),
                // As `fg` and `bg` do it.
                _ => killpg(pid(&child), Signal::SIGCONT).unwrap(),
            }
            child.wait().unwrap()
        });
        assert_eq!(ended.code(), Some(7));
        assert_eq!(seen[0], seen[1], "{script}");
        // By its process id alone, wrapped as well.
        let [_, mut wrapped] = shell(&script);
        let mut child = wrapped.process_group(0).spawn().unwrap();
        assert_eq!(stopped(&child), seen[0]);
        kill(pid(&child), Signal::SIGCONT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}

#[test]
fn a_tracker_that_is_told_to_stop_stops_the_command() {
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN] {
        for command in &mut shell("echo $$; while :; do sleep 0.05; done") {
            let (mut child, job, _) = start(command.process_group(0));
            kill(pid(&child), signal).unwrap();
            assert_eq!(stopped(&child), signal);
            assert_eq!(state(&job), "T");
            kill(pid(&child), Signal::SIGCONT).unwrap();
            wait_until("the command goes on", || state(&job) != "T" && state(child.id()) != "T");
            kill(pid(&child), Signal::SIGTERM).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        }
    }
}

/// Nothing must be left stopped because of the tracker: where a process that knows only the command continues or ends
/// it, the tracker goes on as well.
#[test]
fn no_tracker_stays_stopped_when_its_command_does_not() {
    let when_stopped = "(while [ \"$(cut -d' ' -f3 /proc/$$/stat)\" != T ]; do sleep 0.05; done";
    for (then, expected) in [("kill -CONT $$", 7 << 8), ("kill -KILL $$", libc::SIGKILL)] {
        let script = format!("{when_stopped}; {then}) & kill -STOP $$; exit 7");
        let ended = same_end(shell(&script), &script, |command| command.status().unwrap());
        assert_eq!(ended.into_raw(), expected);
    }
    // An orphaned group, in which the kernel ignores all stops but one.
    for signal in ["STOP", "TSTP"] {
        let script = format!("(sleep 1; kill -CONT $$ 2>/dev/null) & kill -{signal} $$; exit 7");
        let mut commands = shell(&script);
        for command in &mut commands {
            before_exec(command, || rustix::process::setsid().map(drop));
        }
        assert_eq!(same_end(commands, &script, |command| command.status().unwrap()).code(), Some(7));
    }
}

#[test]
fn a_loop_of_a_shell_ends_with_an_interrupt() {
    if !has("bash", "a loop of a shell") {
        return;
    }
    let tracker = tracker().display();
    for prefix in [String::new(), format!("{tracker} -q --")] {
        // The first line is of the command: until it runs, the shell would not have waited for it.
        let script =
            format!("for i in 1 2; do {prefix} sh -c 'echo ready; exec sleep 20'; done; echo the loop went on");
        let (mut child, _, lines) = start(command("bash").args(["-c", &script]).process_group(0));
        killpg(pid(&child), Signal::SIGINT).unwrap();
        assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), [""; 0], "{prefix}");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT), "{prefix}");
    }
}

#[test]
fn what_the_command_has_closed_is_closed() {
    for command in &mut shell("exec >&-; echo $$ >&2; exec sleep 100") {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut job = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut job).unwrap();
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(runs(job.trim()), "it closed its output and goes on");
        kill_all(child, &job);
    }
    for command in &mut shell("exec <&-; echo $$; exec sleep 100") {
        let (child, job, _lines) = start(command.stdin(Stdio::piped()));
        let input = child.stdin.as_ref().unwrap();
        wait_until("the end of the reader", || {
            let mut ready = [PollFd::new(input, PollFlags::empty())];
            poll(&mut ready, Some(&Timespec::default())).unwrap();
            ready[0].revents().contains(PollFlags::ERR)
        });
        assert!(runs(&job));
        kill_all(child, &job);
    }
    // The same with further descriptors, such as that of a lock.
    for command in &mut shell("exec 9>&-; echo $$; exec sleep 100") {
        let (mut read, write) = std::io::pipe().unwrap();
        let raw = write.as_raw_fd();
        // SAFETY: a system call on numbers.
        before_exec(command, move || match unsafe { libc::dup2(raw, 9) } {
            -1 => Err(rustix::io::Errno::BADF),
            _ => Ok(()),
        });
        let (child, job, _lines) = start(command);
        drop(write);
        read.read_to_string(&mut String::new()).unwrap();
        assert!(runs(&job));
        kill_all(child, &job);
    }
}

#[test]
fn samples_on_standard_output_still_arrive() {
    let mut tracker = command(tracker());
    tracker.args(["-i", "50ms", "-o", "-", "--", "sh", "-c", "exec >&-; sleep 0.5"]);
    assert!(!samples(&tracker.output().unwrap().stdout).is_empty());
}

#[test]
fn a_parent_death_signal_is_handed_on() {
    for (signal, dies) in [(libc::SIGKILL, true), (libc::SIGTERM, true), (0, false)] {
        let [_, mut wrapped] = shell("echo $$; exec sleep 100");
        before_exec(&mut wrapped, move || {
            // SAFETY: it sets a number.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
            Ok(())
        });
        let (mut child, job, _lines) = start(&mut wrapped);
        child.kill().unwrap();
        child.wait().unwrap();
        if dies {
            wait_until("the end of the command", || ["", "Z"].contains(&state(&job).as_str()));
        } else {
            assert!(runs(&job));
        }
        kill_all(child, &job);
    }
}

#[test]
fn variables_that_name_the_process_name_the_command() {
    let names = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];
    let export = names.map(|name| format!("export {name}=$$;")).concat();
    let show = names.map(|name| format!("test ${name} = $$ || echo {name} is ${name}, not $$;")).concat();
    for prefix in [String::new(), format!("{} -q --", tracker().display())] {
        let shell = |export: &str, show: &str| {
            let script = format!("{export} export LISTEN_FDS=1; exec {prefix} {show}");
            text(&command("sh").args(["-c", &script]).output().unwrap().stdout)
        };
        assert_eq!(shell(&export, &format!("sh -c '{show}'")), "", "{prefix}");
        // One that is meant for another process stays, and so does the rest.
        assert_eq!(shell("export LISTEN_PID=1 ODD=$$;", "sh -c 'echo $LISTEN_PID $LISTEN_FDS'"), "1 1\n", "{prefix}");
    }
    // The number of a pidfd as well. Bare, the process that started the command sets it.
    let script = format!("export LISTEN_PID=$$ LISTEN_PIDFDID=1; exec {} -q -- {JOB} pidfd", tracker().display());
    assert_eq!(text(&command("sh").args(["-c", &script]).output().unwrap().stdout), "true\n");
}

#[test]
fn few_descriptors_are_enough() {
    for limit in 4..10 {
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        for arguments in [&["sh", "-c", "exit 4"][..], &["sh", "-c", "kill -TERM $$"]] {
            let mut commands = bare_and_wrapped(arguments);
            for command in &mut commands {
                let words: Vec<OsString> =
                    [command.get_program()].into_iter().chain(command.get_args()).map(OsStr::to_owned).collect();
                *command = resource_tracker_tests::command("sh");
                command.args(["-c", &script, "sh"]).args(words).stderr(Stdio::null());
            }
            same_end(commands, &format!("{limit} descriptors: {arguments:?}"), |command| command.status().unwrap());
        }
        // Where the command takes the tracker's place, it must not adopt the orphans of its own.
        let script = format!("ulimit -n {limit}; exec {} -q -- {JOB} is-subreaper", tracker().display());
        let output = command("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(text(&output.stdout), "false\n", "{limit} descriptors");
    }
}

#[test]
fn the_witness_is_gone_when_the_tracker_is() {
    for end in [Signal::SIGTERM, Signal::SIGKILL] {
        let (mut child, _, _) = start(&mut shell("echo ready; exec sleep 100")[1]);
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        let is_witness = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "signal-witness")
        };
        let mut witness = String::new();
        wait_until("the witness", || {
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
            witness = children.split_whitespace().find(is_witness).unwrap_or_default().to_owned();
            !witness.is_empty()
        });
        kill(pid(&child), end).unwrap();
        child.wait().unwrap();
        wait_until("its end", || ["", "Z"].contains(&state(&witness).as_str()));
        let job = children.split_whitespace().find(|pid| !is_witness(pid)).unwrap_or_default();
        kill_all(child, job);
    }
}
