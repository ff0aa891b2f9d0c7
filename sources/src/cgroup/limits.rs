//! The limits of a cgroup: the lowest ones of it and of those above it.

use std::path::Path;

use super::hierarchy::{Directory, Hierarchy};
use crate::procfile::read_once;
use resource_tracker_scan::{number, words};

/// Memory and swap in bytes; `None` where nothing is limited.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) cores: Option<f64>,
    /// CPUs that may be used, as the kernel lists them. There are always some.
    pub(super) cpus: Option<String>,
    pub(super) memory: Option<u64>,
    pub(super) memory_high: Option<u64>,
    pub(super) swap: Option<u64>,
    pub(super) pids: Option<u64>,
}

impl Limits {
    pub(super) fn read(hierarchy: &Hierarchy) -> Self {
        let v2 = hierarchy.unified.as_ref();
        let (memory, memory_high, swap) = match hierarchy.legacy("memory") {
            Some(directory) => {
                let memory = lowest(Some(directory), "memory.limit_in_bytes");
                let both = lowest(Some(directory), "memory.memsw.limit_in_bytes");
                (memory, None, both.and_then(|both| both.checked_sub(memory?)))
            }
            None => (lowest(v2, "memory.max"), lowest(v2, "memory.high"), lowest(v2, "memory.swap.max")),
        };
        let cores = match hierarchy.legacy("cpu") {
            Some(directory) => least_cores(directory, |directory| {
                let value = |name: &str| single(&read_once(&directory.join(name))?);
                quotient(value("cpu.cfs_quota_us")?, value("cpu.cfs_period_us")?)
            }),
            None => v2.and_then(|directory| {
                least_cores(directory, |directory| cpu_max(&read_once(&directory.join("cpu.max"))?))
            }),
        };
        let cpus = match hierarchy.legacy("cpuset") {
            Some(directory) => nearest(directory, "cpuset.effective_cpus"),
            None => v2.and_then(|directory| nearest(directory, "cpuset.cpus.effective")),
        };
        Self { cores, cpus, memory, memory_high, swap, pids: lowest(hierarchy.legacy("pids").or(v2), "pids.max") }
    }

    pub(super) fn any(&self) -> bool {
        let Self { cores, cpus: _, memory, memory_high, swap, pids } = self;
        cores.is_some() || [memory, memory_high, swap, pids].into_iter().any(Option::is_some)
    }
}

impl Directory {
    /// Whether a new group below this one makes no difference to its processes. Many programs look for limits in their
    /// own group alone, as Node does to size its heap, and would not see those of this one. And with the `cpu` or `io`
    /// controller, all processes of a new group together have what one process beside it has.
    pub fn can_be_divided(&self) -> bool {
        let limited_by = |name| lowest(Some(self), name).is_some();
        match read_once(&self.path.join("cgroup.subtree_control")) {
            Some(passed_on) => {
                let is_shared = words(&passed_on).any(|controller| matches!(controller, b"cpu" | b"io"));
                let cores = || least_cores(self, |directory| cpu_max(&read_once(&directory.join("cpu.max"))?));
                !(is_shared || limited_by("memory.max") || limited_by("memory.high") || cores().is_some())
            }
            // Of v1.
            None => !self.path.join("cpu.shares").exists() && !limited_by("memory.limit_in_bytes"),
        }
    }
}

fn lowest(directory: Option<&Directory>, name: &str) -> Option<u64> {
    directory?.ancestors().filter_map(|directory| limit(&read_once(&directory.join(name))?)).min()
}

fn least_cores(directory: &Directory, read: impl Fn(&Path) -> Option<f64>) -> Option<f64> {
    directory.ancestors().filter_map(read).reduce(f64::min)
}

/// The text of a file in the nearest cgroup upwards that has it.
fn nearest(directory: &Directory, name: &str) -> Option<String> {
    let text = directory.ancestors().find_map(|directory| read_once(&directory.join(name)))?;
    Some(String::from_utf8_lossy(&text).trim().to_owned()).filter(|text| !text.is_empty())
}

pub(super) fn single(text: &[u8]) -> Option<u64> {
    number(words(text).next()?)
}

/// A number, or `max`. In v1 no limit is the largest multiple of a page that fits a `long`.
fn limit(text: &[u8]) -> Option<u64> {
    single(text).filter(|value| *value < i64::MAX as u64 & !0xffff)
}

