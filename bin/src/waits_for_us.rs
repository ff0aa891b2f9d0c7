//! Which processes wait for the end of this program, so that it must not wait for theirs.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

use crate::fdinfo::flags;

/// Access mode of a descriptor, in the `flags` of its `fdinfo`. `O_ACCMODE`
const ACCESS: i32 = 0o3;
const READ_ONLY: i32 = 0o0;

/// What an open descriptor leads to, as procfs shows it. The file itself is not asked: it can be on a file system that does
/// not answer.
struct Descriptor {
    number: RawFd,
    target: PathBuf,
}

impl Descriptor {
    fn all(procfs: &Path, pid: i32) -> impl Iterator<Item = Self> {
        let entries = fs::read_dir(procfs.join(format!("{pid}/fd"))).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some(Self { number, target: fs::read_link(entry.path()).ok()? })
        })
    }

    fn is_pipe(&self) -> bool {
        self.target.as_os_str().as_encoded_bytes().starts_with(b"pipe:[")
    }

    /// Whether this descriptor of this program leads to a FIFO with a name.
    fn is_own_fifo(&self) -> bool {
        // SAFETY: it is borrowed for one call, which fails if it was closed meanwhile.
        let file = unsafe { BorrowedFd::borrow_raw(self.number) };
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = statx(file, c"", flags, StatxFlags::TYPE);
        status.is_ok_and(|status| FileType::from_raw_mode(status.stx_mode.into()).is_fifo())
            && self.target.is_absolute()
    }

    /// Whether a process can only read from it; `None` when it is gone.
    fn only_reads(&self, procfs: &Path, pid: i32) -> Option<bool> {
        Some(flags(&procfs.join(pid.to_string()), self.number.to_string())? & ACCESS == READ_ONLY)
    }
}

/// The pipes that this program writes to, and others read from.
fn written_by_us(procfs: &Path, own: i32) -> HashSet<PathBuf> {
    let (mut written, mut read) = (HashSet::new(), HashSet::new());
    for descriptor in Descriptor::all(procfs, own).filter(|file| file.is_pipe() || file.is_own_fifo()) {
        match descriptor.only_reads(procfs, own) {
            Some(true) => _ = read.insert(descriptor.target),
            Some(false) => _ = written.insert(descriptor.target),
            None => (),
        }
    }
    written.retain(|pipe| !read.contains(pipe));
    written
}

/// The pipes that another process writes to.
fn written_by(procfs: &Path, pid: i32) -> impl Iterator<Item = PathBuf> {
    let pipes = Descriptor::all(procfs, pid).filter(Descriptor::is_pipe);
    pipes.filter(move |pipe| pipe.only_reads(procfs, pid) == Some(false)).map(|pipe| pipe.target)
}

/// Whether a process reads one of these pipes: as its standard input, or, if it has a name, by whatever descriptor. Others can be
/// inherited and never read.
fn reads_one_of(procfs: &Path, pid: i32, pipes: &HashSet<PathBuf>) -> bool {
    let of_them = Descriptor::all(procfs, pid).filter(|file| pipes.contains(&file.target));
    let mut read = of_them.filter(|file| file.number == 0 || !file.is_pipe());
    read.any(|file| file.only_reads(procfs, pid) == Some(true))
}

/// Those of these processes that read what this program writes into a pipe, directly or by way of each other.
pub(crate) fn readers(procfs: &Path, own: i32, mut others: Vec<i32>) -> HashSet<i32> {
    let (mut found, mut written) = (HashSet::new(), written_by_us(procfs, own));
    while !written.is_empty() && !others.is_empty() {
        let (readers, rest): (Vec<i32>, Vec<i32>) =
            others.into_iter().partition(|pid| reads_one_of(procfs, *pid, &written));
        written = readers.iter().flat_map(|pid| written_by(procfs, *pid)).collect();
        found.extend(readers);
        others = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::pipe;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeps(stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Child {
        Command::new("sleep").arg("100").stdin(stdin).stdout(stdout).spawn().unwrap()
    }

    /// Which of these processes are readers, by their place; they end then.
    fn found(mut processes: Vec<Child>) -> Vec<usize> {
        let pids: Vec<i32> = processes.iter().map(|process| process.id() as i32).collect();
        let found = readers(Path::new("/proc"), std::process::id() as i32, pids.clone());
        for process in &mut processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        (0..pids.len()).filter(|place| found.contains(&pids[*place])).collect()
    }

    #[test]
    fn a_reader_of_a_reader_is_one() {
        let (ours, write) = pipe().unwrap();
        let (second, between) = pipe().unwrap();
        let processes = vec![
            sleeps(ours, between),
            sleeps(second, Stdio::null()),
            sleeps(Stdio::null(), write.try_clone().unwrap()),
        ];
        assert_eq!(found(processes), [0, 1]);
    }

    #[test]
    fn who_opened_a_fifo_by_its_name_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, other] = ["fifo", "other"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        fs::write(&other, "").unwrap();
        let reads = |path: &Path| {
            let word = path.to_str().unwrap();
            Command::new("sh").args(["-c", "exec 5<\"$0\"; exec sleep 100", word]).spawn().unwrap()
        };
        let processes = vec![reads(&fifo), reads(&other)];
        let (_write, _same) = (File::create(&fifo).unwrap(), File::create(&other).unwrap());
        let has_begun = |process: &Child| {
            fs::read_link(format!("/proc/{}/fd/5", process.id())).is_ok_and(|path| path.starts_with(folder.path()))
        };
        while !processes.iter().all(has_begun) {
            std::thread::yield_now();
        }
        assert_eq!(found(processes), [0]);
    }

    #[test]
    fn who_inherited_the_other_end_need_not_read_it() {
        let (ours, _write) = pipe().unwrap();
        let script = "exec 7<&0 0</dev/null; exec sleep 100";
        let process = Command::new("sh").args(["-c", script]).stdin(ours).spawn().unwrap();
        let name = format!("/proc/{}/comm", process.id());
        while fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        assert!(found(vec![process]).is_empty());
    }
}
