//! Where a path leads, for a writer. The folders on the way may belong to anyone. What another user has put there to
//! lead the writer elsewhere, or to get what is written, is refused.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use super::error::io_error;
use super::file_requirement::Owner;
use super::folder::{LINKS, PLACE, put_before};
use super::group::{STICKY, is_of_own_team, others_write};

/// Opening with these flags also mounts what is mounted on use.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What a path leads to: a name in a folder that is held open.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutputPath {
    /// The folder.
    pub folder: OwnedFd,
    /// The name. It is not that of a link, except in procfs, where a link leads to an open file rather than to a path.
    pub name: OsString,
    /// Where it is, without links.
    pub path: PathBuf,
    /// The status of what has the name, if that is known.
    pub found: Option<Stat>,
}

impl OutputPath {
    /// Follows a path, and all links on the way that no other user can have put there.
    ///
    /// # Errors
    /// When a folder is missing, or a link belongs to another user, who could make it lead anywhere.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::follow(path).map_err(io_error)
    }

    fn follow(path: &Path) -> anyhow::Result<Self> {
        let (mut folder, mut at) = start(path)?;
        let mut rest = Vec::new();
        put_before(&mut rest, path);
        let mut links = 0;
        while let Some(name) = rest.pop().filter(|name| name != ".." || !rest.is_empty()) {
            let is_last = rest.is_empty();
            let path = join(&at, &name);
            let entered = if is_last { Err(Errno::NOTDIR) } else { enter(&folder, &name) };
            match entered {
                Ok(next) => {
                    (folder, at) = (next, path);
                    continue;
                }
                Err(Errno::NOTDIR | Errno::LOOP) => (),
                Err(error) => return Err(error.into()),
            }
            let place = openat(&folder, &name, PLACE, Mode::empty());
            let found = place.as_ref().ok().and_then(|place| fstat(place).ok());
            let is_link = found.is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
            if is_last && (!is_link || is_procfs(&folder)) {
                return Ok(Self { folder, name, path, found });
            }
            let (place, found) = (place?, found.filter(|_| is_link).ok_or(Errno::NOTDIR)?);
            check_link(&folder, &path, found.st_uid, is_last)?;
            links += 1;
            if links > LINKS {
                bail!("it leads through too many links");
            }
            let target = PathBuf::from(OsString::from_vec(readlinkat(&place, "", Vec::new())?.into_bytes()));
            if target.is_absolute() {
                (folder, at) = start(&target)?;
            }
            put_before(&mut rest, &target);
        }
        bail!("it is no file");
    }

    /// Whether the name is that of a descriptor, or of something else in procfs.
    pub fn is_in_procfs(&self) -> bool {
        is_procfs(&self.folder)
    }
}

/// Whose an existing output file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputOwner {
    /// The user, or root.
    User,
    /// Another user, who is meant to have the output, as far as one can tell.
    Other,
}

/// Whether to write to an existing file in this folder, which belongs to this user. Its owner reads what is written,
/// and in a folder where others can put files, anybody can be its owner. The kernel refuses such files by
/// `fs.protected_regular` and `fs.protected_fifos`, but only in sticky folders, and only where these are on.
///
/// In two folders, such a file is meant: in one that only its owner, this user or root can write to, nobody else can
/// have put it; and in that of a team, which this user is in, files of others are expected.
///
/// # Errors
/// When it belongs to another user, who could have put it there.
pub fn check_output(folder: impl AsFd, owner: u32) -> io::Result<OutputOwner> {
    if Owner::UserOrMachine.may_be(owner) {
        return Ok(OutputOwner::User);
    }
    let status = fstat(&folder)?;
    let is_ones_own = status.st_uid == owner || Owner::UserOrMachine.may_be(status.st_uid);
    if (is_ones_own && !others_write(&folder, &status)) || is_of_own_team(&folder, &status) {
        return Ok(OutputOwner::Other);
    }
    let sticky = if status.st_mode & STICKY == 0 { "" } else { "sticky " };
    Err(io::Error::other(format!(
        "it belongs to user {owner}, who can have put it into this {sticky}folder to get what is written; delete it, or \
         name a file in a folder of your own"
    )))
}

fn start(path: &Path) -> rustix::io::Result<(OwnedFd, PathBuf)> {
    let (from, shown) = if path.is_absolute() { ("/", "/") } else { (".", "") };
    Ok((openat(CWD, from, FOLDER, Mode::empty())?, shown.into()))
}

/// Opens a folder in another one. It follows no link, except in procfs.
fn enter(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    match openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) if is_procfs(folder) => openat(folder, name, FOLDER, Mode::empty()),
        opened => opened,
    }
}

fn is_procfs(folder: &OwnedFd) -> bool {
    fstatfs(folder).is_ok_and(|status| status.f_type == PROC_SUPER_MAGIC)
}

/// Accepts the link of another user in a folder that only root and the user can change: one of them has put it there.
fn check_link(folder: &OwnedFd, path: &Path, owner: u32, is_last: bool) -> anyhow::Result<()> {
    let is_trusted = |owner: u32| Owner::UserOrMachine.may_be(owner);
    if is_trusted(owner) {
        return Ok(());
    }
    let status = fstat(folder).context("its folder cannot be looked at")?;
    if is_trusted(status.st_uid) && !others_write(folder, &status) {
        return Ok(());
    }
    let target = if is_last { "file" } else { "folder" };
    bail!("{} is a link of user {owner}; name the {target} that it leads to", path.display())
}

fn join(folder: &Path, name: &OsStr) -> PathBuf {
    match folder.parent().filter(|_| name == ".." && !folder.ends_with("..")) {
        Some(parent) => parent.into(),
        None => folder.join(name),
    }
}
