//! What the path of an output leads to.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, bail};
use resource_tracker_core::trust::{OutputOwner, OutputPath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fcntl_setfl, openat, statat};
use rustix::io::Errno;

use super::location::Location;

/// What a path leads to.
pub(super) enum Destination {
    /// A regular file, or none yet.
    File(Location),
    /// A descriptor, a device or a pipe: its name cannot be given to another file.
    Stream(Stream),
}

/// What samples are streamed to.
pub(super) struct Stream {
    location: Location,
    /// What the path names. `None` for a link of procfs, which leads to an open file.
    found: Option<Stat>,
}

impl Destination {
    /// Follows a path.
    ///
    /// # Errors
    /// When another user controls the path, or could have put there what it leads to, or it cannot be a file of
    /// samples.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let output = OutputPath::of(path).with_context(|| format!("cannot write to {}", path.display()))?;
        let (found, is_in_procfs) = (output.found, output.is_in_procfs());
        let location = Location::from(output);
        if is_in_procfs {
            return Ok(Self::Stream(Stream { location, found: None }));
        }
        let Some(found) = found else { return Ok(Self::File(location)) };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                location.check_owner(found.st_uid)?;
                Ok(Self::File(location))
            }
            FileType::Directory => bail!("cannot write to {}: it is a folder", path.display()),
            kind => {
                if kind == FileType::Fifo {
                    location.check_owner(found.st_uid)?;
                }
                check_no_disk(kind == FileType::BlockDevice, path)?;
                Ok(Self::Stream(Stream { location, found: Some(found) }))
            }
        }
    }
}

impl Stream {
    /// Opens what was found, and nothing else, without waiting for a reader.
    pub(super) fn open(&self, path: &Path) -> anyhow::Result<(File, Metadata)> {
        let cannot = || format!("cannot write to {}", path.display());
        let (folder, name) = (self.location.folder(), self.location.name());
        let (found, links) = match self.found {
            Some(found) => (found, OFlags::NOFOLLOW),
            None => (statat(folder, name, AtFlags::empty()).with_context(cannot)?, OFlags::empty()),
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        check_no_disk(kind == FileType::BlockDevice, path)?;
        // A pipe opened for both sides does not wait for a reader, which may come later. A file is read as well, to be
        // continued.
        let is_both = matches!(kind, FileType::RegularFile | FileType::Fifo);
        let side = if is_both { OFlags::RDWR } else { OFlags::WRONLY };
        let how = side | links | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(folder, name, how, Mode::empty()) {
            Err(Errno::LOOP) => bail!("{}: it was replaced by a link", cannot()),
            opened => File::from(opened.map_err(io::Error::from).with_context(cannot)?),
        };
        let metadata = file.metadata().with_context(cannot)?;
        check_no_disk(metadata.file_type().is_block_device(), path)?;
        if self.found.is_some() && (metadata.dev(), metadata.ino()) != (found.st_dev, found.st_ino) {
            bail!("{}: it was replaced by something else", cannot());
        }
        fcntl_setfl(&file, OFlags::APPEND)?;
        Ok((file, metadata))
    }

    /// Opens it to look at what it holds, if it is a file.
    pub(super) fn look(&self) -> Option<File> {
        let (folder, name) = (self.location.folder(), self.location.name());
        let found = statat(folder, name, AtFlags::empty()).ok().filter(|_| self.found.is_none())?;
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        is_file.then(|| openat(folder, name, how, Mode::empty()).ok().map(File::from)).flatten()
    }

    /// The owner of a named pipe, which another user could have made; for all else the user.
    pub(super) fn owner(&self, metadata: &Metadata) -> anyhow::Result<OutputOwner> {
        let is_named = self.found.is_some() && metadata.file_type().is_fifo();
        if is_named { self.location.check_owner(metadata.uid()) } else { Ok(OutputOwner::User) }
    }
}

fn check_no_disk(is_disk: bool, path: &Path) -> anyhow::Result<()> {
    if is_disk {
        bail!("cannot write to {}: it is a disk, whose contents would be lost", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use rustix::fs::{CWD, mkfifoat};

    use super::super::location::tests::located;
    use super::*;

    #[test]
    fn own_links_are_followed_and_descriptors_have_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path();
        fs::create_dir(folder.join("data")).unwrap();
        symlink("data/run.jsonl", folder.join("link")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        symlink("data/../data", folder.join("way")).unwrap();
        for way in ["link", "way/run.jsonl", "data/../way/./run.jsonl", "way/../link"] {
            assert_eq!(located(&folder.join(way)).path(), folder.join("data/run.jsonl"), "{way}");
        }
        let refused = |path: &Path| format!("{:#}", Destination::of(path).err().unwrap());
        assert!(refused(&folder.join("loop")).contains("too many links"));
        assert!(refused(&folder.join("loop/run.jsonl")).contains("too many links"));
        assert!(refused(&folder.join("data")).contains("it is a folder"));
        assert!(refused(&folder.join("data/..")).contains("it is no file"));
        assert!(refused(&folder.join("none/x")).contains("No such file"));
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/null"] {
            assert!(matches!(Destination::of(Path::new(path)), Ok(Destination::Stream(_))), "{path}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            fs::canonicalize(located(Path::new("../none")).path().parent().unwrap()).ok(),
            fs::canonicalize(here.parent().unwrap()).ok()
        );
        let open = File::open(folder).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}/data/run.jsonl", std::os::fd::AsRawFd::as_raw_fd(&open));
        located(Path::new(&by_descriptor)).open(0o600).unwrap();
        assert!(folder.join("data/run.jsonl").exists(), "a folder that is open is one on the way");
    }

    #[test]
    fn what_takes_the_place_of_a_pipe_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("run.jsonl"), directory.path().join("victim"));
        let pipe = |path: &Path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
        fs::write(&victim, "important").unwrap();
        pipe(&path);
        let Destination::Stream(stream) = Destination::of(&path).unwrap() else { panic!("it is a pipe") };
        let refused = || format!("{:#}", stream.open(&path).err().unwrap());
        assert!(stream.open(&path).is_ok());
        fs::rename(&path, directory.path().join("old")).unwrap();
        symlink("victim", &path).unwrap();
        assert!(refused().contains("replaced by a link"));
        fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(refused().contains("replaced by something else"));
        fs::rename(&victim, &path).unwrap();
        assert!(refused().contains("replaced by something else"));
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped the rest: only root makes the node of a disk");
            return;
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::RUSR, rustix::fs::makedev(7, 250)).unwrap();
        assert!(!refused().is_empty());
        chown(directory.path().join("old"), Some(54321), None).unwrap();
        let Destination::Stream(stream) = Destination::of(&directory.path().join("old")).unwrap() else { panic!() };
        let (_, metadata) = stream.open(&path).unwrap();
        assert_eq!(stream.owner(&metadata).unwrap(), OutputOwner::Other);
    }
}
