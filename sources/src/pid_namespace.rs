//! Of which pid namespace a procfs tells.

use std::io;
use std::path::Path;

/// `PROC_PID_INIT_INO` of the kernel: the namespace that processes begin in.
const INITIAL: &str = "pid:[4026531836]";

/// Whether the pid namespace that this program is in is the first one of the machine.
pub(crate) fn is_initial_namespace(procfs: &Path) -> io::Result<bool> {
    Ok(std::fs::read_link(procfs.join("self/ns/pid"))?.as_os_str() == INITIAL)
}

/// The process id that this program has in this procfs: another one than its own where that is of another namespace, such as
/// a host's that is seen from a container; `None` where it is not in it.
pub fn own_pid(procfs: &Path) -> Option<i32> {
    std::fs::read_link(procfs.join("self")).ok()?.to_str()?.parse().ok()
}

/// Whether the process ids in this procfs are those of this program's own namespace.
pub fn speaks_of_us(procfs: &Path) -> bool {
    own_pid(procfs) == Some(std::process::id() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procfs_of_others_is_told_apart() {
        assert!(speaks_of_us(Path::new("/proc")));
        assert!(!speaks_of_us(Path::new("/")));
    }
}
