//! One file that grows by whole lines, whatever happens to it or to the disk.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use resource_tracker_core::trust::{OutputOwner, Owner};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_setfl};

use super::contents::Contents;
use super::destination::Destination;
use super::if_exists::IfExists;
use super::location::{Inode, Location};
use super::lock::{Lock, Turn};
use super::rotation::set_aside;
use crate::stream::write_whole;

/// How often a file that is not rotated is looked for at its path.
const LOOK: Duration = Duration::from_secs(1);

/// How often an end that is not whole is looked at: each time another line can be on its way.
const LOOKS: usize = 16;

/// The pause between two such looks, where the kernel cannot wait for a write.
const PAUSE: Duration = Duration::from_millis(1);

/// How often other trackers can set the new file aside before this one locks it.
const ATTEMPTS: usize = 64;

pub(super) struct Output {
    /// As the user named it.
    path: PathBuf,
    /// `None`: a descriptor, a device or a pipe.
    location: Option<Location>,
    contents: Contents,
    mode: u32,
    file: File,
    /// The device and number of a regular file.
    inode: Option<Inode>,
    lock: Lock,
    /// Whether the trackers that share the file rotate it.
    is_rotated: bool,
    looked: Instant,
    opened: Instant,
    /// Whether this tracker has renamed the file, and has begun no new one since.
    is_set_aside: bool,
    /// How many files it has written to before this one.
    changes: u64,
    said: Said,
}

