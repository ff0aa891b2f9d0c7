//! A cgroup for the command alone, where the tracker may make one: it also counts what ended processes used.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use resource_tracker_sources::cgroup::{Directory, Hierarchy};
use resource_tracker_sources::job::JobCgroup;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

const PREFIX: &str = "resource-tracker.";

/// How many names are tried: in another pid namespace, a tracker can have the same process id.
const NUMBERS: u32 = 16;

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
    /// Makes the directories that can be made and have no side effects: in the unified hierarchy, or in those of v1
    /// where that is not mounted; for memory also beside it. Without the permission it is empty.
    pub(super) fn make(procfs: &Path) -> Self {
        let hierarchy = Hierarchy::of(procfs, None);
        let make = |directory: Option<&Directory>| {
            directory
                .filter(|directory| directory.can_be_divided())
                .and_then(|directory| Made::below(&directory.path).ok())
        };
        // Without that, memory of a group does not count for the groups above it, whose limits would not hold.
        let memory = hierarchy.legacy("memory").filter(|directory| is_hierarchical(&directory.path));
        if hierarchy.unified.is_some() {
            let memory = memory.filter(|_| enters_alone(procfs));
            return Self { unified: make(hierarchy.unified.as_ref()), cpuacct: None, memory: make(memory) };
        }
        Self { unified: None, cpuacct: make(hierarchy.legacy("cpuacct")), memory: make(memory) }
    }

    /// The unified one, to start a process in.
    pub(super) fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|made| made.handle.as_fd())
    }

    /// Removes the unified one, because the command could not be started in it.
    pub(super) fn give_up_unified(&mut self) {
        self.unified = None;
    }

    /// The `tasks` files of v1: a thread that writes `0` to one enters that cgroup.
    pub(super) fn tasks_files(&self) -> Vec<File> {
        let open = |made: &Made| File::options().write(true).open(made.path.join("tasks")).ok();
        [&self.cpuacct, &self.memory].into_iter().flatten().filter_map(open).collect()
    }

    /// Its paths, for the sources.
    pub(super) fn job(&self) -> JobCgroup {
        let path = |made: &Option<Made>| made.as_ref().map(|made| made.path.clone());
        let mut job = JobCgroup::default();
        (job.unified, job.cpuacct, job.memory) = (path(&self.unified), path(&self.cpuacct), path(&self.memory));
        job
    }

    /// Removes what killed trackers left behind.
    pub(super) fn sweep(&self) {
        for made in [&self.unified, &self.cpuacct, &self.memory].into_iter().flatten() {
            if let Some(parent) = made.path.parent() {
                remove_abandoned_in(parent, made.path.file_name());
            }
        }
    }
}

