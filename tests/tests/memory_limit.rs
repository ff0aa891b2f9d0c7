//! A tracker that gets no memory goes on answering for its command.

use std::process::Stdio;

use resource_tracker_tests::bare::before_exec;
use resource_tracker_tests::{Recording, command, text, tracker, wait_until};
use rustix::process::{Pid, Resource, Rlimit, prlimit, setrlimit};

#[test]
fn a_tracker_without_memory_ends_as_its_command_does() {
    let folder = tempfile::tempdir().unwrap();
    // How much is enough to start, and how much for everything, differs from machine to machine.
    for mib in 3..16 {
        let limit = Rlimit { current: Some(mib << 20), maximum: Some(mib << 20) };
        let mut command = command(tracker());
        command.args(["-i", "0.02", "-o"]).arg(folder.path().join(format!("{mib}.jsonl.gz")));
        command.args(["--", "sh", "-c", "sleep 0.3; exit 7"]).stdout(Stdio::null());
        before_exec(&mut command, move || {
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
            setrlimit(Resource::Data, limit)
        });
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{mib} MiB: {} {stderr}", output.status);
    }
}

/// The job grows when the tracker cannot.
#[test]
fn a_tracker_whose_memory_is_used_up_says_so_and_ends_as_its_command_does() {
    let recording = Recording::new();
    let grows = "n=0; while [ $n -lt 500 ]; do sleep 60 & all=\"$all $!\"; n=$((n+1)); done";
    let waits = recording.until_said("there is no memory left to record");
    let job = format!("{}; {grows}; {waits}; kill $all; exit 7", recording.until_told());
    let mut command = command(tracker());
    command.args(["-i", "0.02", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &job]);
    let child = recording.start(&mut command);
    wait_until("it records", || recording.samples().len() > 2);
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(Some(Pid::from_child(&child)), Resource::Data, limit).unwrap();
    recording.go_on();
    let output = recording.end(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{} {said}", output.status);
    assert_eq!(said.matches("there is no memory left to record").count(), 1, "{said}");
}
