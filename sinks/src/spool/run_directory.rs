//! The folder of one run: `run.json`, batches such as `NNNNNN.csv` and `NNNNNN.csv.gz`, and `lock`, and nothing else is ever written, read or
//! removed in it. When all has arrived, `run.json` becomes `sent.json` before the rest goes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use resource_tracker_core::trust::FileRequirement;
use rustix::fs::{AtFlags, FlockOperation, OFlags, flock, fstat, renameat, unlinkat};
use rustix::io::Errno;

use super::remains;
use super::run_files::{
    Access, BLOCK, FILE, FOLDER, LARGEST_FILE, LARGEST_STATE, LOCK, RESERVED, SENT, STATE, TEMPORARY, all_of, batch,
    is_given, names, or_missing,
};

/// The folder of one run of ours. It is locked, unless it is only looked at. The lock ends with the process, however
/// that ends.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    name: String,
    root: Arc<OwnedFd>,
    directory: OwnedFd,
    lock: OwnedFd,
}

fn open_directory(root: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    FOLDER.open(root, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// What is there of a run that was left behind.
pub(super) struct Left {
    pub(super) state: Vec<u8>,
    pub(super) batches: BTreeSet<u32>,
    /// How many files of batches are none of the user's.
    pub(super) left_out: u32,
}

impl RunDirectory {
    /// Takes over a folder that was just made. `None` when another process was faster.
    pub(super) fn make(root: &Arc<OwnedFd>, name: &str, path: PathBuf) -> io::Result<Option<Self>> {
        let Some(directory) = or_missing(open_directory(root, name))? else { return Ok(None) };
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let lock = match FILE.open(&directory, LOCK, how) {
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            lock => lock?,
        };
        let run = Self { path, name: name.to_owned(), root: Arc::clone(root), directory, lock };
        run.take(FlockOperation::NonBlockingLockExclusive)
    }

    /// Opens a folder that holds a run of ours, and locks it. `None` when there is no run in it, or another process
    /// works on it.
    ///
    /// # Errors
    /// When something that the spool made is not the user's alone. It stays as it is, unread.
    pub(super) fn open(root: &Arc<OwnedFd>, name: &str, path: PathBuf, access: Access) -> anyhow::Result<Option<Self>> {
        let Some(directory) = or_missing(open_directory(root, name))? else { return Ok(None) };
        let has = |name: &'static str| {
            Ok::<_, anyhow::Error>(or_missing(FILE.inspect(&directory, name)).context(name)?.is_some())
        };
        if !has(STATE)? && !has(SENT)? {
            remains::clear(root, name, &directory, access)?;
            return Ok(None);
        }
        let (how, operation) = access.to_lock();
        let lock = match FILE.open(&directory, LOCK, how) {
            // Another process has just sent and removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !has(STATE)? => return Ok(None),
            lock => lock.context(LOCK)?,
        };
        let run = Self { path, name: name.to_owned(), root: Arc::clone(root), directory, lock };
        let Some(run) = run.take(operation)?.filter(Self::is_in_place) else { return Ok(None) };
        let is_sent = or_missing(FILE.inspect(&run.directory, STATE))?.is_none();
        match access {
            // Another process may send it while it is listed here.
            Access::Look => flock(&run.lock, FlockOperation::Unlock)?,
            // A process was killed while it removed the run.
            Access::Work if is_sent => drop(run.remove()),
            Access::Work => (),
        }
        Ok(Some(run).filter(|_| !is_sent))
    }

    fn take(self, operation: FlockOperation) -> io::Result<Option<Self>> {
        match flock(&self.lock, operation) {
            Ok(()) => Ok(Some(self)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the folder and its lock are still where they are looked for.
    pub(super) fn is_in_place(&self) -> bool {
        let same = |demand: FileRequirement, open: &OwnedFd, parent: &OwnedFd, name: &str| {
            let (open, there) = (fstat(open).ok(), demand.inspect(parent, name).ok());
            open.zip(there).is_some_and(|(a, b)| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
        };
        same(FOLDER, &self.directory, &self.root, &self.name) && same(FILE, &self.lock, &self.directory, LOCK)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file to append to, and makes it if it is missing.
    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        FILE.open(&self.directory, name, how).map(File::from)
    }

    /// Writes a file so that it is there whole or not at all, also after a loss of power.
    pub(crate) fn write(&self, name: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let temporary = format!("{name}{TEMPORARY}");
        self.remove_file(&temporary);
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let result = FILE.open(&self.directory, temporary.as_str(), how).and_then(|file| {
            let mut file = File::from(file);
            write(&mut file)?;
            file.flush()?;
            file.sync_data()
        });
        let renamed = result.and_then(|()| Ok(renameat(&self.directory, temporary.as_str(), &self.directory, name)?));
        if renamed.is_err() {
            // This makes room for the next attempt.
            self.remove_file(&temporary);
        }
        renamed
    }

    /// Saves the state of the run. On a full disk, it overwrites the last state in place: that file is padded, and so
    /// has room for a longer one.
    pub(crate) fn save(&self, state: &[u8]) -> io::Result<()> {
        let padded = |room: usize| [state, &vec![b' '; room - state.len()]].concat();
        let room = (state.len() + RESERVED).next_multiple_of(BLOCK);
        self.write(STATE, |file| file.write_all(&padded(room))).or_else(|full| {
            let file = File::from(FILE.open(&self.directory, STATE, OFlags::WRONLY)?);
            let room = file.metadata()?.len() as usize;
            if state.len() > room {
                return Err(full);
            }
            file.write_all_at(&padded(room), 0)?;
            file.sync_data()
        })
    }

    /// The saved state; `None` when there is none.
    pub(crate) fn state(&self) -> io::Result<Option<Vec<u8>>> {
        self.read_up_to(STATE, LARGEST_STATE)
    }

    /// What is there of a run that was left behind; `None` when there is no state. What is no file of the user's is left out, and
    /// said.
    pub(super) fn left(&self) -> anyhow::Result<Option<Left>> {
        let Some(state) = self.state()? else { return Ok(None) };
        let (batches, problems) = self.batches().context("its files cannot be listed")?;
        for problem in &problems {
            log::warn!("{}: {problem}; it is left out", self.path.display());
        }
        Ok(Some(Left { state, batches, left_out: problems.len() as u32 }))
    }

    /// Opens a file of a batch to read; `None` when it is not there.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        let file = or_missing(FILE.open(&self.directory, name, OFlags::RDONLY));
        Ok(file.map_err(|error| named(name, &error))?.map(File::from))
    }

    /// A file of a batch; `None` when it is not there.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.read_up_to(name, LARGEST_FILE)
    }

    fn read_up_to(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        // A vector that grows on its own takes up to twice as much.
        let mut bytes = Vec::with_capacity(file.metadata()?.len().min(limit) as usize + 1);
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| named(name, &error))?;
        match bytes.len() as u64 > limit {
            true => Err(named(name, &io::Error::other(format!("it has more than {limit} bytes")))),
            false => Ok(Some(bytes)),
        }
    }

    /// Removes a file of the user's that has a name of the spool's, if it is there. Returns how many bytes it had.
    pub(crate) fn remove_file(&self, name: &str) -> u64 {
        let Some(status) = is_given(name).then(|| FILE.inspect(&self.directory, name).ok()).flatten() else { return 0 };
        let removed = unlinkat(&self.directory, name, AtFlags::empty());
        removed.map_or(0, |()| u64::try_from(status.st_size).unwrap_or(0))
    }

    /// Removes the files of a batch. Returns how many bytes they had.
    pub(crate) fn remove_batch(&self, batch: u32) -> u64 {
        all_of(batch).map(|name| self.remove_file(&name)).sum()
    }

    /// The numbers of all batches, and what is wrong with those that are no files of the user's.
    pub(crate) fn batches(&self) -> io::Result<(BTreeSet<u32>, Vec<String>)> {
        let (mut batches, mut problems) = (BTreeSet::new(), Vec::new());
        for name in given(&self.directory)? {
            let Some(number) = batch(&name) else { continue };
            match FILE.inspect(&self.directory, name.as_str()) {
                Ok(_) => drop(batches.insert(number)),
                Err(error) => problems.push(named(&name, &error).to_string()),
            }
        }
        Ok((batches, problems))
    }

    /// When something was last written.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        let names = given(&self.directory).ok()?;
        let status = |name: &String| FILE.inspect(&self.directory, name.as_str()).ok();
        let newest = names.iter().filter_map(status).map(|status| status.st_mtime).max()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(newest).ok()?))
    }

    /// What the files of a run take, in bytes.
    pub(super) fn size(root: &OwnedFd, name: &str) -> u64 {
        let Ok(directory) = open_directory(root, name) else { return 0 };
        let size = |name: &String| FILE.inspect(&directory, name.as_str()).ok();
        let names = given(&directory).unwrap_or_default();
        // Without `run.json` there is no run in the folder, and so no batch to give up.
        if !names.iter().any(|name| name == STATE) {
            return 0;
        }
        names.iter().filter_map(size).map(|status| u64::try_from(status.st_size).unwrap_or(0)).sum()
    }

    /// Everything has arrived: removes what the spool has made, and the folder if nothing else is in it. From the first
    /// step on it is no run any more, and it stays locked until the last one.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if renameat(&self.directory, STATE, &self.directory, SENT).is_err() {
            self.remove_file(STATE);
        }
        let is_first = |name: &&String| *name != SENT && *name != LOCK;
        for name in given(&self.directory)?.iter().filter(is_first).map(String::as_str).chain([SENT, LOCK]) {
            self.remove_file(name);
        }
        Ok(unlinkat(&self.root, self.name.as_str(), AtFlags::REMOVEDIR)?)
    }
}

/// Those names in a folder that are names of the spool.
fn given(directory: &OwnedFd) -> io::Result<Vec<String>> {
    Ok(names(directory)?.into_iter().filter(|name| is_given(name)).collect())
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}
