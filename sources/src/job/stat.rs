//! What `/proc/PID/stat` and `/proc/PID/io` say of one process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use resource_tracker_scan::{number, value_of, words};

/// The kernel's flag of a process, in `flags`. `include/linux/sched.h`
const PF_FORKNOEXEC: i64 = 0x40;

/// The fields of `/proc/PID/stat` that are used. Times are in clock ticks, `rss` in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub(crate) pid: i32,
    pub(crate) state: u8,
    /// Process id of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Whether it was forked, and runs no other program since.
    pub(crate) is_fork: bool,
    pub(crate) minor_faults: u64,
    pub(crate) children_minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) children_major_faults: u64,
    pub(crate) utime: u64,
    pub(crate) stime: u64,
    pub(crate) children_utime: u64,
    pub(crate) children_stime: u64,
    pub(crate) threads: u64,
    /// When it began, in clock ticks since the machine's start.
    pub start_time: u64,
    pub(crate) rss: u64,
    /// Where its stack begins, which is another place after an `exec`. 0 without the permission to trace it.
    pub(crate) stack: u64,
    pub(crate) exit_signal: i32,
}

/// A process for as long as it is the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Image {
    pub(crate) pid: i32,
    start_time: u64,
    /// The same in those that were forked from it.
    pub(crate) stack: u64,
}

impl Stat {
    /// What changes when the process does something, or waits for a child that did: its user and system time, in ticks, and
    /// the minor faults of both.
    pub fn activity(&self) -> [u64; 4] {
        [self.utime, self.stime, self.minor_faults, self.children_minor_faults]
    }

    /// `4242 (a (b) c) S 1 4242 …`: the name may hold anything, so the fields begin after the last parenthesis. Asks for no
    /// memory. `None` when the text is not whole.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
        let pid = number(words(&text[..open]).next()?)?;
        let mut fields = words(&text[close + 1..]);
        let state = *fields.next()?.first()?;
        let parent = number(fields.next()?)?;
        // From here on by their number in proc(5); this is field 5.
        let mut rest = fields.enumerate().map(|(index, word)| (index + 5, signed(word)));
        let mut field = |wanted: usize| rest.find(|(index, _)| *index == wanted).map(|(_, value)| value);
        // Of the kernel's own making the times can never be negative, but they are printed as signed.
        let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
        Some(Self {
            pid: i32::try_from(pid).ok()?,
            state,
            parent: i32::try_from(parent).ok()?,
            group: field(5)? as i32,
            session: field(6)? as i32,
            is_fork: field(9)? & PF_FORKNOEXEC != 0,
            minor_faults: unsigned(field(10)?),
            children_minor_faults: unsigned(field(11)?),
            major_faults: unsigned(field(12)?),
            children_major_faults: unsigned(field(13)?),
            utime: unsigned(field(14)?),
            stime: unsigned(field(15)?),
            children_utime: unsigned(field(16)?),
            children_stime: unsigned(field(17)?),
            threads: unsigned(field(20)?),
            start_time: unsigned(field(22)?),
            rss: unsigned(field(24)?),
            stack: unsigned(field(28).unwrap_or(0)),
            exit_signal: field(38).unwrap_or(0) as i32,
        })
    }

    pub(crate) fn identity(&self) -> (i32, u64) {
        (self.pid, self.start_time)
    }

    pub(crate) fn image(&self) -> Image {
        Image { pid: self.pid, start_time: self.start_time, stack: self.stack }
    }

    /// CPU time of the children that it has waited for, in ticks.
    pub(crate) fn children_time(&self) -> u64 {
        self.children_utime.saturating_add(self.children_stime)
    }

    /// Whether it has ended: it is a zombie that its parent has not waited for yet, or is being removed.
    pub fn is_dead(&self) -> bool {
        self.is_taken_over() || self.state == b'Z' && !self.has_lost_leader()
    }

    /// Whether its first thread has ended and others have not, which count with it. The files of those threads show its
    /// memory and its files.
    pub fn has_lost_leader(&self) -> bool {
        self.state == b'Z' && self.threads > 1
    }

    /// Whether a signal or a tracer has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether a signal has stopped it, and no tracer.
    pub fn is_stopped_by_signal(&self) -> bool {
        self.state == b'T'
    }

    /// Whether it is a thread, and not the first one of a process: they have no exit signal.
    pub(crate) fn is_thread(&self) -> bool {
        self.exit_signal == -1
    }

    /// Whether its parent has just taken over what it used. It is still listed for a moment, and would count twice.
    pub(crate) fn is_taken_over(&self) -> bool {
        matches!(self.state, b'X' | b'x')
    }
}

