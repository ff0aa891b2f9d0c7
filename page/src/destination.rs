//! The file that a page is written to.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use resource_tracker_core::trust::Place;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use crate::page::BEGINNING;

/// Names of files in the making can be left from before.
const ATTEMPTS: u32 = 64;
/// As for recordings: a command line is in it.
const MODE: u32 = 0o600;

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfThere {
    /// The new page takes the place of an older one, and of nothing else.
    ReplacePage,
    /// It is kept, and nothing is written.
    Keep,
}

/// Where a page belongs: all of it appears there at once.
#[derive(Debug)]
pub struct Destination {
    place: Place,
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
        let place = Place::of(path).with_context(cannot)?;
        if place.is_in_procfs() {
            let problem = if place.found.is_some() { "no regular file" } else { "no place for a file" };
            bail!("{}: it is {problem}; - is standard output", cannot());
        }
        let destination = Self { place, if_there };
        destination.older().with_context(cannot)?;
        Ok(destination)
    }

    /// Writes the page beside it, and gives it the name when it is whole.
    ///
    /// # Errors
    /// When it cannot be written, or something else has come there meanwhile; what was there is there still.
    pub fn write(&self, page: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let cannot = || format!("cannot write to {}", self.place.path.display());
        let (file, temporary) = self.make().map_err(io::Error::from).with_context(cannot)?;
        let written = || -> anyhow::Result<()> {
            let mut writer = BufWriter::new(&file);
            page(&mut writer)?;
            writer.flush()?;
            drop(writer);
            // Much can have happened in a run since it was looked first.
            let older = self.older()?;
            file.set_permissions(Permissions::from_mode(older.unwrap_or(MODE)))?;
            Ok(self.rename(&temporary, older.is_some())?)
        };
        written().with_context(cannot).inspect_err(|_| {
            // What failed is said.
            let _ = unlinkat(&self.place.folder, &temporary, AtFlags::empty());
        })
    }

    /// The permissions of the older page that is there, if one is.
    fn older(&self) -> anyhow::Result<Option<u32>> {
        let Place { folder, name, .. } = &self.place;
        // Before it is opened, which can make a device do something.
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
        // What a stranger allows others is not for a page of ours.
        let is_own = found.st_uid == rustix::process::geteuid().as_raw();
        Ok(Some(if is_own { found.st_mode & 0o777 } else { MODE }))
    }

    fn rename(&self, temporary: &str, replaces: bool) -> rustix::io::Result<()> {
        let Place { folder, name, .. } = &self.place;
        if !replaces {
            match renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
                // Some file systems do not know it.
                Err(Errno::INVAL | Errno::NOSYS) => (),
                renamed => return renamed,
            }
        }
        renameat(folder, temporary, folder, name)
    }

    fn make(&self) -> rustix::io::Result<(File, String)> {
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for attempt in 0..ATTEMPTS {
            let name = format!(".report-{}-{attempt}.tmp", std::process::id());
            match openat(&self.place.folder, &name, how, Mode::from_raw_mode(MODE)) {
                Err(Errno::EXIST) => (),
                made => return Ok((made?.into(), name)),
            }
        }
        Err(Errno::EXIST)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
        // It comes while the run goes on.
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
