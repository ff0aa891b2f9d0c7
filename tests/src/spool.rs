//! Spools for tests, with runs in them that were left behind.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::sentinel::{Service, header};
use crate::{command, text, tracker};

/// A folder that only the user can look into, and nothing in it.
pub struct Home {
    folder: TempDir,
}

impl Home {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The spool in it.
    pub fn spool(&self) -> PathBuf {
        let spool = self.path().join("spool");
        if !spool.exists() {
            fs::create_dir(&spool).unwrap();
            close(&spool);
        }
        spool
    }

    /// A run that was left behind, as a tracker leaves it, with one batch of one row.
    pub fn stranded(&self, number: u32, state: &Json) -> PathBuf {
        let run = self.spool().join(format!("{:013}-4242-{number:08x}", 1_764_000_000_000_u64 + u64::from(number)));
        fs::create_dir(&run).unwrap();
        close(&run);
        let csv = format!("{}1764000000{}\n", header(), ",".repeat(31));
        for (name, content) in [("lock", ""), ("run.json", &state.to_string()), ("000000.csv", &csv)] {
            put(&run.join(name), content.as_bytes());
        }
        run
    }

    /// How many runs are in the spool.
    pub fn runs(&self) -> usize {
        fs::read_dir(self.spool()).unwrap().count()
    }
}

/// Makes a folder one that only the user can look into.
pub fn close(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
}

/// Writes a file that only the user can read.
pub fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// What is known of a run of this service that is not registered.
pub fn state(service: &Service) -> Json {
    json!({ "api_url": format!("{}/", service.url), "facts": { "job_name": "left" } })
}

/// A state with other values.
pub fn with(mut state: Json, values: Json) -> Json {
    let values = values.as_object().unwrap().clone();
    state.as_object_mut().unwrap().extend(values);
    state
}

/// The tracker, with a token for the service. It is stopped when it waits for something that never comes.
pub fn speaking(service: &Service, state: &Path) -> Command {
    let mut command = command("timeout");
    command.args(["-k", "1", "120"]).arg(tracker()).envs(service.environment(state));
    command
}

/// Sends what waits in a spool.
pub fn upload(service: &Service, arguments: &[&str], spool: &Path) -> Output {
    speaking(service, spool).arg("upload").args(arguments).arg(spool).output().unwrap()
}

/// Mode, owner, times and contents.
type Seen = (u32, u32, [i64; 4], Vec<u8>);

/// All that can be seen of everything below a folder.
pub fn seen(folder: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut paths = vec![folder.to_owned()];
    while let Some(path) = paths.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        let kind = status.file_type();
        let mut content = Vec::new();
        if kind.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_file() {
            content = fs::read(&path).unwrap();
        }
        let times = [status.mtime(), status.mtime_nsec(), status.ctime(), status.ctime_nsec()];
        seen.insert(path, (status.mode(), status.uid(), times, content));
    }
    seen
}

/// All that a program printed.
pub fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
