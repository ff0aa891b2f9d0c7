//! What is the user's alone: nobody else owns it, reads it or writes it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens what is the user's alone: no link is followed, and nobody is waited for. What is made is open to nobody else.
///
/// # Errors
/// When it is of another kind, belongs to somebody else, or is open to others; the text says which.
pub(super) fn open(parent: impl AsFd, name: impl Arg + Copy, kind: FileType, how: OFlags) -> io::Result<OwnedFd> {
    let how = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(&parent, name, how, Mode::RUSR | Mode::WUSR);
    let opened = opened.or_else(|error| match error {
        // It was to be made, and somebody else was first, whatever that is.
        Errno::EXIST => Err(error.into()),
        // What it is says more than how it could not be opened.
        _ => inspect(&parent, name, kind).and(Err(error.into())),
    })?;
    check(&fstat(&opened)?, kind).map(|()| opened)
}

/// As `open`, but only looks at it.
pub(super) fn inspect(parent: impl AsFd, name: impl Arg, kind: FileType) -> io::Result<Stat> {
    let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    check(&status, kind).map(|()| status)
}

fn check(status: &Stat, kind: FileType) -> io::Result<()> {
    let found = FileType::from_raw_mode(status.st_mode);
    let me = rustix::process::geteuid().as_raw();
    let mode = status.st_mode & 0o777;
    let problem = match found == kind {
        false => format!("it is {}, not {}", noun(found), noun(kind)),
        true if status.st_uid != me => format!("it belongs to user {}, not to user {me}", status.st_uid),
        true if mode & 0o077 != 0 => format!("it is open to others (mode {mode:03o})"),
        true => return Ok(()),
    };
    Err(io::Error::other(problem))
}

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

/// Whether there is nothing of that name.
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
