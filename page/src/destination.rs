//! The file that a page is written to.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::sys::signal::{SigSet, SigmaskHow};
use resource_tracker_core::trust::OutputPath;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::page::BEGINNING;

const ATTEMPTS: u32 = 64;
/// Private, as for recordings: the page has the command line.
const MODE: u32 = 0o600;

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfThere {
    /// The new page takes the place of an older one, and of nothing else.
    ReplacePage,
    /// It is kept, and nothing is written.
    Keep,
}

/// The place of a page. The page appears there as a whole.
#[derive(Debug)]
pub struct Destination {
    place: OutputPath,
    if_there: IfThere,
}

impl Destination {
    /// Follows the path, and looks at what is there. Nothing is changed.
    ///
    /// # Errors
    /// When it leads to no place for a file, or something is there that must not be lost.
    pub fn of(path: &Path, if_there: IfThere) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write to {}", path.display());
        if path.as_os_str().as_bytes().ends_with(b"/") {
            bail!("{}: it is the name of a folder", cannot());
        }
        let place = OutputPath::of(path).with_context(cannot)?;
        if place.is_in_procfs() {
            let problem = if place.found.is_some() { "no regular file" } else { "no place for a file" };
            bail!("{}: it is {problem}; - is standard output", cannot());
        }
        let destination = Self { place, if_there };
        destination.older().with_context(cannot)?;
        Ok(destination)
    }

    /// Writes the page, and gives it the name when it is whole.
    ///
    /// # Errors
    /// When it cannot be written, or something else has come there meanwhile; the file that was there stays.
    pub fn write(&self, page: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let written = || -> anyhow::Result<()> {
            let draft = self.draft()?;
            let mut writer = BufWriter::new(&draft.file);
            page(&mut writer)?;
            writer.flush()?;
            drop(writer);
            // The place may have changed during the run, since the first look.
            let older = self.older()?;
            draft.file.set_permissions(Permissions::from_mode(older.unwrap_or(MODE)))?;
            Ok(self.publish(&draft, older.is_some())?)
        };
        written().with_context(|| format!("cannot write to {}", self.place.path.display()))
    }

    /// The permissions of the older page that is there, if one is.
    fn older(&self) -> anyhow::Result<Option<u32>> {
        let OutputPath { folder, name, .. } = &self.place;
        // This comes before the file is opened: to open a device can have effects.
        let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(io::Error::from)?,
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            bail!("it is no regular file; - is standard output");
        }
        if self.if_there == IfThere::Keep {
            bail!("it is there already; name another file, or this one with -o to write it anew");
        }
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(folder, name, how, Mode::empty()).map_err(io::Error::from)?);
        let mut beginning = Vec::new();
        file.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
        if !beginning.is_empty() && beginning != BEGINNING.as_bytes() {
            bail!("it is there already, and no report; remove it, or name another file");
        }
        // Permissions that another user has set are not for our page.
        let is_own = found.st_uid == rustix::process::geteuid().as_raw();
        Ok(Some(if is_own { found.st_mode & 0o777 } else { MODE }))
    }

    /// A file for the page. It has no name, so that nothing stays behind whatever ends the program; where the file
    /// system has no such files, it has a temporary name beside the page.
    fn draft(&self) -> io::Result<Draft<'_>> {
        let (how, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(MODE));
        if let Ok(file) = openat(&self.place.folder, ".", how | OFlags::TMPFILE, mode) {
            let file = File::from(file);
            // The page gets its name through this path, which needs /proc.
            if path_of(&file).exists() {
                return Ok(Draft { file, name: None });
            }
        }
        let how = how | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let (file, name) = self.with_free_name(|name| openat(&self.place.folder, name, how, mode))?;
        Ok(Draft { file: file.into(), name: Some(name) })
    }

    /// Gives the page its name.
    fn publish(&self, draft: &Draft, replaces: bool) -> io::Result<()> {
        let OutputPath { folder, name, .. } = &self.place;
        if let Some(temporary) = &draft.name {
            return temporary.become_file(name, replaces);
        }
        let page = path_of(&draft.file);
        if !replaces {
            return Ok(linkat(CWD, &page, folder, name, AtFlags::SYMLINK_FOLLOW)?);
        }
        let (_, temporary) = self.with_free_name(|name| linkat(CWD, &page, folder, name, AtFlags::SYMLINK_FOLLOW))?;
        temporary.become_file(name, replaces)
    }

    /// Calls `make` with random names until it finds one that is free.
    fn with_free_name<T>(&self, make: impl Fn(&str) -> rustix::io::Result<T>) -> io::Result<(T, Temporary<'_>)> {
        let waiting = Waiting::signals()?;
        for _ in 0..ATTEMPTS {
            // Nobody can have taken all random names.
            let name = format!(".report-{:016x}.tmp", RandomState::new().build_hasher().finish());
            match make(&name) {
                Err(Errno::EXIST) => (),
                made => return Ok((made?, Temporary { folder: &self.place.folder, name, _waiting: waiting })),
            }
        }
        Err(Errno::EXIST.into())
    }
}

