//! A run whose job lasts until something has happened.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::{job, number, samples, wait_until};

/// A folder with what a run writes, which its job and the test can look at while it goes on.
pub struct Recording {
    folder: TempDir,
}

impl Recording {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("there is room") }
    }

    /// Where the samples belong: `-o` of the run.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("run.jsonl")
    }

    /// Standard output of the run.
    pub fn stdout(&self) -> PathBuf {
        self.folder.path().join("stdout")
    }

    /// Standard error of the run.
    pub fn stderr(&self) -> PathBuf {
        self.folder.path().join("stderr")
    }

    /// Shell for a job that lasts until so many samples of the file contain the text.
    pub fn until(&self, count: usize, text: &str) -> String {
        self.until_in(self.path(), count, text)
    }

    /// The same, of the lines of another file.
    pub fn until_in(&self, path: PathBuf, count: usize, text: &str) -> String {
        format!("'{}' until '{}' {count} '{text}'", job().display(), path.display())
    }

    /// Shell for a job that lasts until a line on standard error contains the text.
    pub fn until_said(&self, text: &str) -> String {
        self.until_in(self.stderr(), 1, text)
    }

    /// Shell for a job that lasts until the test says `go_on`.
    pub fn until_told(&self) -> String {
        self.until_in(self.folder.path().join("told"), 1, "")
    }

    pub fn go_on(&self) {
        fs::write(self.folder.path().join("told"), "\n").expect("there is room");
    }

    /// Shell for the end of a job: notes for how long each thread of the tracker had to wait for a CPU.
    pub fn note_waits(&self) -> String {
        format!("cut -d' ' -f2 /proc/$PPID/task/*/schedstat >'{}'", self.waits().display())
    }

    fn waits(&self) -> PathBuf {
        self.folder.path().join("waits")
    }

    /// How long the thread of the tracker that had to wait most did so, in seconds, as the kernel counted it.
    pub fn waited(&self) -> f64 {
        let waits = fs::read_to_string(self.waits()).expect("the job notes them");
        waits.lines().map(|nanos| nanos.parse::<f64>().expect("a number") / 1e9).fold(0.0, f64::max)
    }

    /// Whether the samples came at their times: at most one of fifty is late by more than half an interval, beside
    /// those that had to wait for a CPU.
    pub fn is_on_time(&self, interval: f64) -> bool {
        let times: Vec<f64> = self.samples().iter().map(|sample| number(sample, "/timestamp_ms") / 1000.0).collect();
        // The last sample is taken when the command ends.
        let late = times[..times.len() - 1].windows(2).filter(|pair| pair[1] - pair[0] > interval * 1.5).count();
        let waited = self.waited();
        println!("{late} of {} samples were late, {waited:.3} s waited for a CPU", times.len());
        late <= times.len() / 50 + (waited / (interval / 2.0)) as usize
    }

    /// Starts a run with its standard output and error in the files.
    pub fn start(&self, command: &mut Command) -> Child {
        command.stdout(file(self.stdout())).stderr(file(self.stderr())).spawn().expect("it runs")
    }

    /// The same with its standard output in a pipe, which the test has to read.
    pub fn start_piped(&self, command: &mut Command) -> Child {
        file(self.stdout());
        command.stdout(Stdio::piped()).stderr(file(self.stderr())).spawn().expect("it runs")
    }

    /// Waits for the end of a run, and gives what it wrote.
    pub fn end(&self, mut child: Child) -> Output {
        let status = child.wait().expect("it is a child");
        let read = |path: PathBuf| fs::read(path).expect("it is there");
        Output { status, stdout: read(self.stdout()), stderr: read(self.stderr()) }
    }

    /// A run from its start to its end.
    pub fn run(&self, command: &mut Command) -> Output {
        self.end(self.start(command))
    }

    /// Waits until it is so, then lets the job go on to its end. Fails if the run has ended before.
    pub fn run_until(&self, command: &mut Command, what: &str, mut is_so: impl FnMut() -> bool) -> Output {
        let mut child = self.start(command);
        wait_until(what, || {
            let ended = child.try_wait().expect("it is a child");
            assert!(ended.is_none(), "{what}: {ended:?} {}", fs::read_to_string(self.stderr()).unwrap_or_default());
            is_so()
        });
        self.go_on();
        self.end(child)
    }

    /// The whole samples of the file.
    pub fn samples(&self) -> Vec<Json> {
        let text = fs::read(self.path()).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        samples(&text[..whole])
    }
}

fn file(path: PathBuf) -> File {
    File::options().create(true).append(true).open(path).expect("there is room")
}
