//! A file in the folder of the node exporter's textfile collector. It is always whole.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, open, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The file of a run.
pub(super) struct Textfile {
    path: PathBuf,
    folder: OwnedFd,
    /// Its name, once it was written.
    written: Option<String>,
}

impl Textfile {
    /// Opens the folder.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cannot = || format!("cannot use the folder {} of the node exporter", path.display());
        let folder = open(path, flags, Mode::empty()).with_context(cannot)?;
        Ok(Self { path: path.to_owned(), folder, written: None })
    }

    /// Whether it was written.
    pub(super) fn is_there(&self) -> bool {
        self.written.is_some()
    }

    /// Writes the file of this run in place of the one before.
    pub(super) fn write(&mut self, run: &str, text: &str) -> anyhow::Result<()> {
        let cannot = || format!("cannot write a file of metrics into {}", self.path.display());
        let name = match &self.written {
            Some(name) => name.clone(),
            None => format!("resource-tracker-{}.prom", one_part(run)),
        };
        // The collector reads what ends with `.prom`.
        let beside = format!(".{name}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = openat(&self.folder, &beside, flags, mode).with_context(cannot)?;
        let moved = fchmod(&file, mode)
            // The exporter is another user, whatever the umask.
            .map_err(std::io::Error::from)
            .and_then(|()| File::from(file).write_all(text.as_bytes()))
            .and_then(|()| Ok(renameat(&self.folder, &beside, &self.folder, &name)?))
            .with_context(cannot);
        if moved.is_err() {
            let _ = unlinkat(&self.folder, &beside, AtFlags::empty());
        }
        moved?;
        self.written = Some(name);
        Ok(())
    }

    /// Removes the file, if there is one.
    pub(super) fn remove(&mut self) -> anyhow::Result<()> {
        let Some(name) = self.written.take() else { return Ok(()) };
        match unlinkat(&self.folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove {}", self.path.join(name).display())),
        }
    }
}

/// The identifier of a run as a part of a file's name.
fn one_part(run: &str) -> String {
    let part: String = run.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
    if part.is_empty() { std::process::id().to_string() } else { part }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_is_written_in_place_of_the_one_before_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("theirs.prom"), "x 1\n").unwrap();
        let mut file = Textfile::open(folder.path()).unwrap();
        assert!(file.remove().is_ok() && !file.is_there(), "there is none yet");
        file.write("0191-ab/../c", "a 1\n").unwrap();
        file.write("", "a 2\n").unwrap();
        assert_eq!(names(folder.path()), ["resource-tracker-0191-abc.prom", "theirs.prom"]);
        let path = folder.path().join("resource-tracker-0191-abc.prom");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 2\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(file.is_there());
        file.remove().unwrap();
        assert_eq!(names(folder.path()), ["theirs.prom"]);
    }

    #[test]
    fn a_folder_that_is_none_is_named() {
        let error = Textfile::open(Path::new("/nowhere/at/all")).map(drop).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/at/all"), "{error:#}");
    }
}
