//! The threads of processes, and those of their descendants.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::sum::has_ended;
use resource_tracker_scan::{number, words};

/// The threads of these processes, and of all that they have started. Processes that have ended are left out.
///
/// # Errors
/// When some of them cannot be listed.
pub(super) fn threads_of(procfs: &Path, pids: &[i32]) -> io::Result<BTreeSet<i32>> {
    let mut threads = BTreeSet::new();
    let mut processes = pids.to_vec();
    while let Some(process) = processes.pop() {
        let folder = procfs.join(process.to_string()).join("task");
        for thread in unless_gone(listed(&folder))? {
            if threads.insert(thread) {
                let children = unless_gone(std::fs::read(folder.join(thread.to_string()).join("children")))?;
                processes.extend(words(&children).filter_map(pid));
            }
        }
    }
    Ok(threads)
}

/// The folder is closed before its entries are looked at.
fn listed(folder: &Path) -> io::Result<Vec<i32>> {
    let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    names.filter_map(|name| name.map(|name| pid(name.as_encoded_bytes())).transpose()).collect()
}

fn pid(word: &[u8]) -> Option<i32> {
    i32::try_from(number(word)?).ok()
}

/// Nothing where there is no such file: its process has ended, or the kernel lists no children (without
/// `CONFIG_PROC_CHILDREN`).
fn unless_gone<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound || has_ended(&error) => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each process has one thread, and has started the next one.
    fn line_of(procfs: &Path, length: i32) {
        for pid in 1..=length {
            let thread = procfs.join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&thread).unwrap();
            std::fs::write(thread.join("children"), format!("{} ", pid + 1)).unwrap();
        }
    }

    /// Neither of the stack nor of descriptors.
    #[test]
    fn a_long_line_of_descendants_needs_no_room() {
        let procfs = tempfile::tempdir().unwrap();
        line_of(procfs.path(), 500);
        let path = procfs.path().to_owned();
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let found = thread.spawn(move || threads_of(&path, &[1])).unwrap().join().unwrap();
        assert!(found.unwrap().into_iter().eq(1..=500), "the next one has ended");
    }

    #[test]
    fn those_who_cannot_be_listed_are_an_error() {
        let procfs = tempfile::tempdir().unwrap();
        line_of(procfs.path(), 2);
        assert_eq!(threads_of(procfs.path(), &[1, 7]).unwrap(), BTreeSet::from([1, 2]));
        // Root may read everything, but no file is a folder.
        std::fs::create_dir(procfs.path().join("3")).unwrap();
        std::fs::write(procfs.path().join("3/task"), "").unwrap();
        assert!(threads_of(procfs.path(), &[1]).is_err());
    }
}