/// A page in the making.
struct Draft<'a> {
    file: File,
    name: Option<Temporary<'a>>,
}

/// A path to an open file, which may have no name.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A temporary name, which is removed on drop. Until then signals wait, so that none ends the program and leaves it
/// behind.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: String,
    _waiting: Waiting,
}

impl Temporary<'_> {
    fn become_file(&self, name: &OsStr, replaces: bool) -> io::Result<()> {
        let Self { folder, name: temporary, .. } = self;
        if !replaces {
            match renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems do not support the flag.
                Err(Errno::INVAL | Errno::NOSYS) => (),
                renamed => return Ok(renamed?),
            }
        }
        Ok(renameat(folder, temporary, folder, name)?)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // After a failure the name goes; after a success it is gone already.
        let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
    }
}

/// Signals to this thread wait for as long as this lives.
struct Waiting(SigSet);

impl Waiting {
    fn signals() -> io::Result<Self> {
        Ok(Self(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The mask was valid before, so this cannot fail.
        let _ = self.0.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::signal::Signal;

    use super::*;

    fn write(path: &Path, if_there: IfThere, page: &str) -> Result<(), String> {
        let destination = Destination::of(path, if_there);
        let written =
            destination.and_then(|destination| destination.write(|file| Ok(file.write_all(page.as_bytes())?)));
        written.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn only_pages_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        let page = format!("{BEGINNING} one");
        write(&path, IfThere::Keep, &page).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write(&path, IfThere::Keep, "").unwrap_err().contains("it is there already; name another file"));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write(&path, IfThere::ReplacePage, &page).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        fs::write(&path, "<!DOCTYPE html> my thesis").unwrap();
        assert!(write(&path, IfThere::ReplacePage, &page).unwrap_err().contains("and no report"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "<!DOCTYPE html> my thesis");
        let failed = Destination::of(&directory.path().join("new"), IfThere::Keep).unwrap();
        assert!(failed.write(|_| bail!("no more room")).is_err());
        // Another file appears there while the run goes on.
        let late = Destination::of(&directory.path().join("late.html"), IfThere::ReplacePage).unwrap();
        fs::write(directory.path().join("late.html"), "my thesis").unwrap();
        let error = late.write(|file| Ok(file.write_all(page.as_bytes())?)).unwrap_err();
        assert!(format!("{error:#}").contains("and no report"), "{error:#}");
        assert_eq!(fs::read_to_string(directory.path().join("late.html")).unwrap(), "my thesis");
        fs::remove_file(directory.path().join("late.html")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path().join("report.html"), Some(54321), None).unwrap();
            fs::write(&path, &page).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
            write(&path, IfThere::ReplacePage, &page).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "that of a stranger's is not taken over");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left of it");
    }

    #[test]
    fn nothing_is_left_of_a_page_that_was_not_finished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        let destination = Destination::of(&path, IfThere::ReplacePage).unwrap();
        let files =
            || fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
        if destination.draft().unwrap().name.is_some() {
            return eprintln!("skipped: there are no files without a name in {}", directory.path().display());
        }
        for round in 0..2 {
            let page = |file: &mut dyn Write| {
                file.write_all(BEGINNING.as_bytes())?;
                file.flush()?;
                assert_eq!(files().len(), round, "whatever ends the program now");
                Ok(())
            };
            destination.write(page).unwrap();
            assert_eq!(files(), ["report.html"]);
        }
    }

    /// Where the file system has no files without a name.
    #[test]
    fn a_page_with_a_name_in_between() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        let destination = Destination::of(&path, IfThere::ReplacePage).unwrap();
        let before = SigSet::thread_get_mask().unwrap();
        for replaces in [false, true, false] {
            let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let made = destination.with_free_name(|name| openat(&destination.place.folder, name, how, Mode::RUSR));
            let (file, name) = made.unwrap();
            let blocked = SigSet::thread_get_mask().unwrap();
            assert!(blocked.contains(Signal::SIGTERM) && blocked.contains(Signal::SIGINT), "none comes in between");
            let draft = Draft { file: file.into(), name: Some(name) };
            let exists = path.exists();
            assert_eq!(destination.publish(&draft, replaces).is_ok(), replaces || !exists);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left of it");
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }

    #[test]
    fn what_is_no_place_for_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link.html");
        symlink("target.html", &link).unwrap();
        write(&link, IfThere::Keep, BEGINNING).unwrap();
        assert!(directory.path().join("target.html").is_file(), "own links are followed");
        for (path, problem) in [
            ("/dev/null".as_ref(), "no regular file"),
            ("/dev/stdout".as_ref(), "standard output"),
            (directory.path(), "no regular file"),
            (&directory.path().join("report.html/"), "the name of a folder"),
            (&directory.path().join("none/report.html"), "No such file"),
        ] {
            let error = write(path, IfThere::ReplacePage, BEGINNING).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
