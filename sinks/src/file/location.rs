//! Where the file is: a folder that is held open, and a name in it. Whoever else can write in that folder can put
//! something else in the place of the file, but cannot lead the tracker to another folder, nor to a file behind a link.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use resource_tracker_core::trust::{Demand, Owner};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, PROC_SUPER_MAGIC, RenameFlags, Stat, fcntl_setfl, fstat, fstatfs,
    linkat, openat, readlinkat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// Somebody else can make and remove the file between two looks, so often at most.
const ATTEMPTS: usize = 64;

/// The kernel's device and number of a file.
pub(super) type Inode = (u64, u64);

#[derive(Debug)]
pub(super) struct Location {
    folder: OwnedFd,
    name: OsString,
    /// As it is shown.
    path: PathBuf,
}

/// What a path leads to.
pub(super) enum Destination {
    /// A regular file, or none yet.
    File(Location),
    /// A descriptor, a device, a pipe: it has no name that could be given to another file.
    Stream,
}

impl Destination {
    /// Follows the links at the end of a path.
    ///
    /// # Errors
    /// When a link is somebody else's, who could make it lead anywhere, or the path cannot lead to a file of samples.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let mut resolved = path.to_owned();
        for _ in 0..LINKS {
            let name = resolved.file_name().with_context(|| format!("{} is no file", path.display()))?.to_owned();
            let parent = resolved.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(parent, folder, Mode::empty());
            let folder = folder.with_context(|| format!("cannot write to {}", path.display()))?;
            if fstatfs(&folder).is_ok_and(|status| status.f_type == PROC_SUPER_MAGIC) {
                return Ok(Self::Stream);
            }
            let kind = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Symlink => {
                    check_link(path, &resolved, &status)?;
                    let target = readlinkat(&folder, &name, Vec::new());
                    let target = target.with_context(|| format!("cannot read the link {}", resolved.display()))?;
                    resolved = parent.join(OsString::from_vec(target.into_bytes()));
                    continue;
                }
                Ok(status) => FileType::from_raw_mode(status.st_mode),
                Err(_) => FileType::RegularFile,
            };
            return match kind {
                FileType::RegularFile => Ok(Self::File(Location { folder, name, path: resolved })),
                FileType::Directory => bail!("cannot write to {}: it is a folder", path.display()),
                FileType::BlockDevice => {
                    bail!("cannot write to {}: it is a disk, whose contents would be lost", path.display())
                }
                _ => Ok(Self::Stream),
            };
        }
        bail!("{} leads through too many links", path.display());
    }
}

/// Whoever owns a link can make it lead elsewhere at any time.
fn check_link(path: &Path, link: &Path, status: &Stat) -> anyhow::Result<()> {
    if Owner::UserOrMachine.may_be(status.st_uid) {
        return Ok(());
    }
    bail!(
        "cannot write to {}: {} is a link of user {}; name the file that it leads to",
        path.display(),
        link.display(),
        status.st_uid
    )
}

impl Location {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that has the name now, if there is one. A link is one of its own.
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
        Demand::OWN_FILE.open(&self.folder, name, OFlags::RDONLY).ok().map(File::from)
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
        let is_own_file = |name: &OsString| Demand::OWN_FILE.inspect(&self.folder, name).is_ok();
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
            // The file keeps its name, and only that.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        })
    }

    /// Removes the name of this file from the folder. One that is gone, or that another file has by now, is none to remove.
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

/// Opens a descriptor, a device or a pipe.
pub(super) fn open_stream(path: &Path) -> anyhow::Result<(File, Metadata)> {
    let open = |how: OFlags| {
        openat(CWD, path, how | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .map_err(io::Error::from)
    };
    // A pipe opened for both sides does not wait for a reader, who may come later. A file is read to be continued.
    let is_both = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.file_type().is_fifo());
    let opened = open(if is_both { OFlags::RDWR } else { OFlags::WRONLY }).map(File::from);
    let opened = opened.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    opened.with_context(|| format!("cannot write to {}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    pub(crate) fn located(path: &Path) -> Location {
        match Destination::of(path).unwrap() {
            Destination::File(location) => location,
            Destination::Stream => panic!("{} is no file", path.display()),
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
    fn own_links_are_followed_and_descriptors_have_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path();
        fs::create_dir(folder.join("data")).unwrap();
        symlink("data/run.jsonl", folder.join("link")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        assert_eq!(located(&folder.join("link")).path(), folder.join("data/run.jsonl"));
        let refused = |path: &Path| Destination::of(path).err().unwrap().to_string();
        assert!(refused(&folder.join("loop")).contains("too many links"));
        assert!(refused(&folder.join("data")).contains("it is a folder"));
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/null"] {
            assert!(matches!(Destination::of(Path::new(path)), Ok(Destination::Stream)), "{path}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(folder.join("link"), Some(54321), None).unwrap();
            assert!(refused(&folder.join("link")).contains("is a link of user 54321"));
        }
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
