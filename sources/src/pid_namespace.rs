//! Of which pid namespace a procfs tells.

use std::io;
use std::path::Path;

/// `PROC_PID_INIT_INO` of the kernel: the namespace that processes begin in.
const INITIAL: &str = "pid:[4026531836]";

/// Whether the pid namespace that this program is in is the first one of the machine.
pub(crate) fn is_initial_namespace(procfs: &Path) -> io::Result<bool> {
    Ok(std::fs::read_link(procfs.join("self/ns/pid"))?.as_os_str() == INITIAL)
}

/// Whether the process ids in this procfs are those of this program's own namespace. Those of a host's procfs that is
/// seen from a container are not.
pub fn speaks_of_us(procfs: &Path) -> bool {
    let target = std::fs::read_link(procfs.join("self")).ok();
    target.and_then(|target| target.to_str()?.parse().ok()) == Some(std::process::id())
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
