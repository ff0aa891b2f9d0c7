//! The way to a file: folders in which only root and the user can exchange what is on the way.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use super::error::io_error;
use super::file_requirement::{FileRequirement, Others, Owner};

/// As many links as the kernel follows.
pub(super) const LINKS: usize = 40;

pub(super) const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const PLUGIN: &str = "a plugin and every folder above it have to belong to root or to you, and nobody else may write \
                      there; chmod go-w what is yours, or copy the file to a folder of your own";

/// A file that stays as it was checked: only root and the user can change what is in its folder, which is held open.
pub(crate) struct TrustedFile {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
}

impl TrustedFile {
    /// Checks a file and the whole way to it.
    ///
    /// # Errors
    /// When it cannot be opened, is no regular file, or another user can write to it or exchange what is on the way.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().context("cannot be opened")?;
        let (parent, name) = path.parent().zip(path.file_name()).context("is no regular file")?;
        let folder = open_folder(parent)?;
        let file = FileRequirement::TRUSTED_FILE.open(&folder, name, OFlags::RDONLY);
        file.map_err(|why| anyhow!("{why}; {PLUGIN}"))?;
        Ok(Self { folder, name: name.to_owned() })
    }
}

/// Checks a folder and all above it, as sshd does with StrictModes.
///
/// # Errors
/// Names the folder that another user owns or can write to.
pub fn check_folder(path: &Path) -> io::Result<()> {
    let path = path.canonicalize().context("cannot be opened").map_err(io_error)?;
    open_folder(&path).map(drop).map_err(io_error)
}

fn open_folder(path: &Path) -> anyhow::Result<OwnedFd> {
    let walk = Walk::to(path, Owner::UserOrRoot, Missing::Fails).and_then(|walk| {
        walk.check(Others::Read)?;
        Ok(walk.folder)
    });
    walk.map_err(|why| anyhow!("{why:#}; {PLUGIN}"))
}

/// Makes a folder for the user alone, with those above it that are missing, and opens it with `O_PATH`. It is made
/// where the path says: no other user can lead it elsewhere.
///
/// # Errors
/// Names what is on the way and belongs to another user, or where others can exchange it.
pub fn make_folder(path: &Path) -> io::Result<OwnedFd> {
    let path = std::path::absolute(path).context("there is no current folder").map_err(io_error)?;
    Walk::to(&path, Owner::UserOrMachine, Missing::IsMade).map(|walk| walk.folder).map_err(io_error)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fails,
    IsMade,
}

/// A walk from the root down, one folder after the other. Each folder is checked before the next name is looked up in
/// it, so no other user can have put another folder in its place, nor can do so later.
///
/// A sticky folder, such as `/tmp`, may be on the way: there, no user can move what belongs to another, and hard links
/// to folders do not exist. Anyone can put files there.
struct Walk {
    folder: OwnedFd,
    /// Where it is, without links.
    path: PathBuf,
    owner: Owner,
}

impl Walk {
    /// Goes to the end of an absolute path. Links on the way are followed if their owner may own folders.
    fn to(path: &Path, owner: Owner, missing: Missing) -> anyhow::Result<Self> {
        let mut walk = Self::from_root(owner)?;
        let mut rest: Vec<OsString> = Vec::new();
        put_before(&mut rest, path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            walk.check(Others::Add)?;
            let Some(target) = walk.enter(&name, missing)? else { continue };
            links += 1;
            if links > LINKS {
                bail!("{}: it leads through too many links", path.display());
            }
            if target.is_absolute() {
                walk = Self::from_root(owner)?;
            }
            put_before(&mut rest, &target);
        }
        Ok(walk)
    }

    fn from_root(owner: Owner) -> anyhow::Result<Self> {
        let path = PathBuf::from("/");
        let folder = FileRequirement::new(FileType::Directory, owner, Others::Anything).open(CWD, &path, OFlags::PATH);
        Ok(Self { folder: folder.context("/")?, path, owner })
    }

    /// Whether others can do no more in the folder than this.
    fn check(&self, others: Others) -> anyhow::Result<()> {
        let judged = FileRequirement::new(FileType::Directory, self.owner, others).check(&self.folder);
        judged.map(drop).map_err(|why| anyhow!("{}: {why}", self.path.display()))
    }

