//! One file that grows by whole lines, whatever happens to it or to the disk.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{OFlags, fcntl_setfl};

use super::IfExists;
use super::contents::Contents;
use super::lock::{Lock, Turn};
use super::rotation::{resolve, set_aside};
use crate::stream::write_whole;

/// How often it is looked whether a file that nobody renames is still where it was.
const LOOK: Duration = Duration::from_secs(1);

/// Others can set the new file aside before it is locked, so often at most.
const ATTEMPTS: usize = 64;

pub(super) struct Output {
    path: PathBuf,
    mode: u32,
    file: File,
    /// The device and number of a regular file.
    inode: Option<(u64, u64)>,
    /// Whether the path is a name of the file's own. That of a descriptor, such as `/dev/stdout`, leads to another file
    /// when the descriptor does, and to nowhere when that is left to the command.
    has_name: bool,
    lock: Lock,
    /// Whether the others who write to the file give it other names.
    is_rotated: bool,
    looked: Instant,
    opened: Instant,
    said: Said,
}

/// What is said once.
#[derive(Default)]
struct Said {
    gone: bool,
    busy: bool,
    kept: bool,
}

impl Output {
    /// Looks whether samples may go to what is at the path, without changing anything: a file must hold these `contents`
    /// if it holds anything.
    pub(super) fn check(path: &Path, if_exists: IfExists, contents: Contents) -> anyhow::Result<()> {
        let Ok(existing) = std::fs::metadata(path) else { return Ok(()) };
        if existing.is_dir() {
            bail!("cannot write to {}: it is a folder; name a file in it", path.display());
        }
        match if_exists {
            IfExists::Append if holds_something(&existing) => contents.check_at(path),
            IfExists::Fail if holds_something(&existing) => bail!("{} exists already", path.display()),
            _ => Ok(()),
        }
    }

    /// Opens the file, which was looked at with [`check`](Self::check).
    pub(super) fn open(path: &Path, mode: u32, if_exists: IfExists, is_rotated: bool) -> anyhow::Result<Self> {
        let (file, metadata) = open(path, mode)?;
        if if_exists == IfExists::Overwrite && metadata.is_file() {
            file.set_len(0).with_context(|| format!("cannot empty {}", path.display()))?;
        }
        let now = Instant::now();
        Ok(Self {
            path: path.to_owned(),
            mode,
            inode: inode(&metadata),
            has_name: resolve(path).is_ok(),
            file,
            lock: Lock::new(),
            is_rotated,
            looked: now,
            opened: now,
            said: Said::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a regular file, whose end can be changed.
    pub(super) fn is_regular(&self) -> bool {
        self.inode.is_some()
    }

    /// How many bytes the file has.
    pub(super) fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// How long ago it was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Locks the file that is at the path now, if others let it stay there for that long. To be ended by [`end_turn`](Self::end_turn).
    pub(super) fn take_turn(&mut self) -> anyhow::Result<Turn> {
        if !self.is_regular() {
            return Ok(Turn::Unlocked);
        }
        for _ in 0..ATTEMPTS {
            let turn = self.lock();
            if !self.has_moved() || !self.follow()? {
                return Ok(turn);
            }
        }
        // A row in a file that was set aside is in its place as well.
        Ok(self.lock())
    }

    fn lock(&mut self) -> Turn {
        let turn = self.lock.take(&self.file);
        if turn == Turn::Busy && !std::mem::replace(&mut self.said.busy, true) {
            log::warn!(
                "{} is locked by another program; samples are added without waiting for it, and the file is not rotated",
                self.path.display()
            );
        }
        turn
    }

    pub(super) fn end_turn(&self, turn: Turn) {
        Lock::give_back(&self.file, turn);
    }

    /// Begins the file anew when it was deleted, or moved away by somebody who does not lock it.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        if self.is_regular() && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if self.has_moved() {
                self.follow()?;
            }
        }
        Ok(())
    }

    /// Whether the path leads to another file by now, or to none. A file without a name does not move.
    pub(super) fn has_moved(&self) -> bool {
        self.has_name && std::fs::metadata(&self.path).ok().as_ref().and_then(inode) != self.inode
    }

