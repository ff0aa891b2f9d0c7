//! Which pid namespace a procfs shows.

use std::io;
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procfs_of_others_is_told_apart() {
        assert!(shows_own_pid_namespace(Path::new("/proc")));
        assert!(!shows_own_pid_namespace(Path::new("/")));
    }
}
