//! A tracker that gets no memory goes on answering for its command.

use std::process::Stdio;

use resource_tracker_tests::bare::before_exec;
use resource_tracker_tests::{command, text, tracker};
use rustix::process::{Resource, Rlimit, setrlimit};

#[test]
fn a_tracker_without_memory_ends_as_its_command_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = 0;
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
        said += stderr.matches("there is no memory left to record").count();
    }
    assert!(said > 0, "there was memory enough each time");
}
