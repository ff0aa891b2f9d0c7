//! Which pid namespace a procfs shows.

use std::io;
use std::path::Path;

use rustix::fs::{PROC_SUPER_MAGIC, statfs};

use resource_tracker_scan::{lines, number, words};

/// `PROC_PID_INIT_INO` of the kernel: the namespace that processes begin in.
const INITIAL: &str = "pid:[4026531836]";

/// Whether this program is in the first pid namespace of the machine.
pub(crate) fn is_initial_namespace(procfs: &Path) -> io::Result<bool> {
    Ok(std::fs::read_link(procfs.join("self/ns/pid"))?.as_os_str() == INITIAL)
}

/// The process id of this program in this procfs. It is not its own where the procfs shows another namespace, such as a
/// host's in a container. `None` where the program is not in that namespace.
pub fn own_pid(procfs: &Path) -> Option<i32> {
    std::fs::read_link(procfs.join("self")).ok()?.to_str()?.parse().ok()
}

/// Whether this procfs shows this program's own pid namespace.
pub fn shows_own_pid_namespace(procfs: &Path) -> bool {
    own_pid(procfs) == Some(std::process::id() as i32)
}

/// The process id in this procfs of a child of this program, which has this id in the program's own pid namespace. `None`
/// where this program is not in the procfs' namespace, the child has ended, or the kernel does not list children (without
/// `CONFIG_PROC_CHILDREN`).
pub fn child_pid(procfs: &Path, child: i32) -> Option<i32> {
    let Some(own) = own_pid(procfs) else {
        // Written files are of whichever namespace.
        let is_live = statfs(procfs).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC);
        return (!is_live).then_some(child);
    };
    if own == std::process::id() as i32 {
        return Some(child);
    }
    // A child can be in a namespace below that of this program, and have one more number there.
    let place = namespace_ids(procfs, own).len().checked_sub(1)?;
    let is_it = |pid: &i32| namespace_ids(procfs, *pid).get(place) == Some(&child);
    // The kernel can leave some out while other children end.
    (0..3).find_map(|_| {
        let children = std::fs::read(procfs.join(format!("{own}/task/{own}/children"))).ok()?;
        let mut pids = words(&children).filter_map(|word| i32::try_from(number(word)?).ok());
        pids.find(is_it)
    })
}

/// The numbers of a process, from the namespace of this procfs down to its own; `NSpid` of its `status`.
fn namespace_ids(procfs: &Path, pid: i32) -> Vec<i32> {
    let status = std::fs::read(procfs.join(format!("{pid}/status"))).unwrap_or_default();
    let ids = lines(&status).find_map(|line| line.strip_prefix(b"NSpid:")).unwrap_or_default();
    words(ids).filter_map(|word| i32::try_from(number(word)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container that looks at its host: this program is process 500 there.
    #[test]
    fn a_child_has_another_number_for_the_host() {
        let procfs = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = procfs.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::os::unix::fs::symlink("500", procfs.path().join("self")).unwrap();
        write("500/task/500/children", "501 502 ");
        write("500/status", "Name:\tresource-tracke\nNSpid:\t500\t7\n");
        write("501/status", "Name:\tsignal-witness\nNSpid:\t501\t8\n");
        write("502/status", "Name:\tsh\nNSpid:\t502\t9\n");
        write("9/status", "Name:\tkworker\nNSpid:\t9\n");
        assert_eq!((child_pid(procfs.path(), 9), child_pid(procfs.path(), 10)), (Some(502), None));
        // `unshare --pid`, without a fork: its child is the first of one more namespace.
        write("502/status", "Name:\tsh\nNSpid:\t502\t9\t1\n");
        assert_eq!((child_pid(procfs.path(), 9), child_pid(procfs.path(), 1)), (Some(502), None));
        assert_eq!(child_pid(Path::new("/proc"), 9), Some(9));
        assert_eq!(child_pid(Path::new("/"), 9), Some(9));
    }

    #[test]
    fn a_procfs_of_others_is_told_apart() {
        assert!(shows_own_pid_namespace(Path::new("/proc")));
        assert!(!shows_own_pid_namespace(Path::new("/")));
    }
}