/// `50000 100000` or `max 100000`, in microseconds.
fn cpu_max(text: &[u8]) -> Option<f64> {
    let mut words = words(text);
    quotient(number(words.next()?)?, number(words.next()?)?)
}

fn quotient(quota: u64, period: u64) -> Option<f64> {
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{hierarchy, tree};
    use super::*;

    #[test]
    fn a_group_that_hides_what_its_processes_look_for_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory { mount: root.path().to_owned(), path: root.path().join("slice/job") };
        let passed_on = "slice/job/cgroup.subtree_control";
        let can_be_divided = |file: &str, text: &str| {
            // A group of v2 has that file, whatever is in it.
            let is_v1 = ["memory.limit_in_bytes", "slice/job/cpu.shares"].contains(&file);
            tree(root.path(), &[(passed_on, "\n"), (file, text)]);
            if is_v1 {
                std::fs::remove_file(root.path().join(passed_on)).unwrap();
            }
            let can = directory.can_be_divided();
            std::fs::remove_file(root.path().join(file)).unwrap();
            can
        };
        for (file, text) in [
            ("slice/memory.max", "268435456\n"),
            ("slice/job/memory.high", "268435456\n"),
            ("memory.limit_in_bytes", "268435456\n"),
            ("slice/job/cpu.max", "50000 100000\n"),
            (passed_on, "cpu memory\n"),
            (passed_on, "io\n"),
            ("slice/job/cpu.shares", "1024\n"),
        ] {
            assert!(!can_be_divided(file, text), "{file} {text}");
        }
        for (file, text) in [
            ("slice/memory.max", "max\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("slice/job/cpu.max", "max 100000\n"),
            (passed_on, "cpuset memory pids\n"),
            ("slice/cgroup.subtree_control", "cpu\n"),
            ("slice/job/pids.max", "100\n"),
        ] {
            assert!(can_be_divided(file, text), "{file} {text}");
        }
    }

    #[test]
    fn texts_of_limits() {
        assert_eq!([cpu_max(b"50000 100000\n"), cpu_max(b"max 100000\n")], [Some(0.5), None]);
        assert_eq!(
            [limit(b"max\n"), limit(b"1048576\n"), limit(b"9223372036854771712\n")],
            [None, Some(1 << 20), None]
        );
        assert_eq!(single(b"-1\n"), None, "no quota");
    }

    /// A slice that limits more than the job's own scope does.
    #[test]
    fn the_lowest_on_the_way_up_hold() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        tree(
            root,
            &[
                ("unified/cpuset.cpus.effective", "0-7\n"),
                ("unified/slice/cpu.max", "150000 100000\n"),
                ("unified/slice/cpuset.cpus.effective", "0-3\n"),
                ("unified/slice/memory.high", "100\n"),
                ("unified/slice/memory.swap.max", "0\n"),
                ("unified/slice/job/cpu.max", "max 100000\n"),
                ("unified/slice/job/memory.max", "300\n"),
                ("unified/slice/job/memory.high", "200\n"),
                ("unified/slice/job/memory.swap.max", "max\n"),
            ],
        );
        let limits = Limits::read(&hierarchy(root, Some("slice/job"), &[]));
        let cpus = Some("0-3".to_owned());
        let expected =
            Limits { cores: Some(1.5), cpus, memory: Some(300), memory_high: Some(100), swap: Some(0), pids: None };
        assert_eq!(limits, expected);
        assert!(limits.any() && !Limits { cpus: limits.cpus, ..Limits::default() }.any());
    }

    #[test]
    fn in_v1_a_limit_of_both_has_that_of_memory_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        tree(
            root,
            &[
                ("memory/job/memory.limit_in_bytes", "1048576\n"),
                ("memory/job/memory.memsw.limit_in_bytes", "3145728\n"),
                ("memory/memory.memsw.limit_in_bytes", "9223372036854771712\n"),
                ("cpuset/job/cpuset.effective_cpus", "1\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let limits = Limits::read(&hierarchy(root, None, &[("memory", "job"), ("cpuset", "job"), ("cpu", "")]));
        let expected =
            Limits { memory: Some(1 << 20), swap: Some(2 << 20), cpus: Some("1".to_owned()), ..Limits::default() };
        assert_eq!(limits, expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            single(&text);
            limit(&text);
            cpu_max(&text);
        }
    }
}
