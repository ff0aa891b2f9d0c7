//! Whether others can write to a file: everybody, a group, or the users and groups of its access list.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::Stat;
use rustix::io::Errno;

pub(super) const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;

/// Whether anybody but its owner can write to what is open.
pub(super) fn others_write(open: impl AsFd, status: &Stat) -> bool {
    match status.st_mode & (OTHERS_WRITE | GROUP_WRITES) {
        0 => false,
        GROUP_WRITES => !is_own_group(status.st_gid, status.st_uid) || has_acl(open),
        _ => true,
    }
}

/// Whether an access list says who else may write. With one, the bits of the group are those of all its entries.
fn has_acl(file: impl AsFd) -> bool {
    // Through this path, because the file may be open with `O_PATH`.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0; 0]);
    !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether a group of this user may write to the folder, and nobody outside of that group. Root may write to every
/// folder, and is in no team by that.
pub(super) fn is_of_own_team(open: impl AsFd, folder: &Stat) -> bool {
    let is_in = |group: u32| {
        let more = rustix::process::getgroups().unwrap_or_default();
        more.iter().chain([&rustix::process::getegid()]).any(|one| one.as_raw() == group)
    };
    let may = folder.st_mode & (STICKY | OTHERS_WRITE | GROUP_WRITES);
    may == GROUP_WRITES && !rustix::process::geteuid().is_root() && is_in(folder.st_gid) && !has_acl(open)
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
    use super::*;

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
}
