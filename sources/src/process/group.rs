//! CPU time and peak memory of the cgroup that was made for the job.

use std::path::Path;

use super::totals::GroupTime;
use crate::job::JobCgroup;
use crate::procfile::ProcFile;
use crate::scan::{number, value_of, words};

/// The files of it that are open.
#[derive(Default)]
pub(super) struct Group {
    time: Option<TimeFile>,
}

enum TimeFile {
    /// `cpu.stat` of v2, in microseconds. It is there without any controller.
    Unified(ProcFile),
    /// `cpuacct.usage` of v1, in nanoseconds, and `cpuacct.stat`, whose clock ticks say how to divide it.
    Cpuacct { usage: ProcFile, stat: ProcFile },
}

impl Group {
    pub(super) fn open(cgroup: &JobCgroup) -> Self {
        let open = |directory: &Path, name: &str| ProcFile::open_if_present(directory.join(name));
        let unified = cgroup.unified.as_deref().and_then(|directory| open(directory, "cpu.stat"));
        let cpuacct = || {
            let directory = cgroup.cpuacct.as_deref()?;
            Some(TimeFile::Cpuacct { usage: open(directory, "cpuacct.usage")?, stat: open(directory, "cpuacct.stat")? })
        };
        Self { time: unified.map(TimeFile::Unified).or_else(cpuacct) }
    }

    /// CPU time of all that ever ran in it. When it has been removed, that is said once.
    pub(super) fn read(&mut self) -> Option<GroupTime> {
        let read = match self.time.as_mut()? {
            TimeFile::Unified(file) => file.read().map(parse_cpu_stat),
            TimeFile::Cpuacct { usage, stat } => usage.read().and_then(|usage| Ok(parse_cpuacct(usage, stat.read()?))),
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

fn parse_cpuacct(usage: &[u8], stat: &[u8]) -> Option<GroupTime> {
    let cpu = number(words(usage).next()?)?;
    let (user, system) = (value_of(stat, "user")?, value_of(stat, "system")?);
    let ticks = u128::from(user) + u128::from(system);
    let user = (u128::from(cpu) * u128::from(user)).checked_div(ticks).unwrap_or(u128::from(cpu));
    Some(GroupTime { cpu, user: u64::try_from(user).ok()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_versions_in_nanoseconds() {
        let v2 = b"usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 0\n";
        assert_eq!(parse_cpu_stat(v2), Some(GroupTime { cpu: 5_000_000, user: 3_000_000 }));
        let v1 = parse_cpuacct(b"4500\n", b"user 30\nsystem 10\n");
        assert_eq!(v1, Some(GroupTime { cpu: 4500, user: 3375 }));
        assert_eq!(parse_cpuacct(b"4500\n", b"user 0\nsystem 0\n"), Some(GroupTime { cpu: 4500, user: 4500 }));
        assert_eq!(parse_cpuacct(b"\n", b"user 1\nsystem 1\n"), None);
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
            parse_cpuacct(&bytes, &bytes);
        }
    }
}
