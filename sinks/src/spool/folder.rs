//! The folder of a user, in which each run has one of its own. All calls are relative to the open folder, so no other one
//! can be put in its place.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use resource_tracker_core::trust::{FileRequirement, make_folder};
use rustix::fs::{CWD, Dir, Mode, OFlags, mkdirat};
use rustix::io::Errno;

use super::run_directory::RunDirectory;
use super::run_files::Access;

const WAY_OUT: &str = "make it a folder of yours with mode 700, or name another with --spool-dir";

/// Names that are tried for a new run.
const ATTEMPTS: u32 = 100;

/// The folder of a user. Nobody else can look into it.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    path: PathBuf,
    root: Arc<OwnedFd>,
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
    /// Opens the folder. `None` when there is none.
    ///
    /// # Errors
    /// When it is a link, belongs to another user, or is open to others. It stays as it is.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Option<Self>> {
        // A slash at the end would follow a link.
        let path: PathBuf = path.components().collect();
        match Self::open_beside(CWD, &path, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(anyhow!("{}: {error}; {WAY_OUT}", path.display())),
            spool => Ok(spool.ok()),
        }
    }

    fn open_beside(parent: impl AsFd, name: &Path, path: &Path) -> io::Result<Self> {
        let root = FileRequirement::PRIVATE_FOLDER.open(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { path: path.to_owned(), root: Arc::new(root) })
    }

    /// Opens the folder, and makes it with those above it if it is missing, unless another user could exchange one of
    /// them.
    pub(crate) fn open_or_make(path: &Path) -> anyhow::Result<Self> {
        if let Some(spool) = Self::open(path)? {
            return Ok(spool);
        }
        let shown = path.display();
        let made = make_folder(path).map_err(|why| anyhow!("cannot make {shown}: {why}; {WAY_OUT}"))?;
        Self::open_beside(made, Path::new("."), path).with_context(|| format!("cannot make {shown}"))
    }

    /// Makes a folder for a new run, locked as long as the value lives, and saves the state in it. The second value
    /// says whether it could be saved.
    pub(crate) fn create(&self, state: &[u8]) -> io::Result<(RunDirectory, io::Result<()>)> {
        for _ in 0..ATTEMPTS {
            let name = RunName::new();
            match mkdirat(&self.root, name.as_str(), Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            let Some(run) = RunDirectory::make(&self.root, name.as_str(), self.path.join(name.as_str()))? else {
                continue;
            };
            let saved = run.save(state);
            // A tracker of an earlier version may have removed the folder: it takes an empty one for abandoned.
            if run.is_in_place() {
                return Ok((run, saved));
            }
        }
        Err(io::Error::other("every new folder was taken away by somebody else"))
    }

    /// The runs that no process works on any more, the oldest first, each locked as long as its value lives. A folder
    /// that looks like a run and is none of ours is an error that names it; everything else is passed over.
    pub(crate) fn left_behind(&self, access: Access) -> io::Result<impl Iterator<Item = anyhow::Result<RunDirectory>>> {
        let names = self.names()?;
        let open = move |name: RunName| {
            let path = self.path.join(name.as_str());
            let shown = path.display().to_string();
            let run = RunDirectory::open(&self.root, name.as_str(), path, access);
            run.with_context(|| format!("{shown} stays as it is")).transpose()
        };
        Ok(names.into_iter().filter_map(open))
    }

    /// What the files of all runs take, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let names = self.names().unwrap_or_default();
        names.iter().map(|name| RunDirectory::size(&self.root, name.as_str())).sum()
    }

    fn names(&self) -> io::Result<Vec<RunName>> {
        let entries = Dir::read_from(&self.root)?;
        let name =
            |entry: rustix::io::Result<rustix::fs::DirEntry>| RunName::parse(entry.ok()?.file_name().to_str().ok()?);
        let mut names: Vec<RunName> = entries.filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// The name of a run's folder. The time comes first, so that the oldest run is the first by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RunName(String);

impl RunName {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(format!("{:013}-{}-{:08x}", since.as_millis(), std::process::id(), fastrand::u32(..)))
    }

    /// Takes only names that `new` makes.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let (millis, pid, random) = (parts.next()?, parts.next()?, parts.next()?);
        let is_decimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let is_pid = is_decimal(pid) && (1..=10).contains(&pid.len()) && !pid.starts_with('0');
        let is_random = random.len() == 8 && random.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (millis.len() == 13 && is_decimal(millis) && is_pid && is_random).then(|| Self(text.to_owned()))
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::run_files::BLOCK;
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).map_or(0, |status| status.mode() & 0o777)
    }

    #[test]
    fn a_run_is_left_behind_when_its_lock_is_free() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("state/resource-tracker/spool");
        assert!(Spool::open(&path)?.is_none() && !directory.path().join("state").exists());
        let spool = Spool::open_or_make(&path)?;
        assert_eq!((mode(&path), mode(&directory.path().join("state"))), (0o700, 0o700));
        let (first, saved) = spool.create(b"{}")?;
        saved?;
        assert_eq!(spool.left_behind(Access::Work)?.count(), 0);
        first.append("000000.csv")?.write_all(b"x")?;
        let mine = first.path().to_owned();
        assert_eq!((mode(&mine), mode(&mine.join("000000.csv")), mode(&mine.join("run.json"))), (0o700, 0o600, 0o600));
        assert_eq!(spool.size(), BLOCK as u64 + 1);
        drop(first);
        {
            let looked = spool.left_behind(Access::Look)?.next().context("none")??;
            assert_eq!(spool.left_behind(Access::Look)?.count(), 1, "who looks does not keep others from it");
            assert_eq!((spool.left_behind(Access::Work)?.count(), looked.path()), (1, mine.as_path()));
        }
        let left = spool.left_behind(Access::Work)?.next().context("none")??;
        left.remove()?;
        assert!(!mine.exists() && path.exists());
        Ok(())
    }

    #[test]
    fn a_folder_that_is_not_the_users_alone_is_refused_and_stays_as_it_is() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real)?;
        fs::set_permissions(&real, fs::Permissions::from_mode(0o755))?;
        symlink(&real, &link)?;
        let refused = |path: &Path, why: &str| {
            let error = Spool::open_or_make(path).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(
                error.contains(why) && error.contains(&path.components().collect::<PathBuf>().display().to_string()),
                "{error}"
            );
        };
        refused(&real, "open to others (mode 755)");
        assert_eq!(mode(&real), 0o755);
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700))?;
        for path in [link.clone(), link.join(""), link.join(".")] {
            refused(&path, "it is a link");
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped the rest: only root can give a folder away");
            return Ok(());
        }
        std::os::unix::fs::chown(&real, Some(12345), None)?;
        refused(&real, "belongs to user 12345");
        Ok(())
    }

    #[test]
    fn only_names_that_it_gives_are_runs() {
        assert!(RunName::parse(RunName::new().as_str()).is_some());
        assert!(RunName::parse("1764000000000-4242-0123abcd").is_some());
        for name in
            ["photos", "lock", "", "1764000000000-4242-0123ABCD", "1764000000000-4242-0123abcd.bak", "1-1-01234567"]
        {
            assert!(RunName::parse(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_run_sees_that_its_folder_was_taken_away_or_replaced() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let (run, _) = spool.create(b"{}")?;
        assert!(run.is_in_place());
        let (path, aside) = (run.path().to_owned(), directory.path().join("aside"));
        fs::rename(&path, &aside)?;
        assert!(!run.is_in_place());
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        fs::copy(aside.join("lock"), path.join("lock"))?;
        assert!(!run.is_in_place(), "another folder of that name");
        fs::rename(&aside, directory.path().join("spool/0"))?;
        fs::remove_file(path.join("lock"))?;
        fs::remove_dir(&path)?;
        fs::rename(directory.path().join("spool/0"), &path)?;
        assert!(run.is_in_place());
        fs::remove_file(path.join("lock"))?;
        fs::File::create(path.join("lock"))?.set_permissions(fs::Permissions::from_mode(0o600))?;
        assert!(!run.is_in_place(), "another lock");
        Ok(())
    }

    /// Trackers of earlier versions took a folder for abandoned as long as nothing was saved in it.
    #[test]
    fn a_run_whose_new_folder_is_taken_away_takes_another() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let (over, mut all) = (AtomicBool::new(false), true);
        let sweep = || {
            while !over.load(Ordering::Relaxed) {
                for name in spool.names().unwrap_or_default() {
                    let run = spool.path.join(name.as_str());
                    let Ok(lock) = fs::File::options().write(true).create(true).truncate(false).open(run.join("lock"))
                    else {
                        continue;
                    };
                    let is_free =
                        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok();
                    if is_free && !run.join("run.json").exists() {
                        let _ = fs::remove_file(run.join("run.json.tmp"));
                        let _ = fs::remove_file(run.join("lock"));
                        let _ = fs::remove_dir(run);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(sweep);
            for _ in 0..200 {
                let created = spool.create(b"{}");
                let is_there =
                    created.as_ref().is_ok_and(|(run, saved)| saved.is_ok() && run.path().join("run.json").exists());
                all &= is_there;
                // A lock that the other thread has just made keeps the folder; that thread removes it.
                let _ = created.map(|(run, _)| run.remove());
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(all, "a run has no folder");
        Ok(())
    }
}
