//! `/proc/PID/status`: costs several times what the other files of a process cost, and is read on a budget.

use std::time::Duration;

use super::files::Files;
use crate::scan::{lines, number, words};

/// What is used of `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The most memory that was resident, in bytes; `VmHWM`.
    pub(crate) peak_rss: u64,
    /// Whether its children vanish when they end, without handing on what they used: `SigIgn` has `SIGCHLD`.
    pub(crate) ignores_children: bool,
    pub(crate) switches: Switches,
}

/// Times that the threads of a process gave up their CPU, and were taken off it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

impl Switches {
    pub(super) fn plus(self, other: Self) -> Self {
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
            match &line[..colon] {
                b"VmHWM" => status.peak_rss = number(word)?.checked_mul(1024)?,
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

    /// Reads it. A process of several threads has its switches in a file each: `status` alone counts the first one, and says
    /// nothing of memory when that has ended.
    pub(super) fn read(files: &mut Files, pid: i32, threads: u64) -> Option<Self> {
        let mut status = Self::read_one(files, pid, "status")?;
        if threads > 1 {
            let tasks = files.threads(pid);
            let each = tasks.filter_map(|tid| Self::read_one(files, pid, &format!("task/{tid}/status")));
            (status.switches, status.peak_rss) = each
                .fold((Switches::default(), status.peak_rss), |(switches, peak_rss), task| {
                    (switches.plus(task.switches), peak_rss.max(task.peak_rss))
                });
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

    const TEXT: &[u8] = b"Name:\tmake\nState:\tS (sleeping)\nVmPeak:\t  9000 kB\nVmHWM:\t    2048 kB\nSigBlk:\t0000000000010000\n\
        SigIgn:\t0000000000011000\nSigCgt:\t0000000000010000\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";

    #[test]
    fn what_is_used_of_it() {
        let switches = Switches { voluntary: 150, involuntary: 7 };
        assert_eq!(Status::parse(TEXT), Some(Status { peak_rss: 2 << 20, ignores_children: true, switches }));
        let waits = String::from_utf8_lossy(TEXT).replace("SigIgn:\t0000000000011000", "SigIgn:\t0000000000001000");
        assert!(!Status::parse(waits.as_bytes()).unwrap().ignores_children);
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
