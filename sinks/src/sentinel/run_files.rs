//! The files in the folder of one run: their names and sizes, and how they are opened.

use std::io;
use std::os::fd::OwnedFd;

use resource_tracker_core::trust::FileRequirement;
use rustix::fs::{Dir, FlockOperation, OFlags};

pub(super) const FOLDER: FileRequirement = FileRequirement::PRIVATE_FOLDER;
pub(super) const FILE: FileRequirement = FileRequirement::PRIVATE_FILE;

pub(super) const STATE: &str = "run.json";
pub(super) const SENT: &str = "sent.json";
pub(super) const LOCK: &str = "lock";
pub(super) const TEMPORARY: &str = ".tmp";
/// A `run.json` that was not finished.
pub(super) const BEGUN: &str = "run.json.tmp";
/// How much longer `run.json` can become on a full disk: by host, cloud, the service's answer and the end.
pub(super) const RESERVED: usize = 3 << 10;
/// The unit in which a disk allocates.
pub(super) const BLOCK: usize = 4 << 10;
/// It has the command line, which can have megabytes.
pub(super) const LARGEST_STATE: u64 = 16 << 20;
/// A batch has 8 MiB of rows at most, on the disk and in memory each.
pub(super) const LARGEST_FILE: u64 = 20 << 20;
/// Batches have six digits.
pub(super) const LAST_BATCH: u32 = 999_999;

pub(super) fn csv(batch: u32) -> String {
    format!("{batch:06}.csv")
}

pub(super) fn gz(batch: u32) -> String {
    format!("{batch:06}.csv.gz")
}

/// The number in the name of a batch.
pub(super) fn batch(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".csv")?;
    let is_number = number.len() == 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { number.parse().ok() } else { None }
}

/// Whether the spool gives files this name.
pub(super) fn is_given(name: &str) -> bool {
    let name = name.strip_suffix(TEMPORARY).unwrap_or(name);
    name == STATE || name == SENT || name == LOCK || batch(name).is_some()
}

/// What a run is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To list it: nothing is changed, and others may work on it meanwhile.
    Look,
    /// To send or delete it: it stays locked.
    Work,
}

impl Access {
    /// How its lock is opened, and taken.
    pub(super) fn to_lock(self) -> (OFlags, FlockOperation) {
        match self {
            Self::Look => (OFlags::RDONLY, FlockOperation::NonBlockingLockShared),
            // NFS locks only what is open for writing.
            Self::Work => (OFlags::RDWR, FlockOperation::NonBlockingLockExclusive),
        }
    }
}

/// `None` when it is not there.
pub(super) fn or_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// All names in a folder. In a name that is no text, wrong bytes are replaced.
pub(super) fn names(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}