    /// Opens what is at the path now. Where that cannot be, the file that was moved away is written to for as long as
    /// it is somewhere; says whether it was left.
    fn follow(&mut self) -> anyhow::Result<bool> {
        match open(&self.path, self.mode) {
            Ok((file, metadata)) => {
                if !self.is_rotated && !std::mem::replace(&mut self.said.gone, true) {
                    log::warn!("{} was deleted or moved away; it is begun anew", self.path.display());
                }
                self.adopt(file, &metadata);
                Ok(true)
            }
            Err(error) if self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0) => {
                if !std::mem::replace(&mut self.said.kept, true) {
                    log::warn!("{error:#}; samples are added to the file that was moved away");
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn adopt(&mut self, file: File, metadata: &Metadata) {
        self.file = file;
        self.inode = inode(metadata);
        self.opened = Instant::now();
    }

    /// Gives the file a name with a number, and begins it anew, with the permissions that it had. Returns the name.
    pub(super) fn set_aside(&mut self) -> anyhow::Result<PathBuf> {
        let old = self.file.metadata()?;
        if self.has_moved() {
            bail!("{} is another file by now", self.path.display());
        }
        if old.uid() != rustix::process::geteuid().as_raw() {
            bail!("{} belongs to user {}, who alone can begin a new one", self.path.display(), old.uid());
        }
        let target = set_aside(&self.path)?;
        let (file, metadata) = open(&self.path, self.mode)?;
        if metadata.len() == 0 && metadata.mode() != old.mode() {
            // Others who may write to the old one may write to this one.
            let _ = file.set_permissions(Permissions::from_mode(old.mode() & 0o777));
        }
        self.adopt(file, &metadata);
        Ok(target)
    }

    /// Adds bytes at the end, with one write.
    pub(super) fn append(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut written = 0;
        write_whole(&self.file, bytes, &mut written).map_err(|error| {
            // Half a line is worse than none: take it back, unless somebody else has written after it.
            if let (Some(_), Ok(end)) = (self.inode, (&self.file).stream_position())
                && written > 0
                && self.len() == end
            {
                let _ = self.file.set_len(end.saturating_sub(written as u64));
            }
            self.cannot_write(error)
        })
    }

    /// Puts bytes in the place of the last ones of the file, which were `old` when it had this length, with one write. To
    /// be called in a turn that is held; says whether it was done, which it is not when somebody without a turn has added
    /// something since.
    pub(super) fn replace_end(&mut self, length: u64, old: &[u8], bytes: &[u8]) -> anyhow::Result<bool> {
        let at = length.saturating_sub(old.len() as u64);
        // A file that is open for appending takes no other place.
        fcntl_setfl(&self.file, OFlags::empty())?;
        let is_last = self.len() == length;
        let written = if is_last { self.file.write_all_at(bytes, at) } else { Ok(()) };
        let result = written.map(|()| is_last).map_err(|error| {
            let _ = self.file.write_all_at(old, at);
            let _ = self.file.set_len(length);
            self.cannot_write(error)
        });
        fcntl_setfl(&self.file, OFlags::APPEND)?;
        result
    }

    fn cannot_write(&self, error: io::Error) -> anyhow::Error {
        anyhow::Error::new(error).context(format!("cannot write to {}", self.path.display()))
    }

    /// The file from its beginning.
    pub(super) fn reader(&self) -> impl Read {
        ReadAt { file: &self.file, at: 0 }
    }

    /// The last bytes of the file, `size` at most.
    pub(super) fn tail(&self, size: u64) -> io::Result<Vec<u8>> {
        let length = self.file.metadata()?.len();
        let size = length.min(size);
        let mut tail = vec![0; size as usize];
        self.file.read_exact_at(&mut tail, length - size)?;
        Ok(tail)
    }
}

/// Reads a file, and leaves the place where it is written to.
struct ReadAt<'a> {
    file: &'a File,
    at: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn holds_something(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.len() > 0
}

fn inode(metadata: &Metadata) -> Option<(u64, u64)> {
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

fn open(path: &Path, mode: u32) -> anyhow::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(mode);
    // A pipe opened for both sides does not wait for a reader, who may come later. What is to be continued is read.
    let special = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    let file = if special { options.open(path) } else { options.read(true).open(path) };
    let opened = file.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    opened.with_context(|| format!("cannot write to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_end_that_somebody_has_added_to_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.gz");
        let mut output = Output::open(&path, 0o600, IfExists::Append, false).unwrap();
        output.append(b"rows END").unwrap();
        let length = output.len();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b" THEIRS").unwrap();
        assert!(!output.replace_end(length, b"END", b"more END").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"rows END THEIRS");
        output.append(b" END").unwrap();
        assert!(output.replace_end(output.len(), b"END", b"more END").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"rows END THEIRS more END");
    }
}
