//! Trackers that stream to the stand-in.

use std::path::Path;
use std::process::{Command, Output};

use super::service::Service;
use crate::{Recording, command, tracker};

/// A tracker that streams to the service, with its state in this directory.
pub fn streaming(service: &Service, state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(tracker());
    command.args(arguments).envs(service.environment(state));
    command
}

/// Runs a tracker that streams to the service, to its end. Its state is in the folder.
pub fn run(service: &Service, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    let output = streaming(service, state.path(), arguments).output().unwrap();
    (output, state)
}

/// Records a run to a file, with nothing but messages on standard error, whose job lasts until it is so.
pub fn run_until(recording: &Recording, tracker: &mut Command, what: &str, is_so: impl FnMut() -> bool) -> Output {
    tracker.arg("-o").arg(recording.path()).args(["--", "sh", "-c", &recording.until_told()]);
    recording.run_until(tracker, what, is_so)
}

/// The first columns, which are of one length.
pub fn stamps(rows: &[String]) -> Vec<&str> {
    rows.iter().filter_map(|row| row.split(',').next()).collect()
}

/// The runs that wait in the spool.
pub fn waiting(state: &Path) -> usize {
    std::fs::read_dir(state.join("resource-tracker/spool")).map_or(0, Iterator::count)
}

/// Sends what waits.
pub fn upload(service: &Service, state: &Path, arguments: &[&str]) -> Output {
    streaming(service, state, &[&["upload"], arguments].concat()).output().unwrap()
}