impl Made {
    fn below(parent: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        for number in 0..NUMBERS {
            let path = parent.join(format!("{PREFIX}{pid}.{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = || -> io::Result<File> {
                        let handle = File::open(&path)?;
                        flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
                        Ok(handle)
                    };
                    match lock() {
                        // Before it was locked, another tracker could take it for abandoned, and remove it.
                        Ok(handle) if is_at(&handle, &path) => return Ok(Self { path, handle }),
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
        if fs::remove_dir(&self.path).is_ok() {
            return;
        }
        // A tracker that ran in it may have left a cgroup of its own.
        remove_abandoned_in(&self.path, None);
        if fs::remove_dir(&self.path).is_ok() {
            return;
        }
        // Daemons that are still in it go back to where the tracker is.
        let Some(parent) = self.path.parent() else { return };
        let procs = parent.join("cgroup.procs");
        // A process from outside of this pid namespace shows as `0` here, which would mean this process.
        let mut tried = HashSet::from(["0".to_owned()]);
        // The list is read before each move, because the id of a process that has ended can be reused.
        while let Some(pid) = processes(&self.path).into_iter().find(|pid| tried.insert(pid.clone())) {
            let file = File::options().write(true).open(&procs);
            // One that has ended meanwhile needs no moving; one that cannot be moved keeps its cgroup.
            let _ = file.and_then(|mut file| file.write_all(pid.as_bytes()));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Whether what is charged to a group of the `memory` hierarchy is charged to those above it: from Linux 5.11 always.
fn is_hierarchical(path: &Path) -> bool {
    fs::read(path.join("memory.use_hierarchy")).is_ok_and(|text| text.starts_with(b"1"))
}

/// Whether a thread enters a group without holding up every fork of the machine: from Linux 5.5, by `tasks`.
fn enters_alone(procfs: &Path) -> bool {
    let release = fs::read_to_string(procfs.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(5))
}

/// The number of each process in a cgroup.
fn processes(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Whether the path still leads to this directory, and not to a later one of the same name.
fn is_at(handle: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let found = fs::symlink_metadata(path).map(identity);
    handle.metadata().map(identity).is_ok_and(|own| found.is_ok_and(|found| found == own))
}

/// Whether a tracker gave a directory this name: `resource-tracker.PID.NUMBER`.
fn is_ours(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('.'));
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| number.to_string() == text);
    numbers.is_some_and(|(pid, count)| {
        number(pid).is_some_and(|pid| pid > 0) && number(count).is_some_and(|count| count < NUMBERS)
    })
}

/// Removes the directories of trackers that are gone, also those inside of others, the innermost first. The one that is in use
/// is not looked at.
fn remove_abandoned_in(parent: &Path, in_use: Option<&OsStr>) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_another = |name: &OsStr| is_ours(name) && in_use != Some(name);
    for entry in entries.flatten().filter(|entry| is_another(&entry.file_name()) && is_directory(entry)) {
        remove_abandoned_in(&entry.path(), None);
        remove_if_abandoned(&entry.path());
    }
}

/// Removes a directory if it is not locked, so that its tracker is gone, and nothing is in it: no process and no other
/// cgroup.
fn remove_if_abandoned(path: &Path) {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(handle) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    if flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok() {
        // It stays locked until it is gone, so that no tracker takes it in between.
        let _ = fs::remove_dir(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_tracker_gives_are_ours() {
        for name in ["resource-tracker.1.0", "resource-tracker.4194304.15"] {
            assert!(is_ours(OsStr::new(name)), "{name}");
        }
        for rest in
            ["", "1", "1.", ".0", "0.0", "1.16", "01.0", "1.00", "+1.0", "1.0.0", "x.0", "1.0 ", "99999999999.0"]
        {
            assert!(!is_ours(OsStr::new(&format!("resource-tracker.{rest}"))), "{rest}");
        }
        assert!(!is_ours(OsStr::new("resource-trackerx1.0")));
    }

    #[test]
    fn a_group_for_memory_does_no_harm() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_hierarchical(root.path()) && !enters_alone(root.path()));
        fs::create_dir_all(root.path().join("sys/kernel")).unwrap();
        for (release, expected) in [
            ("4.18.0-553.el8.x86_64", false),
            ("5.4.0-42-generic", false),
            ("5.5.0", true),
            ("5.15.0-1", true),
            ("6.1", true),
        ] {
            fs::write(root.path().join("sys/kernel/osrelease"), release).unwrap();
            assert_eq!(enters_alone(root.path()), expected, "{release}");
        }
        for (text, expected) in [("0\n", false), ("1\n", true)] {
            fs::write(root.path().join("memory.use_hierarchy"), text).unwrap();
            assert_eq!(is_hierarchical(root.path()), expected);
        }
    }

    #[test]
    fn a_directory_that_was_made_anew_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resource-tracker.1.0");
        fs::create_dir(&path).unwrap();
        let handle = File::open(&path).unwrap();
        assert!(is_at(&handle, &path));
        fs::remove_dir(&path).unwrap();
        assert!(!is_at(&handle, &path));
        // The open handle keeps the inode number in use.
        fs::create_dir(&path).unwrap();
        assert!(!is_at(&handle, &path));
    }

    /// Plain files in place of the kernel's: every write begins at the start.
    #[test]
    fn a_process_without_a_number_is_not_moved() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("resource-tracker.1.0");
        fs::create_dir(&path).unwrap();
        fs::write(parent.path().join("cgroup.procs"), "").unwrap();
        for (inside, moved) in [("0\n0\n", ""), ("0\n123\n0\n", "123"), ("45\n678\n", "678")] {
            fs::write(path.join("cgroup.procs"), inside).unwrap();
            drop(Made { path: path.clone(), handle: File::open(&path).unwrap() });
            assert_eq!(fs::read_to_string(parent.path().join("cgroup.procs")).unwrap(), moved, "{inside:?}");
        }
    }

    #[test]
    fn what_is_inside_of_others_goes_first_and_what_is_not_ours_stays() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let [ours, nested, locked, theirs, keeps, link] = [
            "resource-tracker.1.0",
            "resource-tracker.1.0/resource-tracker.2.0/resource-tracker.3.1",
            "resource-tracker.4.0/resource-tracker.5.0",
            "resource-tracker.6.0/theirs",
            "resource-tracker.old",
            "resource-tracker.7.0",
        ]
        .map(|name| root.join(name));
        let behind = keeps.join("resource-tracker.8.0");
        for path in [&nested, &locked, &theirs, &behind] {
            fs::create_dir_all(path).unwrap();
        }
        std::os::unix::fs::symlink(&keeps, &link).unwrap();
        let lock = File::open(&locked).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        remove_abandoned_in(root, None);
        assert!(!ours.exists());
        for path in [&locked, &theirs, &behind, &link] {
            assert!(path.exists(), "{}", path.display());
        }
    }
}
