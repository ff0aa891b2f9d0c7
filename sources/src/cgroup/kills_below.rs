//! Processes that were killed for memory in the cgroups within one of v1, which counts those of its own only.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::oom_kills;

/// As many are looked at. A job that makes more has another way to know.
const MOST: usize = 256;

/// What was last seen of each.
#[derive(Debug, Default)]
pub(super) struct KillsBelow {
    /// The cgroup that they are in; `None` where the kernel sums them up itself.
    top: Option<PathBuf>,
    /// By the number of the folder: a name can be used again.
    seen: HashMap<u64, u64>,
    /// Those of cgroups that have been removed.
    removed: u64,
}

impl KillsBelow {
    pub(super) fn new(top: Option<PathBuf>) -> Self {
        Self { top, ..Self::default() }
    }

    /// Looks at all.
    pub(super) fn look(&mut self) {
        let mut now = HashMap::new();
        let mut folders: Vec<PathBuf> = self.top.iter().flat_map(|top| folders_in(top)).collect();
        while let Some(folder) = folders.pop().filter(|_| now.len() < MOST) {
            let number = folder.metadata().map(|folder| folder.ino());
            let kills = std::fs::read(folder.join("memory.oom_control")).ok().and_then(|text| oom_kills(&text));
            if let (Ok(number), Some(kills)) = (number, kills) {
                now.insert(number, kills);
                folders.extend(folders_in(&folder));
            }
        }
        let removed = self.seen.iter().filter(|(number, _)| !now.contains_key(number));
        self.removed += removed.map(|(_, kills)| kills).sum::<u64>();
        self.seen = now;
    }

    /// Those of all cgroups that were ever seen.
    pub(super) fn sum(&self) -> u64 {
        self.removed + self.seen.values().sum::<u64>()
    }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
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
}
