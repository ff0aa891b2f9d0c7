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
/// The greatest number of a batch, where all have six digits.
pub(crate) const LAST_OF_SIX: u32 = 999_999;

/// What a compressed batch has after its extension.
pub(super) const COMPRESSED: &str = ".gz";
/// What batches of all sinks are: rows and, at last, requests, of which a run can have more than a million.
const EXTENSIONS: [&str; 3] = ["csv", "jsonl", REQUEST];
pub(crate) const REQUEST: &str = "pb";

/// A batch as its rows come.
pub(crate) fn open(batch: u32, extension: &str) -> String {
    format!("{batch:06}.{extension}")
}

/// A closed batch that is compressed.
pub(crate) fn closed(batch: u32, extension: &str) -> String {
    format!("{batch:06}.{extension}{COMPRESSED}")
}

/// All names that the files of a batch can have.
pub(super) fn all_of(batch: u32) -> impl Iterator<Item = String> {
    EXTENSIONS.into_iter().flat_map(move |extension| [open(batch, extension), closed(batch, extension)])
}

/// The number in the name of a batch.
pub(super) fn batch(name: &str) -> Option<u32> {
    let (number, extension) = name.strip_suffix(COMPRESSED).unwrap_or(name).split_once('.')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && EXTENSIONS.contains(&extension);
    let batch: u32 = if is_number { number.parse().ok()? } else { return None };
    let last = if extension == REQUEST { u32::MAX - 1 } else { LAST_OF_SIX };
    // Nothing else is a name of it.
    (format!("{batch:06}") == number && batch <= last).then_some(batch)
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
