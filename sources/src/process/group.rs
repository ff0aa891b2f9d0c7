//! CPU time and peak memory of the cgroup that was made for the job.

use std::path::Path;

use resource_tracker_core::JobCgroup;

use super::account::GroupTime;
use crate::procfile::ProcFile;
use crate::scan::{number, numbers, value_of, words};

/// The files of it that are open.
#[derive(Default)]
pub(super) struct Group {
    time: Option<TimeFile>,
}

enum TimeFile {
    /// `cpu.stat` of v2, in microseconds. It is there without any controller.
    Unified(ProcFile),
    /// `cpuacct.usage_all` of v1: nanoseconds in user mode and in the kernel, for each CPU.
    Cpuacct(ProcFile),
}

impl Group {
    pub(super) fn open(cgroup: &JobCgroup) -> Self {
        let open = |directory: &Path, name: &str| ProcFile::open_if_present(directory.join(name));
        let unified = cgroup.unified.as_deref().and_then(|directory| open(directory, "cpu.stat"));
        let cpuacct = || cgroup.cpuacct.as_deref().and_then(|directory| open(directory, "cpuacct.usage_all"));
        Self { time: unified.map(TimeFile::Unified).or_else(|| cpuacct().map(TimeFile::Cpuacct)) }
    }

    /// CPU time of all that ever ran in it. When it has been removed, that is said once.
    pub(super) fn read(&mut self) -> Option<GroupTime> {
        let read = match self.time.as_mut()? {
            TimeFile::Unified(file) => file.read().map(parse_cpu_stat),
            TimeFile::Cpuacct(file) => file.read().map(parse_usage_all),
        };
        read.inspect_err(|error| {
            log::warn!("the cgroup of the job is gone ({error:#}); its processes are added up instead");
            self.time = None;
        })
        .ok()?
    }
}

fn parse_cpu_stat(text: &[u8]) -> Option<GroupTime> {
    let nanos = |key| value_of(text, key)?.checked_mul(1000);
    Some(GroupTime { cpu: nanos("usage_usec")?, user: nanos("user_usec")? })
}

/// `cpu user system`, and a line for each CPU.
fn parse_usage_all(text: &[u8]) -> Option<GroupTime> {
    let lines = crate::scan::lines(text).filter(|line| words(line).next().is_some_and(|word| number(word).is_some()));
    lines
        .map(|line| {
            let mut values = numbers(line).skip(1);
            let (user, system) = (values.next()?, values.next()?);
            Some(GroupTime { cpu: user.checked_add(system)?, user })
        })
        .try_fold(GroupTime::default(), |sum, cpu| {
            let cpu = cpu?;
            Some(GroupTime { cpu: sum.cpu.checked_add(cpu.cpu)?, user: sum.user.checked_add(cpu.user)? })
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_versions_in_nanoseconds() {
        let v2 = b"usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 0\n";
        assert_eq!(parse_cpu_stat(v2), Some(GroupTime { cpu: 5_000_000, user: 3_000_000 }));
        let v1 = b"cpu user system\n0 3000 1000\n1 500 0\n";
        assert_eq!(parse_usage_all(v1), Some(GroupTime { cpu: 4500, user: 3500 }));
        assert_eq!(parse_usage_all(b"cpu user system\n0 3000\n"), None);
    }

    #[test]
    fn one_that_disappears_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = JobCgroup { unified: Some(directory.path().into()), ..JobCgroup::default() };
        assert_eq!(Group::open(&cgroup).read(), None, "no controller");
        std::fs::write(directory.path().join("cpu.stat"), "usage_usec 1\nuser_usec 1\n").unwrap();
        assert!(Group::open(&cgroup).read().is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_cpu_stat(&bytes);
            parse_usage_all(&bytes);
        }
    }
}
