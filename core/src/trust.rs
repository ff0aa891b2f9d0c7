//! Whom to trust with a file: what nobody but root and the user can have written, nor exchange on the way to it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Error, anyhow, ensure};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A file that stays what was looked at: only root and the user can change what is in its folder, which is held open.
pub(crate) struct TrustedFile {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
}

impl TrustedFile {
    /// Looks at a file and at the whole way to it.
    ///
    /// # Errors
    /// When it cannot be opened, is no regular file, or somebody else can write it or exchange what is on the way.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().context("cannot be opened")?;
        let (parent, name) = path.parent().zip(path.file_name()).context("is no regular file")?;
        let folder = open_folder(parent)?;
        let file = rustix::fs::openat(&folder, name, FILE, Mode::empty()).context("cannot be opened")?;
        ensure!(look(&file).map_err(Error::msg)?.is_file(), "is no regular file");
        judge(&file).map_err(|why| anyhow!("{why}; {WAY_OUT}"))?;
        Ok(Self { folder, name: name.to_owned() })
    }
}

const WAY_OUT: &str = "a plugin and every folder above it have to belong to root or to you, and nobody else may write \
                       there; chmod go-w what is yours, or copy the file to a folder of your own";

/// Looks at a folder and all above it, as sshd does with StrictModes.
///
/// # Errors
/// Names the folder that somebody else owns or can write to.
pub fn check_folder(path: &Path) -> anyhow::Result<()> {
    let path = path.canonicalize().context("cannot be opened")?;
    open_folder(&path).map(drop)
}

/// Opens a folder whose path has no links, one after the other from the root. Each is looked at before the next is looked
/// up in it, so that nobody else can have put another one in its place, nor can do so later.
///
/// A sticky folder, such as `/tmp`, may be on the way: there nobody can move a folder that is another's, and hard links to
/// folders do not exist. It may not be the last, because a file could be linked there by anybody.
fn open_folder(path: &Path) -> anyhow::Result<OwnedFd> {
    let open = |above: &dyn AsFd, name: &Path, path: &Path| {
        let folder = rustix::fs::openat(above, name, FOLDER, Mode::empty());
        folder.with_context(|| format!("{}: cannot be opened", path.display()))
    };
    let blame = |path: &Path, why: String| anyhow!("{}: {why}; {WAY_OUT}", path.display());
    let mut so_far = PathBuf::from("/");
    let mut folder = open(&CWD, &so_far, &so_far)?;
    for component in path.components().filter(|component| matches!(component, Component::Normal(_))) {
        let judged = look(&folder).and_then(|seen| match seen.mode() & STICKY {
            0 => judge(&folder),
            _ => judge_owner(&seen),
        });
        judged.map_err(|why| blame(&so_far, why))?;
        so_far.push(component);
        folder = open(&folder, component.as_ref(), &so_far)?;
    }
    judge(&folder).map_err(|why| blame(&so_far, why))?;
    Ok(folder)
}