fn signed(word: &[u8]) -> i64 {
    let magnitude = |digits| number(digits).and_then(|value| i64::try_from(value).ok()).unwrap_or(0);
    word.strip_prefix(b"-").map_or_else(|| magnitude(word), |digits| -magnitude(digits))
}

/// What a process read and wrote, with the children that it has waited for: `/proc/PID/io`. In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Io {
    /// What its system calls read, wherever it came from; `rchar`.
    pub read_chars: u64,
    /// What its system calls wrote, wherever it went; `wchar`.
    pub write_chars: u64,
    /// What it caused to be read from storage; `read_bytes`.
    pub read_bytes: u64,
    /// What it wrote to page cache that is to go to storage, or past the cache; `write_bytes`.
    pub write_bytes: u64,
    /// What it took out of the page cache before it went to storage, whoever had written it; `cancelled_write_bytes`.
    pub cancelled_write_bytes: u64,
}

impl Io {
    /// That of a process in this procfs: `None` without the permission to trace it. A zombie still has it.
    pub fn of(procfs: &Path, pid: i32) -> Option<Self> {
        Self::read(&Self::open(procfs, pid)?)
    }

    /// The file that [`read`](Self::read) takes. That of a process that has ended belongs to root: a user opens it before.
    pub fn open(procfs: &Path, pid: i32) -> Option<File> {
        File::open(procfs.join(format!("{pid}/io"))).ok()
    }

    /// What it says now: `None` without the permission to trace the process, and once that was waited for.
    pub fn read(file: &File) -> Option<Self> {
        // Seven lines of a number.
        let mut text = [0; 512];
        let length = file.read_at(&mut text, 0).ok()?;
        Self::parse(&text[..length])
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        Some(Self {
            read_chars: value_of(text, "rchar")?,
            write_chars: value_of(text, "wchar")?,
            read_bytes: value_of(text, "read_bytes")?,
            write_bytes: value_of(text, "write_bytes")?,
            cancelled_write_bytes: value_of(text, "cancelled_write_bytes")?,
        })
    }

    pub(crate) fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            read_chars: combine(self.read_chars, other.read_chars),
            write_chars: combine(self.write_chars, other.write_chars),
            read_bytes: combine(self.read_bytes, other.read_bytes),
            write_bytes: combine(self.write_bytes, other.write_bytes),
            cancelled_write_bytes: combine(self.cancelled_write_bytes, other.cancelled_write_bytes),
        }
    }
}

