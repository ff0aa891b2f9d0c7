//! A cgroup for the command alone, where the tracker may make one: it counts what no process is left to tell of.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use resource_tracker_core::JobCgroup;
use resource_tracker_sources::cgroup::{Directory, Hierarchy};
use rustix::fs::{FlockOperation, flock};

const PREFIX: &str = "resource-tracker.";

/// The directories that were made, each locked while this program lives. They are removed when it is dropped; after a
/// crash the next run does it.
#[derive(Default)]
pub(super) struct OwnCgroup {
    unified: Option<Made>,
    cpuacct: Option<Made>,
    memory: Option<Made>,
}

struct Made {
    path: PathBuf,
    /// Holds the lock.
    handle: File,
}

impl OwnCgroup {
    /// Makes what can be made: in the unified hierarchy, or in those of v1 where that is not mounted. Without the right
    /// to do so it is empty.
    pub(super) fn make(procfs: &Path) -> Self {
        let hierarchy = Hierarchy::of(procfs, None);
        let make = |directory: Option<&Directory>| directory.and_then(|directory| Made::below(&directory.path).ok());
        if hierarchy.unified.is_some() {
            return Self { unified: make(hierarchy.unified.as_ref()), ..Self::default() };
        }
        // A new group of the `cpu` controller would take the right to real-time scheduling away, where that is given out.
        let cpuacct =
            hierarchy.legacy("cpuacct").filter(|directory| !directory.path.join("cpu.rt_runtime_us").exists());
        Self { unified: None, cpuacct: make(cpuacct), memory: make(hierarchy.legacy("memory")) }
    }

    /// The unified one, to start a process in.
    pub(super) fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|made| made.handle.as_fd())
    }

    /// The command could not be started in the unified one.
    pub(super) fn give_up_unified(&mut self) {
        self.unified = None;
    }

    /// Files of v1 by which a process that writes `0` to them enters.
    pub(super) fn doors(&self) -> Vec<File> {
        let open = |made: &Made| File::options().write(true).open(made.path.join("cgroup.procs")).ok();
        [&self.cpuacct, &self.memory].into_iter().flatten().filter_map(open).collect()
    }

    /// What the sources are to know of it.
    pub(super) fn job(&self) -> JobCgroup {
        let path = |made: &Option<Made>| made.as_ref().map(|made| made.path.clone());
        JobCgroup { unified: path(&self.unified), cpuacct: path(&self.cpuacct), memory: path(&self.memory) }
    }

    /// Removes what trackers left behind that were killed.
    pub(super) fn sweep(&self) {
        for made in [&self.unified, &self.cpuacct, &self.memory].into_iter().flatten() {
            let Some(entries) = made.path.parent().and_then(|parent| fs::read_dir(parent).ok()) else { continue };
            for entry in entries.flatten() {
                if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) && entry.path() != made.path {
                    remove_if_abandoned(&entry.path());
                }
            }
        }
    }
}

impl Made {
    fn below(parent: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        // In another pid namespace somebody can have the same id.
        for number in 0..16 {
            let path = parent.join(format!("{PREFIX}{pid}.{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = || -> io::Result<File> {
                        let handle = File::open(&path)?;
                        flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
                        Ok(handle)
                    };
                    match lock() {
                        // Before it was locked, a tracker that sweeps could take it for abandoned.
                        Ok(handle) if path.exists() => return Ok(Self { path, handle }),
                        _ => drop(fs::remove_dir(&path)),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_if_abandoned(&path),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A directory that nobody has locked belongs to a tracker that is gone.
fn remove_if_abandoned(path: &Path) {
    let Ok(handle) = File::open(path) else { return };
    if flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok() {
        // Locked until it is gone, so that nobody takes it in between.
        remove(path);
    }
}

/// Removes the directory. Daemons that are still in it go back to where the tracker is.
fn remove(path: &Path) {
    if fs::remove_dir(path).is_ok() {
        return;
    }
    let Some(parent) = path.parent() else { return };
    let processes = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines() {
        let door = File::options().write(true).open(parent.join("cgroup.procs"));
        // One that has ended meanwhile needs no moving; one that cannot be moved keeps its cgroup.
        let _ = door.and_then(|mut door| door.write_all(pid.as_bytes()));
    }
    let _ = fs::remove_dir(path);
}
