//! Where the file is: a folder that is held open, and a name in it. Other users who can write to that folder can
//! replace the file, but cannot lead the tracker to another folder, nor to a file behind a link.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use resource_tracker_core::trust::{FileRequirement, OutputOwner, OutputPath, check_output};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, fcntl_setfl, fstat, linkat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// Another process can make and remove the file between two calls, so often at most.
const ATTEMPTS: usize = 64;

/// The kernel's device and number of a file.
pub(super) type Inode = (u64, u64);

#[derive(Debug)]
pub(super) struct Location {
    folder: OwnedFd,
    name: OsString,
    /// Its path in messages.
    path: PathBuf,
}

impl From<OutputPath> for Location {
    fn from(output: OutputPath) -> Self {
        Self { folder: output.folder, name: output.name, path: output.path }
    }
}

impl Location {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that has the name now, if there is one. A link is not followed.
    pub(super) fn inode(&self) -> Option<Inode> {
        self.inode_of(&self.name)
    }

    fn inode_of(&self, name: &OsStr) -> Option<Inode> {
        let status = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((status.st_dev, status.st_ino))
    }

    /// Opens the file, or makes it; the second value says whether it was made here. What is there must be a regular
    /// file: nothing is waited for, and no link is followed.
    pub(super) fn open(&self, mode: u32) -> anyhow::Result<(File, Metadata, bool)> {
        let how = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let (opened, made) = match openat(&self.folder, &self.name, how, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let new = how | OFlags::CREATE | OFlags::EXCL;
                    (openat(&self.folder, &self.name, new, Mode::from_raw_mode(mode)), true)
                }
                opened => (opened, false),
            };
            let file = match opened {
                Err(Errno::EXIST) => continue,
                Err(Errno::LOOP) => bail!("cannot write to {}: it was replaced by a link", self.path.display()),
                opened => File::from(opened.map_err(io::Error::from).with_context(|| self.cannot_write())?),
            };
            let metadata = file.metadata().with_context(|| self.cannot_write())?;
            if !metadata.is_file() {
                bail!("{}: it was replaced by something that is no regular file", self.cannot_write());
            }
            fcntl_setfl(&file, OFlags::APPEND)?;
            return Ok((file, metadata, made));
        }
        bail!("{}: somebody makes and removes it again and again", self.cannot_write())
    }

    /// Opens the file to look at it; `None` when there is none.
    pub(super) fn look(&self) -> anyhow::Result<Option<File>> {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.folder, &self.name, how, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).with_context(|| self.cannot_write()),
        }
    }

    fn cannot_write(&self) -> String {
        format!("cannot write to {}", self.path.display())
    }

    /// Opens another name in the folder to look at it, if it is a regular file of the user's.
    pub(super) fn look_at(&self, name: &OsStr) -> Option<File> {
        FileRequirement::OWN_FILE.open(&self.folder, name, OFlags::RDONLY).ok().map(File::from)
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// What kind of owner the file has.
    ///
    /// # Errors
    /// When the file belongs to another user, who could have put it there.
    pub(super) fn check_owner(&self, owner: u32) -> anyhow::Result<OutputOwner> {
        check_output(&self.folder, owner).with_context(|| self.cannot_write())
    }

    /// The name of the file.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The regular files of the user in the folder.
    pub(super) fn names(&self, is_wanted: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
        let folder = openat(&self.folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let entries = folder.and_then(Dir::new).into_iter().flatten().flatten();
        let names = entries.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        let is_own_file = |name: &OsString| FileRequirement::OWN_FILE.inspect(&self.folder, name).is_ok();
        names.filter(|name| is_wanted(name) && is_own_file(name)).collect()
    }

    /// Renames the file, but never over something.
    pub(super) fn rename_to_new(&self, name: &OsStr) -> Result<(), Errno> {
        match renameat_with(&self.folder, &self.name, &self.folder, name, RenameFlags::NOREPLACE) {
            // NFS and some FUSE file systems: a link does not replace anything either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_to_new(name),
            result => result,
        }
    }

    fn link_to_new(&self, name: &OsStr) -> Result<(), Errno> {
        linkat(&self.folder, &self.name, &self.folder, name, AtFlags::empty())?;
        unlinkat(&self.folder, &self.name, AtFlags::empty()).inspect_err(|_| {
            // The file keeps its old name, and loses the new one.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        })
    }

    /// Removes the name from the folder, if it is still the name of this file.
    pub(super) fn remove(&self, name: &OsStr, file: &File) -> anyhow::Result<()> {
        let status = fstat(file).with_context(|| self.cannot_delete(name))?;
        if self.inode_of(name) != Some((status.st_dev, status.st_ino)) {
            return Ok(());
        }
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            // Another tracker was faster.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).with_context(|| self.cannot_delete(name)),
        }
    }

    fn cannot_delete(&self, name: &OsStr) -> String {
        format!("cannot delete {}", self.path.with_file_name(name).display())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType};

    use super::super::destination::Destination;
    use super::*;

    pub(crate) fn located(path: &Path) -> Location {
        match Destination::of(path).unwrap() {
            Destination::File(location) => location,
            Destination::Stream(_) => panic!("{} is no file", path.display()),
        }
    }

    #[test]
    fn a_name_that_is_taken_is_not_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        for rename in [Location::rename_to_new, Location::link_to_new] {
            let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
            fs::write(&from, "rows").unwrap();
            fs::write(&to, "theirs").unwrap();
            let location = located(&from);
            assert_eq!(rename(&location, OsStr::new("to")), Err(Errno::EXIST));
            let read = |path: &Path| fs::read_to_string(path).unwrap();
            assert_eq!((read(&from), read(&to)), ("rows".into(), "theirs".into()));
            fs::remove_file(&to).unwrap();
            assert_eq!(rename(&location, OsStr::new("to")), Ok(()));
            assert_eq!((from.exists(), read(&to)), (false, "rows".into()));
        }
    }

    #[test]
    fn a_name_that_another_file_has_got_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let location = located(&directory.path().join("run.jsonl"));
        let (name, path) = (OsStr::new("run.1.jsonl"), directory.path().join("run.1.jsonl"));
        fs::write(&path, "rows").unwrap();
        let rows = location.look_at(name).unwrap();
        fs::write(directory.path().join("new"), "theirs").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        location.remove(name, &rows).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        location.remove(name, &location.look_at(name).unwrap()).unwrap();
        location.remove(name, &rows).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_was_put_in_the_place_of_the_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.jsonl");
        let location = located(&path);
        let (_, _, made) = location.open(0o600).unwrap();
        assert!(made && !location.open(0o600).unwrap().2);
        fs::rename(&path, directory.path().join("old")).unwrap();
        fs::write(directory.path().join("victim"), "important").unwrap();
        symlink("victim", &path).unwrap();
        assert!(location.open(0o600).unwrap_err().to_string().contains("replaced by a link"));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(location.open(0o600).unwrap_err().to_string().contains("no regular file"));
    }
}
