//! What must hold before something in the file system is trusted.

use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, stat};
use rustix::io::Errno;
use rustix::path::Arg;

use super::group::{STICKY, others_write};

const OTHERS: u32 = 0o077;

/// What must hold before something in the file system is trusted.
#[derive(Debug, Clone, Copy)]
pub struct FileRequirement {
    kind: FileType,
    owner: Owner,
    others: Others,
}

/// Who may own it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The user who runs this.
    User,
    /// The user, or root.
    UserOrRoot,
    /// The user, root, or the owner of the root folder, which is not always user 0 in a user namespace.
    UserOrMachine,
}

/// What others than its owner may do with it at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    Nothing,
    Read,
    /// Put something into a folder, but not move or remove what is not theirs.
    Add,
    Anything,
}

impl Owner {
    /// Whether this user may own it.
    pub fn may_be(self, user: u32) -> bool {
        let is_root = user == 0 && self != Self::User;
        let is_machine = || self == Self::UserOrMachine && stat("/").is_ok_and(|root| root.st_uid == user);
        user == rustix::process::geteuid().as_raw() || is_root || is_machine()
    }
}

impl FileRequirement {
    /// A file that only the user can use.
    pub const PRIVATE_FILE: Self = Self::new(FileType::RegularFile, Owner::User, Others::Nothing);
    /// A folder that only the user can use.
    pub const PRIVATE_FOLDER: Self = Self::new(FileType::Directory, Owner::User, Others::Nothing);
    /// A file of the user's, even if others can write to it.
    pub const OWN_FILE: Self = Self::new(FileType::RegularFile, Owner::User, Others::Anything);
    /// A file that only root and the user can have written.
    pub(super) const TRUSTED_FILE: Self = Self::new(FileType::RegularFile, Owner::UserOrRoot, Others::Read);
    /// A folder in which only root and the user can have put anything.
    pub(super) const TRUSTED_FOLDER: Self = Self::new(FileType::Directory, Owner::UserOrRoot, Others::Read);

    pub(super) const fn new(kind: FileType, owner: Owner, others: Others) -> Self {
        Self { kind, owner, others }
    }

    /// Opens something, and checks it. It follows no link and waits for nothing. What it makes is open to the user
    /// alone.
    ///
    /// # Errors
    /// When it cannot be opened, or is not what is demanded; the text says what it is, whose it is, or what others may do.
    pub fn open(self, parent: impl AsFd, name: impl Arg + Copy, how: OFlags) -> io::Result<OwnedFd> {
        let how = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&parent, name, how, Mode::RUSR | Mode::WUSR).or_else(|error| match error {
            // It was to be made, and another process was faster, whatever that has made.
            Errno::EXIST => Err(error.into()),
            // The check says more than the error of opening it.
            _ => self.inspect(&parent, name).and(Err(io::Error::from(error))),
        })?;
        self.check(&opened).map(|_| opened)
    }

    /// As [`open`](Self::open), but only looks at it.
    ///
    /// # Errors
    /// When it is not what is demanded.
    pub fn inspect(self, parent: impl AsFd, name: impl Arg) -> io::Result<Stat> {
        let place = openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        self.check(&place)
    }

    pub(super) fn check(self, open: impl AsFd) -> io::Result<Stat> {
        let status = fstat(&open)?;
        let (kind, mode) = (FileType::from_raw_mode(status.st_mode), status.st_mode & 0o7777);
        let mut problem = String::new();
        let _ = if kind != self.kind {
            write!(problem, "it is {}, not {}", noun(kind), noun(self.kind))
        } else if !self.owner.may_be(status.st_uid) {
            let or_root = if self.owner == Owner::User { "" } else { " or root" };
            write!(problem, "it belongs to user {}, not to you{or_root}", status.st_uid)
        } else {
            match self.others {
                Others::Nothing if mode & OTHERS != 0 => write!(problem, "it is open to others (mode {mode:03o})"),
                Others::Add if mode & STICKY != 0 => return Ok(status),
                Others::Read | Others::Add if others_write(&open, &status) => {
                    return Err(io::Error::other(OthersWrite { mode }));
                }
                _ => return Ok(status),
            }
        };
        Err(io::Error::other(problem))
    }
}

/// The one reason that a change of permissions removes.
#[derive(Debug)]
pub(super) struct OthersWrite {
    pub(super) mode: u32,
}

impl fmt::Display for OthersWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "others can write to it (mode {:03o})", self.mode)
    }
}

impl std::error::Error for OthersWrite {}

fn noun(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::CWD;

    use super::super::folder::tests::mode;
    use super::*;

    #[test]
    fn what_is_the_users_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        let said = |demand: FileRequirement| match demand.open(CWD, &file, OFlags::RDONLY) {
            Ok(_) => demand.inspect(CWD, &file).map_or_else(|why| why.to_string(), |_| String::new()),
            Err(why) => why.to_string(),
        };
        fs::write(&file, "x").unwrap();
        mode(&file, 0o640);
        assert_eq!(said(FileRequirement::PRIVATE_FILE), "it is open to others (mode 640)");
        assert_eq!(
            (said(FileRequirement::OWN_FILE), said(FileRequirement::TRUSTED_FILE)),
            (String::new(), String::new())
        );
        mode(&file, 0o600);
        assert_eq!(said(FileRequirement::PRIVATE_FILE), "");
        assert_eq!(said(FileRequirement::PRIVATE_FOLDER), "it is a regular file, not a folder");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(54321), None).unwrap();
            assert_eq!(said(FileRequirement::OWN_FILE), "it belongs to user 54321, not to you");
            assert_eq!(said(FileRequirement::TRUSTED_FILE), "it belongs to user 54321, not to you or root");
        }
    }
}
