//! Where rows wait until the service has them: one directory for a user, and in it one for each run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// The directory of a user. Nobody else can look into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spool {
    root: PathBuf,
}

/// `$XDG_STATE_HOME/resource-tracker/spool`, as the base directory specification has it.
pub(crate) fn default_directory() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state {
        Some(state) => state.join("resource-tracker/spool"),
        // A batch system can start a job without a home.
        None => std::env::temp_dir().join(format!("resource-tracker-{}", rustix::process::geteuid().as_raw())),
    }
}

impl Spool {
    /// Opens the directory, and makes it when it is missing.
    ///
    /// # Errors
    /// When it is a link, belongs to somebody else, or cannot be made or written to.
    pub(crate) fn open(root: &Path) -> anyhow::Result<Self> {
        let shown = root.display();
        if let Some(parent) = root.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        match fs::DirBuilder::new().mode(0o700).create(root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot make {shown}"));
            }
            _ => (),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(root, flags, Mode::empty());
        let directory = directory.with_context(|| format!("{shown} is no directory, or is a link"))?;
        let status = rustix::fs::fstat(&directory)?;
        let me = rustix::process::geteuid().as_raw();
        if status.st_uid != me {
            bail!("{shown} belongs to user {}, not to user {me}", status.st_uid);
        }
        if status.st_mode & 0o077 != 0 {
            rustix::fs::fchmod(&directory, Mode::RWXU).with_context(|| format!("{shown} is open to others"))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// A directory for a new run, locked as long as the value lives.
    pub(crate) fn create(&self) -> io::Result<RunDirectory> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // The time comes first, so that the oldest run is the first by name.
        let name = format!("{:013}-{}-{:08x}", since.as_millis(), std::process::id(), fastrand::u32(..));
        let path = self.root.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        RunDirectory::lock(path)?.ok_or_else(|| io::Error::other("a new directory is locked by somebody else"))
    }

    /// The directories of runs that nobody works on any more, the oldest first, each locked from now on.
    pub(crate) fn left_behind(&self) -> io::Result<Vec<RunDirectory>> {
        let mut names: Vec<String> =
            fs::read_dir(&self.root)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        let paths = names.iter().map(|name| self.root.join(name));
        let is_directory = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|entry| entry.is_dir());
        Ok(paths.filter(is_directory).filter_map(|path| RunDirectory::lock(path).ok().flatten()).collect())
    }

    /// What all files of all runs take, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries(&self.root).flat_map(|run| entries(&run.path()));
        files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    }
}

/// The directory of one run. It is locked, which ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    fn lock(path: PathBuf) -> io::Result<Option<Self>> {
        let file = options().read(true).create(true).truncate(false).open(path.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { path, _lock: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file to append to; it is there afterwards.
    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        options().append(true).create(true).open(self.path.join(name))
    }

    /// Writes a file so that it is there whole or not at all, also after a loss of power.
    pub(crate) fn write(&self, name: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let temporary = self.path.join(format!("{name}.tmp"));
        let result = options().create(true).truncate(true).open(&temporary).and_then(|mut file| {
            write(&mut file)?;
            file.flush()?;
            file.sync_data()
        });
        match result.and_then(|()| fs::rename(&temporary, self.path.join(name))) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Room for the next attempt.
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove_file(&self, name: &str) {
        let _ = fs::remove_file(self.path.join(name));
    }

    /// Names of the files.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Everything has arrived.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

/// For files that nobody else can read, and that are no links.
fn options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_run_is_left_behind_when_its_lock_is_free() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open(&directory.path().join("state/spool"))?;
        assert_eq!(fs::metadata(directory.path().join("state/spool"))?.mode() & 0o777, 0o700);
        let first = spool.create()?;
        assert!(spool.left_behind()?.is_empty());
        first.append("a.csv")?.write_all(b"x")?;
        first.write("b", |file| file.write_all(b"yz"))?;
        assert_eq!(fs::metadata(first.path().join("a.csv"))?.mode() & 0o777, 0o600);
        assert_eq!((fs::metadata(first.path().join("b"))?.mode() & 0o777, spool.size()), (0o600, 3));
        let path = first.path().to_owned();
        drop(first);
        let left = spool.left_behind()?;
        assert_eq!(left.iter().map(RunDirectory::path).collect::<Vec<_>>(), [&path]);
        left[0].remove()?;
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_link_is_refused_and_an_open_directory_is_closed() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real)?;
        fs::set_permissions(&real, fs::Permissions::from_mode(0o755))?;
        symlink(&real, &link)?;
        assert!(Spool::open(&link).is_err_and(|error| format!("{error:#}").contains("is a link")));
        Spool::open(&real)?;
        assert_eq!(fs::metadata(&real)?.mode() & 0o777, 0o700);
        Ok(())
    }

    #[test]
    fn the_directory_of_another_user_is_refused() -> anyhow::Result<()> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a directory away");
            return Ok(());
        }
        let directory = tempfile::tempdir()?;
        std::os::unix::fs::chown(directory.path(), Some(12345), None)?;
        assert!(
            Spool::open(directory.path()).is_err_and(|error| format!("{error:#}").contains("belongs to user 12345"))
        );
        Ok(())
    }
}
