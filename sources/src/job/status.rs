//! `/proc/PID/status`: it costs several times as much as the other files of a process, and is read on a budget.

use std::time::Duration;

use super::files::Files;
use resource_tracker_scan::{lines, number, words};

/// The fields of `status` that are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The most memory that was resident, in bytes; `VmHWM`.
    pub(crate) peak_rss: u64,
    pub(crate) memory: Memory,
    /// Whether its children vanish when they end, without handing on what they used: `SigIgn` has `SIGCHLD`.
    pub(crate) ignores_children: bool,
    pub(crate) switches: Switches,
}

/// The memory of a process by kind, in bytes; `None` where this kernel does not show it, or the process has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// `RssAnon`
    pub(crate) anon: Option<u64>,
    /// `RssFile`
    pub(crate) file: Option<u64>,
    /// `RssShmem`
    pub(crate) shmem: Option<u64>,
    /// `VmSwap`
    pub(crate) swap: Option<u64>,
    /// `HugetlbPages`
    pub(crate) hugetlb: Option<u64>,
}

impl Memory {
    /// Combines those of each kind that are known.
    pub(crate) fn each(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).reduce(&combine);
        Self {
            anon: both(self.anon, other.anon),
            file: both(self.file, other.file),
            shmem: both(self.shmem, other.shmem),
            swap: both(self.swap, other.swap),
            hugetlb: both(self.hugetlb, other.hugetlb),
        }
    }
}

/// Context switches of the threads of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// Times that a thread gave up its CPU to wait.
    pub voluntary: u64,
    /// Times that a thread was taken off its CPU.
    pub involuntary: u64,
}

impl Switches {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { voluntary: self.voluntary + other.voluntary, involuntary: self.involuntary + other.involuntary }
    }

    /// What was added since. A thread that ends takes its count along; that counts as nothing.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

impl Status {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        let mut is_whole = false;
        for line in lines(text) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let Some(word) = words(&line[colon + 1..]).next() else { continue };
            let bytes = || number(word)?.checked_mul(1024);
            match &line[..colon] {
                b"VmHWM" => status.peak_rss = bytes()?,
                b"RssAnon" => status.memory.anon = bytes(),
                b"RssFile" => status.memory.file = bytes(),
                b"RssShmem" => status.memory.shmem = bytes(),
                b"VmSwap" => status.memory.swap = bytes(),
                b"HugetlbPages" => status.memory.hugetlb = bytes(),
                b"SigIgn" => {
                    let mask = u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
                    status.ignores_children = mask & (1 << (libc::SIGCHLD - 1)) != 0;
                }
                b"voluntary_ctxt_switches" => status.switches.voluntary = number(word)?,
                b"nonvoluntary_ctxt_switches" => {
                    status.switches.involuntary = number(word)?;
                    is_whole = true;
                }
                _ => (),
            }
        }
        is_whole.then_some(status)
    }

    /// Reads it. A process with several threads has context switches in a file for each thread: `status` alone counts
    /// those of the first, and shows no memory once that has ended.
    pub(super) fn read(files: &mut Files, pid: i32, threads: u64) -> Option<Self> {
        let mut status = Self::read_one(files, pid, "status")?;
        if threads > 1 {
            let tasks = files.threads(pid);
            let each = tasks.filter_map(|tid| Self::read_one(files, pid, &format!("task/{tid}/status")));
            status.switches = Switches::default();
            for task in each {
                status.switches = status.switches.plus(task.switches);
                status.peak_rss = status.peak_rss.max(task.peak_rss);
                // Threads share their memory.
                status.memory = status.memory.each(task.memory, u64::max);
            }
        }
        Some(status)
    }

    fn read_one(files: &mut Files, pid: i32, name: &str) -> Option<Self> {
        Self::parse(files.read(pid, name, &mut None, false).ok()?)
    }
}

/// How many files may be read: so many a second, and not many more at once.
#[derive(Debug)]
pub(super) struct Budget {
    left: f64,
}

impl Budget {
    /// About a tenth of a percent of a core.
    const PER_SECOND: f64 = 100.0;
    const AT_ONCE: f64 = 32.0;

    pub(super) fn new() -> Self {
        Self { left: Self::AT_ONCE }
    }

    /// Time passed.
    pub(super) fn earn(&mut self, elapsed: Duration) {
        self.left = (self.left + elapsed.as_secs_f64() * Self::PER_SECOND).min(Self::AT_ONCE);
    }

    /// Pays for `files` if there is anything left. A process of many threads may overdraw it; nothing is read then
    /// until that is earned.
    pub(super) fn pay(&mut self, files: u64) -> bool {
        let can = self.left >= 1.0;
        if can {
            self.left -= files as f64;
        }
        can
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] =
        b"Name:\tmake\nState:\tS (sleeping)\nVmPeak:\t  9000 kB\nVmHWM:\t    2048 kB\nRssAnon:\t    1024 kB\n\
        RssFile:\t     512 kB\nRssShmem:\t       4 kB\nVmSwap:\t       8 kB\nHugetlbPages:\t    4096 kB\n\
        SigBlk:\t0000000000010000\nSigIgn:\t0000000000011000\nSigCgt:\t0000000000010000\n\
        voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";

    #[test]
    fn what_is_used_of_it() {
        let switches = Switches { voluntary: 150, involuntary: 7 };
        let memory = Memory {
            anon: Some(1 << 20),
            file: Some(512 << 10),
            shmem: Some(4 << 10),
            swap: Some(8 << 10),
            hugetlb: Some(4 << 20),
        };
        assert_eq!(Status::parse(TEXT), Some(Status { peak_rss: 2 << 20, memory, ignores_children: true, switches }));
        let waits = String::from_utf8_lossy(TEXT).replace("SigIgn:\t0000000000011000", "SigIgn:\t0000000000001000");
        assert!(!Status::parse(waits.as_bytes()).unwrap().ignores_children);
    }

    #[test]
    fn memory_that_is_not_told_is_unknown() {
        let text = String::from_utf8_lossy(TEXT).replace("RssAnon:\t    1024", "RssAnon:\t    -1");
        let old: String =
            text.lines().filter(|line| !line.starts_with("Huge")).map(|line| format!("{line}\n")).collect();
        let memory = Status::parse(old.as_bytes()).unwrap().memory;
        assert_eq!((memory.anon, memory.hugetlb, memory.swap), (None, None, Some(8 << 10)));
        let sum = memory.each(Memory { anon: Some(1), swap: Some(1), ..Memory::default() }, u64::saturating_add);
        assert_eq!((sum.anon, sum.hugetlb, sum.swap), (Some(1), None, Some((8 << 10) + 1)));
    }

    #[test]
    fn a_budget_is_earned() {
        let mut budget = Budget::new();
        let granted = (0..1000).filter(|_| budget.pay(1)).count();
        assert_eq!(granted, 32);
        budget.earn(Duration::from_millis(50));
        assert!(budget.pay(64), "5 are there, and a process is read whole");
        budget.earn(Duration::from_millis(500));
        assert!(!budget.pay(1), "the 59 too many are earned first");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            Status::parse(&bytes);
        }

        #[test]
        fn a_cut_text_is_refused_or_right(length in 0usize..TEXT.len() - 2) {
            prop_assert_eq!(Status::parse(&TEXT[..length]), None);
        }
    }
}