/// Opens a file that nobody named. `None`: there is none.
///
/// # Errors
/// Says why it is not trusted: what it is, whose it is, or who can write there. Nothing waits, whatever it is.
pub(crate) fn open_found(path: &Path) -> Result<Option<File>, String> {
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits();
    let file = match OpenOptions::new().read(true).custom_flags(flags as i32).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // In a folder that may not be searched, nothing is known to be there.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.symlink_metadata().is_err() => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err("it is a link".into()),
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    if !look(&file)?.is_file() {
        return Err("it is no regular file".into());
    }
    judge_owner(&look(&file)?)?;
    judge_writers(&file).map_err(|why| format!("{why}: chmod go-w {}", path.display()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let open = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let open = open.map_err(|error| format!("its folder cannot be opened: {error}"))?;
    let seen = look(&open)?;
    judge_owner(&seen).map_err(|why| format!("its folder: {why}"))?;
    judge_writers(&open).map_err(|why| match seen.mode() & STICKY {
        0 => format!("its folder: {why}: chmod go-w {}", folder.display()),
        // Such a folder is for everybody.
        _ => format!("its folder: {why}: move it to a folder of your own"),
    })?;
    Ok(Some(file))
}

/// Whether nobody but root and the user can have written it, or in it.
fn judge(file: impl AsFd) -> Result<(), String> {
    judge_owner(&look(&file)?)?;
    judge_writers(file)
}

fn judge_writers(file: impl AsFd) -> Result<(), String> {
    let metadata = look(&file)?;
    let mode = metadata.mode();
    let is_writable = match mode & (OTHERS_WRITE | GROUP_WRITES) {
        0 => false,
        GROUP_WRITES => !is_own_group(metadata.gid(), metadata.uid()) || has_acl(&file),
        _ => true,
    };
    if is_writable { Err(format!("others can write to it (mode {:o})", mode & 0o7777)) } else { Ok(()) }
}

fn judge_owner(metadata: &Metadata) -> Result<(), String> {
    let owner = metadata.uid();
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if is_ours { Ok(()) } else { Err(format!("it belongs to user {owner}")) }
}

fn look(file: impl AsFd) -> Result<Metadata, String> {
    let metadata = file.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
    metadata.map_err(|error| format!("it cannot be looked at: {error}"))
}

/// Whether a list says who else may write. The bits of the group are then those of everybody on the list.
fn has_acl(file: impl AsFd) -> bool {
    // By this way, because it may be open as a mere place in the file system.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0; 0]);
    !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether a group is the owner's own and nobody else is in it. Many systems give each user such a group, and a umask
/// that lets it write. Root's is not meant.
fn is_own_group(group: u32, owner: u32) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    group == owner && owner != 0 && is_private(owner, &read("/etc/passwd"), &read("/etc/group"))
}

/// Whether one user and one group have this number and the same name, and nobody else is in the group.
fn is_private(id: u32, users: &str, groups: &str) -> bool {
    let id = id.to_string();
    let groups: Vec<[&str; 4]> = groups.lines().map(columns).filter(|group| group[2] == id).collect();
    let users: Vec<[&str; 4]> = users.lines().map(columns).filter(|user| user[2] == id || user[3] == id).collect();
    let ([group], [user]) = (&groups[..], &users[..]) else { return false };
    let mut members = group[3].split(',').filter(|member| !member.is_empty());
    user[2] == id && user[0] == group[0] && members.all(|member| member == user[0])
}

/// The first columns of a line of `passwd` or `group`.
fn columns(line: &str) -> [&str; 4] {
    let mut columns = line.split(':');
    std::array::from_fn(|_| columns.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_private_group_is_no_others() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/:/bin/sh\n";
        let groups = "root:x:0:\nann:x:1000:ann\nusers:x:100:\nbob:x:1001:eve\n";
        assert!(is_private(1000, users, groups) && is_private(1000, users, "ann:x:1000:\n"));
        assert!(!is_private(1001, users, groups) && !is_private(100, users, groups) && !is_private(5, users, groups));
        assert!(!is_private(1000, users, "ann:x:1000:eve\n") && !is_private(1000, users, "team:x:1000:\n"));
        assert!(!is_private(1000, users, "ann:x:1000:\nteam:x:1000:eve\n"));
        assert!(!is_private(1000, &format!("{users}eve:x:1002:1000::/:/bin/sh\n"), groups));
        assert!(!is_private(1000, "", "") && !is_private(1000, ":::\n1000", "ann:x:1000"));
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
        assert_eq!(said(&inner), "is no regular file");
    }

    #[test]
    fn what_nobody_named_has_to_be_a_plain_file_in_a_folder_of_ones_own() {
        let root = tempfile::tempdir().unwrap();
        mode(root.path(), 0o755);
        let file = root.path().join("found");
        let said = || open_found(&file).map(|file| file.is_some());
        assert_eq!(said(), Ok(false));
        fs::write(&file, "x").unwrap();
        mode(&file, 0o644);
        assert_eq!(said(), Ok(true));
        mode(&file, 0o646);
        assert_eq!(said(), Err(format!("others can write to it (mode 646): chmod go-w {}", file.display())));
        mode(&file, 0o644);
        mode(root.path(), 0o1777);
        assert_eq!(
            said(),
            Err("its folder: others can write to it (mode 1777): move it to a folder of your own".into())
        );
        mode(root.path(), 0o755);
        fs::rename(&file, root.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &file).unwrap();
        assert_eq!(said(), Err("it is a link".into()));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(said(), Err("it is no regular file".into()));
    }
}
