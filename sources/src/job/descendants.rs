//! Finds new descendants from above, in the `children` files. The cost depends on the tree alone, not on other new
//! processes.

use std::collections::HashSet;

use super::files::Files;
use super::stat::Stat;
use resource_tracker_scan::{number, words};

/// A process whose children are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent {
    pub(super) pid: i32,
    pub(super) threads: u64,
}

/// Descendants of these that are not `is_known`, in order. `None` where the kernel does not list children (without
/// `CONFIG_PROC_CHILDREN`), as the calling process itself shows.
pub(super) fn new_ones(
    files: &mut Files,
    parents: impl Iterator<Item = Parent>,
    own_pid: i32,
    is_known: impl Fn(i32) -> bool,
) -> Option<Vec<Stat>> {
    files.read(own_pid, &first_thread(own_pid), &mut None, false).ok()?;
    let mut open: Vec<Parent> = parents.collect();
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    while let Some(parent) = open.pop() {
        for pid in children(files, parent) {
            if is_known(pid) || !seen.insert(pid) {
                continue;
            }
            let text = files.read(pid, "stat", &mut None, false).ok();
            if let Some(stat) = text.and_then(Stat::parse).filter(|stat| !stat.is_taken_over()) {
                open.push(Parent { pid, threads: stat.threads });
                found.push(stat);
            }
        }
    }
    found.sort_unstable_by_key(|stat| stat.pid);
    Some(found)
}

/// A child belongs to the thread that forked it.
fn children(files: &mut Files, parent: Parent) -> Vec<i32> {
    let pid = parent.pid;
    if parent.threads <= 1 {
        return listed(files, pid, &first_thread(pid));
    }
    let threads = files.threads(pid);
    threads.flat_map(|thread| listed(files, pid, &format!("task/{thread}/children"))).collect()
}

fn first_thread(pid: i32) -> String {
    format!("task/{pid}/children")
}

fn listed(files: &mut Files, pid: i32, name: &str) -> Vec<i32> {
    let text = files.read(pid, name, &mut None, false).unwrap_or_default();
    words(text).filter_map(number).filter_map(|pid| i32::try_from(pid).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(procfs: &std::path::Path, pid: i32, threads: &[(i32, &str)]) {
        let count = threads.len();
        let stat =
            format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 {count} 0 {pid} 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17");
        let folder = procfs.join(pid.to_string());
        for (thread, children) in threads {
            std::fs::create_dir_all(folder.join(format!("task/{thread}"))).unwrap();
            std::fs::write(folder.join(format!("task/{thread}/children")), children).unwrap();
        }
        std::fs::write(folder.join("stat"), stat).unwrap();
    }

    #[test]
    fn children_of_all_threads_and_theirs() {
        let procfs = tempfile::tempdir().unwrap();
        process(procfs.path(), 5, &[(5, "10 11 "), (6, "12 ")]);
        process(procfs.path(), 10, &[(10, "20 ")]);
        process(procfs.path(), 12, &[(12, "")]);
        process(procfs.path(), 20, &[(20, "10 12 99 ")]);
        process(procfs.path(), 30, &[(30, "")]);
        let mut files = Files::new(procfs.path()).unwrap();
        let mut new = |known: &[i32]| {
            let parents = [Parent { pid: 5, threads: 2 }];
            let found = new_ones(&mut files, parents.into_iter(), 5, |pid| known.contains(&pid))?;
            Some(found.iter().map(|stat| stat.pid).collect::<Vec<_>>())
        };
        assert_eq!(new(&[]), Some(vec![10, 12, 20]), "11 and 99 have ended");
        assert_eq!(new(&[10]), Some(vec![12]), "a known one is asked by its own name");
        std::fs::remove_file(procfs.path().join("5/task/5/children")).unwrap();
        assert_eq!(new(&[]), None);
    }
}