/// The folder whose files tell of the memory and the descriptors of a process: its own, or that of one of its threads when
/// the first one has ended.
pub(crate) fn folder_of_process(procfs: &Path, pid: i32) -> PathBuf {
    let folder = procfs.join(pid.to_string());
    let stat = |folder: &Path| Stat::parse(&std::fs::read(folder.join("stat")).ok()?);
    if !stat(&folder).is_some_and(|stat| stat.has_lost_leader()) {
        return folder;
    }
    let threads = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten().map(|entry| entry.path());
    let lives = |thread: &PathBuf| stat(thread).is_some_and(|stat| stat.rss > 0);
    threads.into_iter().find(lives).unwrap_or(folder)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let tail = "S 7 4242 4242 -1 -1 4194304 100 200 3 4 50 60 70 80 20 0 5 0 9999 1000000 321 18446744073709551615 \
                    1 1 140733193388032 0 0 0 0 0 0 0 0 0 17 2 0 0 0 0 0\n";
        for name in ["(sh)", "(a (b) c)", "(x) R 1 (y)", "(new\nline)", "()"] {
            let stat = Stat::parse(format!("4242 {name} {tail}").as_bytes());
            let expected = Stat {
                pid: 4242,
                state: b'S',
                parent: 7,
                group: 4242,
                session: 4242,
                is_fork: false,
                minor_faults: 100,
                children_minor_faults: 200,
                major_faults: 3,
                children_major_faults: 4,
                utime: 50,
                stime: 60,
                children_utime: 70,
                children_stime: 80,
                threads: 5,
                start_time: 9999,
                rss: 321,
                stack: 140_733_193_388_032,
                exit_signal: 17,
            };
            assert_eq!(stat, Some(expected), "{name}");
        }
    }

    #[test]
    fn agrees_with_the_procfs_crate_about_this_process() -> anyhow::Result<()> {
        use procfs::FromRead;
        let text = std::fs::read("/proc/self/stat")?;
        let ours = Stat::parse(&text).unwrap_or_default();
        let theirs = procfs::process::Stat::from_read(&text[..])?;
        assert_eq!((ours.pid, ours.parent, ours.start_time), (theirs.pid, theirs.ppid, theirs.starttime));
        assert_eq!((ours.utime, ours.stime, ours.rss), (theirs.utime, theirs.stime, theirs.rss));
        assert_eq!((ours.threads as i64, Some(ours.exit_signal)), (theirs.num_threads, theirs.exit_signal));
        assert_eq!((ours.major_faults, ours.children_major_faults), (theirs.majflt, theirs.cmajflt));
        assert_eq!((ours.minor_faults, ours.children_minor_faults), (theirs.minflt, theirs.cminflt));
        Ok(())
    }

    #[test]
    fn what_is_read_and_written() {
        let text = "rchar: 5\nwchar: 4\nsyscr: 9\nsyscw: 9\nread_bytes: 3\nwrite_bytes: 2\ncancelled_write_bytes: 1\n";
        let io = Io { read_chars: 5, write_chars: 4, read_bytes: 3, write_bytes: 2, cancelled_write_bytes: 1 };
        assert_eq!(Io::parse(text.as_bytes()), Some(io));
        assert_eq!(Io::parse(text.replace("wchar: 4", "wchar: -").as_bytes()), None);
        assert!(Io::of(Path::new("/proc"), std::process::id() as i32).is_some());
    }

    #[test]
    fn a_process_lives_when_only_its_first_thread_has_ended() {
        let stat = |state: u8, threads: u64| Stat { state, threads, ..Stat::default() };
        let all = [stat(b'Z', 1), stat(b'Z', 2), stat(b'X', 2), stat(b'S', 1), stat(b'T', 1)];
        assert_eq!(all.map(|stat| stat.is_dead()), [true, false, true, false, false]);
        assert_eq!(all.map(|stat| stat.has_lost_leader()), [false, true, false, false, false]);
        assert_eq!(all.map(|stat| stat.is_stopped()), [false, false, false, false, true]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            Stat::parse(&bytes);
            Io::parse(&bytes);
        }

        #[test]
        fn a_cut_line_is_refused(length in 0usize..80) {
            let line = b"42 (sh) S 7 42 42 -1 -1 0 1 2 3 4 50 60 70 80 20 0 5 0 9999 1000000 321 0 1 1 0 0 0 0 0 0 0 0 0 0 17 2 0 0";
            prop_assert!(Stat::parse(&line[..length.min(60)]).is_none());
        }
    }
}