/// Which warnings were given: each comes once.
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
        let existing = match Destination::of(path)? {
            Destination::File(location) => location.look()?,
            Destination::Stream(stream) => stream.look(),
        };
        existing.map_or(Ok(()), |file| if_exists.judge(&file, path, contents))
    }

    /// Opens the file, which must hold these `contents` if it holds anything.
    pub(super) fn open(
        path: &Path,
        mode: u32,
        if_exists: IfExists,
        contents: Contents,
        is_rotated: bool,
    ) -> anyhow::Result<Self> {
        let (location, file, metadata, owner) = match Destination::of(path)? {
            Destination::File(location) => {
                let (file, metadata, made) = location.open(mode)?;
                let owner = if made { OutputOwner::User } else { location.check_owner(metadata.uid())? };
                (Some(location), file, metadata, owner)
            }
            Destination::Stream(stream) => {
                let (file, metadata) = stream.open(path)?;
                let owner = stream.owner(&metadata)?;
                (None, file, metadata, owner)
            }
        };
        if owner == OutputOwner::Other {
            let (path, user) = (path.display(), metadata.uid());
            log::warn!("{path} belongs to user {user}, who can read and change the samples in it");
        }
        let now = Instant::now();
        let output = Self {
            path: path.to_owned(),
            location,
            contents,
            mode,
            inode: inode(&metadata),
            file,
            lock: Lock::new(),
            is_rotated,
            looked: now,
            opened: now,
            is_set_aside: false,
            changes: 0,
            said: Said::default(),
        };
        if output.is_regular() {
            if_exists.judge(&output.file, path, contents)?;
            if if_exists == IfExists::Overwrite {
                output.file.set_len(0).with_context(|| format!("cannot empty {}", path.display()))?;
            }
        }
        Ok(output)
    }

    /// Refuses a file of something else than such samples.
    pub(super) fn check_contents(&self) -> anyhow::Result<()> {
        if self.is_regular() { self.contents.check(&self.file, &self.path) } else { Ok(()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of the file, where its name can be given to another file.
    pub(super) fn location(&self) -> Option<&Location> {
        self.location.as_ref()
    }

    /// Whether it is a regular file, whose end can be changed.
    pub(super) fn is_regular(&self) -> bool {
        self.inode.is_some()
    }

    /// How many bytes the file has.
    pub(super) fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// How often it has begun to write to another file. An inode does not tell files apart: a new file can have that of
    /// a deleted one.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// How long ago it was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Locks the file that is at the path now, unless others replace it too often. [`end_turn`](Self::end_turn) ends
    /// the turn.
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
        // A row in a file that was set aside is in its right place, too.
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

    /// Begins the file anew when it was deleted, or moved away by a program that does not lock it.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        if self.is_regular() && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if self.has_moved() {
                self.follow()?;
            }
        }
        Ok(())
    }

    /// Whether its name belongs to another file by now, or to none.
    pub(super) fn has_moved(&self) -> bool {
        self.location.as_ref().is_some_and(|location| location.inode() != self.inode)
    }

    /// Opens the file that has the name now. If that fails, samples still go to the file that was moved away, as long
    /// as it has a name. True if the file is another one now.
    fn follow(&mut self) -> anyhow::Result<bool> {
        match self.open_successor() {
            Ok((file, metadata)) => {
                let is_expected = self.is_rotated || self.is_set_aside;
                if !is_expected && !std::mem::replace(&mut self.said.gone, true) {
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

    /// Opens what is in the place of the file: a new file, or one that another tracker has begun. Other users who can
    /// write to the folder could have put anything there.
    fn open_successor(&self) -> anyhow::Result<(File, Metadata)> {
        let path = self.path.display();
        let location = self.location.as_ref().with_context(|| format!("{path} has no name"))?;
        let old = self.file.metadata()?;
        let (file, metadata, made) = location.open(self.mode)?;
        if made {
            let (now, before) = (metadata.mode() & 0o777, old.mode() & 0o777);
            if now != before && old.uid() == metadata.uid() {
                // Those who may write to the old file may write to this one.
                let _ = file.set_permissions(Permissions::from_mode(before));
            }
            return Ok((file, metadata));
        }
        if old.uid() != metadata.uid() && !Owner::User.may_be(metadata.uid()) {
            bail!("{path} was replaced by a file of user {}", metadata.uid());
        }
        self.contents.check(&file, &self.path)?;
        Ok((file, metadata))
    }

    fn adopt(&mut self, file: File, metadata: &Metadata) {
        self.file = file;
        self.inode = inode(metadata);
        self.opened = Instant::now();
        self.is_set_aside = false;
        self.changes += 1;
    }

    /// Gives the file a name with a number, and returns that. The next turn begins a new file with the same
    /// permissions.
    pub(super) fn set_aside(&mut self) -> anyhow::Result<PathBuf> {
        let path = self.path.display();
        let location = self.location.as_ref().with_context(|| format!("{path} has no name that can be changed"))?;
        if self.has_moved() {
            bail!("{path} is another file by now");
        }
        let owner = self.file.metadata()?.uid();
        if !Owner::User.may_be(owner) {
            bail!("{path} belongs to user {owner}, who alone can begin a new one");
        }
        let target = set_aside(location)?;
        self.is_set_aside = true;
        Ok(target)
    }

    /// Adds bytes at the end, with one write.
    pub(super) fn append(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut written = 0;
        write_whole(&self.file, bytes, &mut written).map_err(|error| {
            // Half a line is worse than none: take it back, unless another program has written after it.
            if let (Some(_), Ok(end)) = (self.inode, (&self.file).stream_position())
                && written > 0
                && self.len() == end
            {
                let _ = self.file.set_len(end.saturating_sub(written as u64));
            }
            self.cannot_write(error)
        })
    }

    /// Replaces the last bytes of the file, which were `old` when it had this length, with one write. It needs a turn
    /// that is held. False, with nothing done, if a program without a turn has added something since.
    pub(super) fn replace_end(&mut self, length: u64, old: &[u8], bytes: &[u8]) -> anyhow::Result<bool> {
        let at = length.saturating_sub(old.len() as u64);
        // A file that is open for appending ignores positions.
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

    /// Whether the last sample in the file is whole. It waits for a sample that another tracker is writing.
    pub(super) fn ends_whole(&self) -> io::Result<bool> {
        for _ in 0..LOOKS {
            if self.contents.end_whole(&self.file)? {
                return Ok(true);
            }
            self.wait_for_write();
        }
        Ok(false)
    }

    /// Waits until the write that is under way is done: the kernel has one lock for both calls. On a file system
    /// without this call, it pauses.
    fn wait_for_write(&self) {
        // There is a first byte, so this changes nothing.
        if fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, 1).is_err() {
            thread::sleep(PAUSE);
        }
    }
}

fn inode(metadata: &Metadata) -> Option<Inode> {
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;
    use crate::encode::Encoder;

    /// While a long line is written, the file ends wherever the kernel has got to.
    #[test]
    fn a_line_that_somebody_is_writing_is_not_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.jsonl");
        let contents = Contents { encoder: Encoder::Json, gzip: false };
        let output = Output::open(&path, 0o600, IfExists::Append, contents, false).unwrap();
        let mut line = vec![b'x'; 256 << 10];
        line.push(b'\n');
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut theirs = OpenOptions::new().append(true).open(&path).unwrap();
                for _ in 0..400 {
                    theirs.write_all(&line).unwrap();
                    thread::sleep(PAUSE);
                }
            });
            while !writer.is_finished() {
                assert!(output.len() == 0 || output.ends_whole().unwrap());
            }
        });
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"half").unwrap();
        assert!(!output.ends_whole().unwrap());
    }

    #[test]
    fn an_end_that_somebody_has_added_to_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.gz");
        let contents = Contents { encoder: Encoder::Json, gzip: true };
        let mut output = Output::open(&path, 0o600, IfExists::Append, contents, false).unwrap();
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
