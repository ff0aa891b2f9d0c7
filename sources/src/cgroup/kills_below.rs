//! Processes that were killed for memory in the cgroups below one of v1, which counts only its own.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::oom_kills;

/// As many are looked at. A job that makes more has another way to know.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct KillsBelow {
    /// The cgroup above them; `None` where the kernel sums them up itself.
    top: Option<PathBuf>,
    /// What was last seen of each, by the number of the folder: a name can be used again.
    seen: HashMap<u64, u64>,
    /// Whether some were not looked at.
    has_missed: bool,
    sum: u64,
}

impl KillsBelow {
    pub(super) fn new(top: Option<PathBuf>) -> Self {
        Self { top, ..Self::default() }
    }

    /// Looks at all. Kills of a cgroup that was not seen before are new, unless it may have been missed before.
    pub(super) fn look(&mut self) {
        let (mut now, mut folders) = (HashMap::new(), Vec::new());
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let mut is_whole = self.top.as_ref().is_none_or(|top| add_folders(top, &mut folders).is_ok());
        while let Some(folder) = folders.pop() {
            if now.len() == MOST {
                is_whole = false;
                break;
            }
            is_whole &= visit(&folder, &mut now, &mut folders).map_or_else(is_gone, |()| true);
        }
        let missed = |kills: u64| if self.has_missed { kills } else { 0 };
        let before = |number: &u64, kills: u64| self.seen.get(number).copied().unwrap_or_else(|| missed(kills));
        self.sum += now.iter().map(|(number, kills)| kills.saturating_sub(before(number, *kills))).sum::<u64>();
        (self.seen, self.has_missed) = (now, !is_whole);
    }

    /// The kills of all cgroups that were ever seen.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }
}

fn visit(folder: &Path, now: &mut HashMap<u64, u64>, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some(kills) = oom_kills(&std::fs::read(folder.join("memory.oom_control"))?) else { return Ok(()) };
    now.insert(folder.metadata()?.ino(), kills);
    add_folders(folder, folders)
}

fn add_folders(folder: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    // Only its name in the folder above it and its own `.` link to it.
    if folder.metadata()?.nlink() == 2 {
        return Ok(());
    }
    let entries = std::fs::read_dir(folder)?.flatten();
    let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.extend(inner.map(|entry| entry.path()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn those_of_removed_cgroups_stay() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let text = |kills: u64| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
        tree(
            root,
            &[
                ("memory.oom_control", &text(9)),
                ("a/memory.oom_control", &text(1)),
                ("a/b/memory.oom_control", &text(2)),
            ],
        );
        let mut below = KillsBelow::new(Some(root.to_owned()));
        below.look();
        assert_eq!(below.sum(), 3);
        // Another one of the same name. What is moved away keeps its number, so that the new one has its own.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::rename(root.join("a"), elsewhere.path().join("a")).unwrap();
        tree(root, &[("a/memory.oom_control", &text(4))]);
        for _ in 0..2 {
            below.look();
            assert_eq!(below.sum(), 3 + 4);
        }
    }

    #[test]
    fn those_of_cgroups_that_are_not_reached_count_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let write = |range: std::ops::Range<usize>, kills: u64| {
            for number in range {
                tree(root, &[(&format!("{number}/memory.oom_control"), &format!("oom_kill {kills}\n"))]);
            }
        };
        let remove = |range: std::ops::Range<usize>| {
            for folder in range.map(|number| root.join(number.to_string())) {
                std::fs::remove_file(folder.join("memory.oom_control")).unwrap();
                std::fs::remove_dir(folder).unwrap();
            }
        };
        let mut below = KillsBelow::new(Some(root.to_owned()));
        write(0..MOST, 1);
        below.look();
        assert_eq!(below.sum(), MOST as u64);
        // Some of the cgroups from before are not reached any more.
        write(MOST..3 * MOST, 0);
        below.look();
        assert_eq!(below.sum(), MOST as u64);
        // They are reached again.
        remove(MOST..3 * MOST);
        for _ in 0..2 {
            below.look();
            assert_eq!(below.sum(), MOST as u64, "nobody was killed");
        }
        write(7..8, 2);
        below.look();
        assert_eq!(below.sum(), MOST as u64 + 1);
        // A cgroup that appeared while not all were reached may be old.
        write(MOST..3 * MOST, 1);
        below.look();
        remove(0..2 * MOST);
        let before = below.sum();
        below.look();
        assert_eq!(below.sum(), before);
    }
}