    /// Goes to a folder in this one. Where the name is that of a link, says where that leads, and stays.
    fn enter(&mut self, name: &OsStr, missing: Missing) -> anyhow::Result<Option<PathBuf>> {
        let path = if name == ".." { self.path.parent().unwrap_or(&self.path).into() } else { self.path.join(name) };
        let place = self.open(name, missing).with_context(|| format!("{}: cannot be opened", path.display()))?;
        let is_link = FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Symlink;
        let kind = if is_link { FileType::Symlink } else { FileType::Directory };
        let judged = FileRequirement::new(kind, self.owner, Others::Anything).check(&place);
        judged.map_err(|why| anyhow!("{}: {why}", path.display()))?;
        if is_link {
            let target = readlinkat(&place, "", Vec::new())?;
            return Ok(Some(OsString::from_vec(target.into_bytes()).into()));
        }
        (self.folder, self.path) = (place, path);
        Ok(None)
    }

    fn open(&self, name: &OsStr, missing: Missing) -> rustix::io::Result<OwnedFd> {
        let open = || openat(&self.folder, name, PLACE, Mode::empty());
        match open() {
            Err(Errno::NOENT) if missing == Missing::IsMade => match mkdirat(&self.folder, name, Mode::RWXU) {
                // In the second case another tracker was faster.
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(error) => Err(error),
            },
            opened => opened,
        }
    }
}

/// Puts the names of a path on top of those that are still to be entered.
pub(super) fn put_before(rest: &mut Vec<OsString>, path: &Path) {
    let is_entered = |component: &Component| matches!(component, Component::Normal(_) | Component::ParentDir);
    rest.extend(path.components().rev().filter(is_entered).map(|component| component.as_os_str().to_owned()));
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    pub(crate) fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_folder_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("outer"), root.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        let file = inner.join("file");
        fs::write(&file, "x").unwrap();
        for path in [root.path(), &outer, &inner, &file] {
            mode(path, 0o755);
        }
        let said = |path: &Path| TrustedFile::open(path).map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(said(&file), "");
        mode(&outer, 0o777);
        assert!(said(&file).contains("outer: others can write to it (mode 777)"), "{}", said(&file));
        symlink(&file, root.path().join("link")).unwrap();
        assert!(said(&root.path().join("link")).contains("outer: others"), "where the link leads counts");
        mode(&outer, 0o1777);
        assert_eq!(said(&file), "", "nobody else can move a folder in a sticky one");
        mode(&inner, 0o1777);
        assert!(said(&file).contains("inner: others"), "but anybody can link a file there");
        mode(&inner, 0o755);
        mode(&outer, 0o755);
        mode(&file, 0o757);
        assert!(said(&file).starts_with("others can write to it (mode 757)"), "{}", said(&file));
        assert!(said(&inner).starts_with("it is a folder, not a regular file; "), "{}", said(&inner));
    }

    #[test]
    fn folders_are_made_where_the_path_says_and_nobody_else_can_lead() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let made = |name: &str| make_folder(&at(name)).map_or_else(|why| format!("{why:#}"), |_| String::new());
        assert_eq!(made("a/b/../c"), "");
        assert!(at("a/b").is_dir());
        assert_eq!(fs::metadata(at("a/c")).unwrap().permissions().mode() & 0o777, 0o700);
        symlink("a", at("mine")).unwrap();
        symlink(at("mine/c"), at("two")).unwrap();
        assert_eq!(made("two/d/e"), "", "links of one's own are followed");
        assert!(at("a/c/d/e").is_dir());
        symlink("loop", at("loop")).unwrap();
        assert!(made("loop/x").contains("too many links"));
        fs::write(at("file"), "").unwrap();
        assert_eq!(check_folder(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound, "what the system said");
        assert_eq!(made("file/x"), format!("{}: it is a regular file, not a folder", at("file").display()));
        mode(&at("a"), 0o777);
        assert_eq!(made("mine/x"), format!("{}: others can write to it (mode 777)", at("a").display()));
        mode(&at("a"), 0o1777);
        assert_eq!(made("a/x"), "", "nobody else can move it in a sticky folder");
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped the rest: only root can give a folder away");
            return;
        }
        symlink("c", at("a/theirs")).unwrap();
        std::os::unix::fs::lchown(at("a/theirs"), Some(54321), None).unwrap();
        let theirs = format!("{}: it belongs to user 54321, not to you or root", at("a/theirs").display());
        assert_eq!(made("a/theirs/x"), theirs);
        fs::remove_file(at("a/theirs")).unwrap();
        fs::create_dir(at("a/theirs")).unwrap();
        std::os::unix::fs::chown(at("a/theirs"), Some(54321), None).unwrap();
        assert_eq!(made("a/theirs/x"), theirs);
        assert!(!at("a/c/x").exists() && !at("a/theirs/x").exists());
    }
}
