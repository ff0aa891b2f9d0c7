//! Which processes wait for the end of this program, so that it must not wait for theirs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::fdinfo::flags;

/// Access mode of a descriptor, in the `flags` of its `fdinfo`. `O_ACCMODE`
const ACCESS: i32 = 0o3;
const READ_ONLY: i32 = 0o0;

/// The pipes that a process reads from, or that it writes to, by their numbers.
fn pipes(procfs: &Path, pid: i32, reads: bool) -> HashSet<PathBuf> {
    let folder = procfs.join(pid.to_string());
    let entries = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let pipe = |entry: fs::DirEntry| {
        // The file itself is not asked: it can be on a file system that does not answer.
        let target = fs::read_link(entry.path()).ok()?;
        let is_pipe = target.as_os_str().as_encoded_bytes().starts_with(b"pipe:[");
        let access = flags(&folder, entry.file_name()).filter(|_| is_pipe)? & ACCESS;
        ((access == READ_ONLY) == reads).then_some(target)
    };
    entries.filter_map(pipe).collect()
}

/// Those of these processes that read what this program writes into a pipe, directly or by way of each other.
pub(crate) fn readers(procfs: &Path, own: i32, mut others: Vec<i32>) -> HashSet<i32> {
    let (mut found, mut written) = (HashSet::new(), pipes(procfs, own, false));
    while !written.is_empty() {
        let (readers, rest): (Vec<i32>, Vec<i32>) =
            others.into_iter().partition(|pid| !pipes(procfs, *pid, true).is_disjoint(&written));
        written = readers.iter().flat_map(|pid| pipes(procfs, *pid, false)).collect();
        found.extend(readers);
        others = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_reader_of_a_reader_is_one() {
        let (ours, write) = pipe().unwrap();
        let sleeps =
            |stdin: Stdio, stdout: Stdio| Command::new("sleep").arg("100").stdin(stdin).stdout(stdout).spawn().unwrap();
        let (second, between) = pipe().unwrap();
        let mut processes = [
            sleeps(ours.into(), between.into()),
            sleeps(second.into(), Stdio::null()),
            sleeps(Stdio::null(), write.try_clone().unwrap().into()),
        ];
        let pids: Vec<i32> = processes.iter().map(|process| process.id() as i32).collect();
        let found = readers(Path::new("/proc"), std::process::id() as i32, pids.clone());
        for process in &mut processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert_eq!(found, HashSet::from([pids[0], pids[1]]));
    }
}
