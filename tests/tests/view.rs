//! The view on a terminal: what a person sees of a recording while it grows, is rotated and ends, and of what happens now;
//! and that the terminal is as it was afterwards.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_tests::terminal::Terminal;
use resource_tracker_tests::{Recording, command, has, text, track, tracker, wait_until};

/// A run that has named a phase, and goes on until the test ends it.
fn start(recording: &Recording, arguments: &[&str], end: &str) -> Child {
    let job = format!("'{}' mark first-phase; {}; {end}", tracker().display(), recording.until_told());
    let mut command = command(tracker());
    command.args(["-i", "50ms", "-q", "-o"]).arg(recording.path()).args(arguments).args(["--", "sh", "-c", &job]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn view(of: &Path) -> String {
    format!("{} view {}\n", tracker().display(), of.display())
}

/// Waits for the shell, and looks at how the view ended and at what is left on the screen.
fn assert_ended(terminal: &mut Terminal, code: &str) {
    terminal.expect("prompt> ");
    // Without a terminal that echoes and knows lines, this does not come back.
    terminal.run("echo code=$?.", code);
    assert!(!terminal.is_taken());
    terminal.expect("prompt> ");
}

#[test]
fn a_run_is_looked_at_until_it_ends() {
    if !has("bash", "a terminal") {
        return;
    }
    let recording = Recording::new();
    let mut run = start(&recording, &[], "exit 3");
    wait_until("a sample", || fs::read_to_string(recording.path()).is_ok_and(|text| text.contains("first-phase")));
    let mut terminal = Terminal::new();
    terminal.run("echo be''fore", "before");
    terminal.expect("prompt> ");
    terminal.press(&view(&recording.path()));
    let picture = terminal.expect_picture(&["sh -c ", "running", "pid ", "Cores", "Memory", "first-phase", "q quit"]);
    assert!(picture.lines().count() <= 24 && terminal.is_taken(), "{picture}");
    terminal.press(" ");
    terminal.expect_picture(&["held at "]);
    recording.go_on();
    run.wait().unwrap();
    terminal.expect_picture(&["held at ", "exited with 3"]);
    terminal.press("?");
    terminal.expect_picture(&["these keys"]);
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
    terminal.expect_picture(&["before"]);
}

#[test]
fn a_recording_is_followed_through_its_rotations() {
    if !has("bash", "a terminal") {
        return;
    }
    let recording = Recording::new();
    let mut run = start(&recording, &["--set", "sinks.output.rotate_bytes=9000"], "true");
    let parts = || fs::read_dir(recording.path().parent().unwrap()).unwrap().count();
    wait_until("some rotations", || parts() > 4 && recording.path().exists());
    let mut terminal = Terminal::new();
    terminal.press(&view(&recording.path()));
    // It is in the first part.
    terminal.expect_picture(&["sh -c ", "running", "first-phase"]);
    let before = parts();
    wait_until("more rotations", || parts() > before + 3);
    recording.go_on();
    run.wait().unwrap();
    let picture = terminal.expect_picture(&["sh -c ", "exited with 0", "first-phase"]);
    assert!(!picture.contains("run 2"), "all is one run: {picture}");
    // Escape.
    terminal.press("\x1b");
    assert_ended(&mut terminal, "code=0.");
}

#[test]
fn it_has_the_size_of_the_terminal() {
    if !has("bash", "a terminal") {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.press(&format!("{} view -i 100ms\n", tracker().display()));
    terminal.expect_picture(&["running", "the machine", "Cores", "Memory"]);
    terminal.resize(50, 12);
    terminal.expect_picture(&["This terminal is too small:", "50 x 12", "60 x 16"]);
    terminal.resize(200, 60);
    let picture = terminal.expect_picture(&["running", "Cores", "Memory"]);
    assert!(picture.lines().any(|line| line.chars().count() > 150), "{picture}");
    // Ctrl-C is a key here, and no signal.
    terminal.press("\x03");
    assert_ended(&mut terminal, "code=0.");
}

#[test]
fn a_process_is_looked_at_until_it_ends() {
    if !has("bash", "a terminal") {
        return;
    }
    let mut sleep = command("sleep").arg("1000").spawn().unwrap();
    let mut terminal = Terminal::new();
    terminal.press(&format!("{} view -i 100ms --pid {}\n", tracker().display(), sleep.id()));
    terminal.expect_picture(&["sleep 1000", "running", &format!("pid {}", sleep.id()), "1 process", "1 thread"]);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    terminal.expect_picture(&["sleep 1000", "has ended"]);
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
}

#[test]
fn a_signal_ends_it_as_the_key_does() {
    if !has("bash", "a terminal") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let mut terminal = Terminal::new();
    for (signal, code) in [
        (Signal::SIGTERM, "code=0."),
        (Signal::SIGHUP, "code=0."),
        (Signal::SIGINT, "code=0."),
        (Signal::SIGQUIT, "code=131."),
        (Signal::SIGABRT, "code=134."),
    ] {
        terminal.press(&format!("sh -c 'echo $$ > {}; exec {} view'\n", pid.display(), tracker().display()));
        terminal.expect_picture(&["the machine", "q quit"]);
        assert!(terminal.is_taken());
        let process = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(process), signal).unwrap();
        assert_ended(&mut terminal, code);
    }
    terminal.press(&format!("{} view\n", tracker().display()));
    terminal.expect_picture(&["the machine", "q quit"]);
    // Ctrl-\ is a key here.
    terminal.press("\x1c");
    assert_ended(&mut terminal, "code=131.");
}

#[test]
fn it_is_stopped_and_goes_on() {
    if !has("bash", "a terminal") {
        return;
    }
    let mut terminal = Terminal::new();
    terminal.press(&format!("{} view\n", tracker().display()));
    terminal.expect_picture(&["the machine", "q quit"]);
    // Ctrl-Z is a key here as well.
    terminal.press("\x1a");
    terminal.expect("Stopped");
    terminal.run("echo out''side", "outside");
    assert!(!terminal.is_taken());
    terminal.expect("prompt> ");
    terminal.press("fg\n");
    terminal.expect_picture(&["the machine", "q quit", "Cores"]);
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
}

#[test]
fn a_recording_is_replayed_in_its_own_time() {
    if !has("bash", "a terminal") {
        return;
    }
    let recording = Recording::new();
    let mut run = start(&recording, &[], "exit 7");
    wait_until("some samples", || fs::read_to_string(recording.path()).is_ok_and(|text| text.lines().count() > 3));
    recording.go_on();
    run.wait().unwrap();
    let mut terminal = Terminal::new();
    let view = view(&recording.path());
    let view = view.trim();
    terminal.press(&format!("{view} --speed 0.0001\n"));
    terminal.expect_picture(&["replay, 0.0001 times as fast"]);
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
    terminal.press(&format!("{view} --speed 1000\n"));
    terminal.expect_picture(&["exited with 7"]);
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
}

#[test]
fn what_cannot_be_shown_is_said_and_leaves_the_terminal_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    fs::write(&path, "timestamp,cpu\n1,2\n").unwrap();
    let file = path.to_str().unwrap();
    for (arguments, said) in [
        (&["view", file][..], "view needs a terminal, and standard output is none; `resource-tracker summary "),
        (&["view"], "view needs a terminal, and standard output is none; `resource-tracker -o FILE` records"),
        (&["view", "--speed", "0", file], "must be a number above 0"),
        (&["view", "--speed", "2"], "<FILE>"),
        (&["view", "--pid", "1", file], "cannot be used with"),
    ] {
        let output = track(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1 && output.stdout.is_empty(), "{stderr}");
    }
    if !has("bash", "a terminal") {
        return;
    }
    let mut terminal = Terminal::with_columns(200);
    terminal.press(&view(&path));
    terminal.expect("table.csv is no recording: line 1 is of a CSV; only JSON Lines can be read (--format json)");
    assert_ended(&mut terminal, "code=2.");
    terminal.press(&view(Path::new("/nonexistent")));
    terminal.expect("cannot read /nonexistent: No such file or directory");
    assert_ended(&mut terminal, "code=2.");
    terminal.press(&view(Path::new("/dev/zero")));
    terminal.expect("/dev/zero is no recording: line 1 is no JSON object");
    assert_ended(&mut terminal, "code=2.");
    // An empty recording is waited for, and its texts have no effect on the terminal.
    let path = folder.path().join("empty.jsonl");
    fs::write(&path, "").unwrap();
    terminal.press(&view(&path));
    terminal.expect_picture(&["waiting for the first sample"]);
    let run = r#""run": {"id": "1", "command": ["a\u001b[?1049l\u009b2Jb"], "started_ms": 1, "interval_secs": 1, "version": "9", "labels": {}, "tags": {}, "new": []}"#;
    fs::write(&path, format!("{{\"timestamp_ms\": 1000, \"elapsed_secs\": 1, {run}}}\n")).unwrap();
    terminal.expect_picture(&["a [?1049l 2Jb"]);
    assert!(terminal.is_taken());
    terminal.press("q");
    assert_ended(&mut terminal, "code=0.");
}
