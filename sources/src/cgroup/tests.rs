use std::time::Duration;

use std::fs;
use std::path::Path;

use resource_tracker_core::{Moment, Observer};

use super::*;
use crate::job::{JobObserver, TrackedJob};

/// Directories with files, by their paths.
pub(super) fn tree(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

pub(super) fn hierarchy(root: &Path, unified: Option<&str>, legacy: &[(&str, &str)]) -> Hierarchy {
    let directory = |mount: &str, path: &str| Directory { mount: root.join(mount), path: root.join(mount).join(path) };
    Hierarchy {
        unified: unified.map(|path| directory("unified", path)),
        legacy: legacy
            .iter()
            .map(|(controller, path)| (vec![(*controller).to_owned()], directory(controller, path)))
            .collect(),
    }
}

/// A job whose shell goes to a cgroup that another one made, which limits it.
#[test]
fn a_job_that_goes_elsewhere_is_followed() {
    let (directory, procfs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, procfs) = (directory.path(), procfs.path());
    let stat = "30 (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 3 0 1 1 0 0 0 0 0 0 0 0 0 0 17";
    let mounts = format!("29 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.display());
    tree(
        procfs,
        &[("self/cgroup", "0::/a\n"), ("self/mountinfo", &mounts), ("30/stat", stat), ("30/cgroup", "0::/a/job\n")],
    );
    tree(
        root,
        &[
            ("a/memory.current", "7\n"),
            ("a/cpu.stat", "usage_usec 5\n"),
            ("a/job/cpu.stat", "usage_usec 5\n"),
            ("t/memory.current", "3\n"),
            ("t/memory.max", "104857600\n"),
            ("t/cpu.stat", "usage_usec 9000000\n"),
        ],
    );
    let mut job = TrackedJob::spawned(30);
    job.cgroup.unified = Some(root.join("a/job"));
    let mut observer = JobObserver::new(job, Host::new(procfs, procfs));
    let mut source = CgroupConfig::default().build(&Host::new(procfs, procfs)).unwrap().unwrap();
    let start = Instant::now();
    let mut told = |number: u32| {
        let tenth = Duration::from_millis(100);
        let moment = Moment::new(number.into(), start + tenth * number, tenth, tenth);
        observer.observe(&moment).unwrap();
        let mut out = Sections::default();
        source.collect(&Tick::of(&moment, observer.seen()), &mut out).unwrap();
        let metrics = out.get::<CgroupMetrics>().unwrap();
        (metrics.path.clone(), metrics.memory_limit_mib, metrics.cpu_used_cores)
    };
    let at_home = ("/a".to_owned(), None, Some(0.0));
    assert_eq!([told(0), told(1)], [at_home.clone(), at_home.clone()], "it is where it was put");
    tree(procfs, &[("30/cgroup", "0::/t\n")]);
    assert_eq!(told(2), at_home, "it was looked at just now");
    let limit = Some(100.0);
    assert_eq!(told(3), ("/t".into(), limit, None), "it was in two");
    tree(root, &[("t/cpu.stat", "usage_usec 9100000\n")]);
    assert_eq!(told(4), ("/t".into(), limit, Some(1.0)));
    assert_eq!((5..200).map(&mut told).last(), Some(("/t".into(), limit, Some(0.0))));
    // A process that is ending is in no cgroup.
    std::fs::remove_file(procfs.join("30/cgroup")).unwrap();
    assert_eq!((200..300).map(&mut told).last(), Some(("/t".into(), limit, Some(0.0))));
}

/// The figures of a cgroup with a limit, which no job is in.
struct Limited {
    root: tempfile::TempDir,
    source: Box<dyn Source>,
    start: Instant,
    number: u32,
}

impl Limited {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mounts = format!("29 23 0:26 / {}/cgroup rw - cgroup2 cgroup2 rw\n", root.path().display());
        tree(root.path(), &[("self/cgroup", "0::/a\n"), ("self/mountinfo", &mounts)]);
        tree(root.path(), &[("cgroup/a/memory.max", "104857600\n"), ("cgroup/a/cpu.stat", "usage_usec 5\n")]);
        let source = CgroupConfig::default().build(&Host::new(root.path(), root.path())).unwrap().unwrap();
        Self { root, source, start: Instant::now(), number: 0 }
    }

    fn tells(&mut self, files: &[(&str, &str)]) -> CgroupMetrics {
        for (name, text) in files {
            tree(&self.root.path().join("cgroup/a"), &[(name, text)]);
        }
        let second = Duration::from_secs(1);
        let tick = Tick::new(self.number.into(), self.start + second * self.number, second, second);
        self.number += 1;
        let mut out = Sections::default();
        self.source.collect(&tick, &mut out).unwrap();
        out.get::<CgroupMetrics>().cloned().unwrap()
    }
}

#[test]
fn bytes_of_its_disks_without_those_of_a_reading_with_garbage() {
    let mut limited = Limited::new();
    let mut told = |text| {
        let metrics = limited.tells(&[("io.stat", text)]);
        (metrics.io_read_bytes, metrics.io_write_bytes)
    };
    assert_eq!(told("8:0 rbytes=100 wbytes=10 rios=1 wios=1\n"), (Some(0), Some(0)));
    assert_eq!(told("8:0 rbytes=107 wbytes=10\n8:16 rbytes=0 wbytes=5\n"), (Some(7), Some(5)));
    assert_eq!(told("8:0 rbytes=junk wbytes=10\n8:16 rbytes=0 wbytes=5\n"), (None, None));
    assert_eq!(told("8:0 rbytes=109 wbytes=10\n8:16 rbytes=0 wbytes=8\n"), (Some(2), Some(3)), "none is lost");
    assert_eq!(told("8:16 rbytes=0 wbytes=9\n"), (None, None), "a disk is gone");
}

/// As `kubectl top` has it.
#[test]
fn page_cache_that_was_not_used_lately_is_no_working_set() {
    let mut limited = Limited::new();
    let mut told = |used, stat| {
        let metrics = limited.tells(&[("memory.current", used), ("memory.stat", stat)]);
        (metrics.memory_used_mib, metrics.memory_working_set_mib)
    };
    let stat = "anon 1048576\nfile 7340032\nshmem 0\ninactive_file 6291456\nactive_file 1048576\n";
    assert_eq!(told("8388608\n", stat), (Some(8.0), Some(2.0)));
    assert_eq!(told("1048576\n", stat), (Some(1.0), Some(0.0)), "they are not of one moment");
    assert_eq!(told("8388608\n", "anon 1\nfile 1\nshmem 0\n"), (Some(8.0), None));
}

#[test]
fn cpu_time_of_a_cgroup_that_is_made_anew_is_not_told() {
    let mut limited = Limited::new();
    let mut told = |micros: u64| limited.tells(&[("cpu.stat", &format!("usage_usec {micros}\n"))]).cpu_used_cores;
    assert_eq!([told(1_000_000), told(1_500_000)], [Some(0.0), Some(0.5)]);
    assert_eq!([told(7), told(250_007)], [None, Some(0.25)]);
    assert_eq!(limited.tells(&[("cpu.stat", "junk\n")]).cpu_used_cores, None);
    assert_eq!(limited.tells(&[("cpu.stat", "usage_usec 1250007\n")]).cpu_used_cores, None, "since when?");
}

fn read(hierarchy: Hierarchy, job: &JobCgroup) -> (String, Reading) {
    let reported = hierarchy.with(job).reported(job).unwrap();
    let group =
        super::read(&mut Some(Group::open(&reported.directories())), &GroupReading::default(), Instant::now(), false);
    (reported.path.display().to_string(), Files::open(&reported, Path::new("/nowhere")).read(&group))
}

/// A hybrid machine, where the job got a cgroup of v2 and stayed where the shell is in those of v1.
#[test]
fn figures_of_the_shell_are_not_those_of_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    tree(
        root,
        &[
            ("unified/job/cpu.stat", "usage_usec 5\n"),
            ("memory/shell/memory.usage_in_bytes", "7\n"),
            ("memory/shell/memory.max_usage_in_bytes", "2036334592\n"),
            ("pids/pids.current", "100\n"),
            ("cpu/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 1\n"),
        ],
    );
    let membership = hierarchy(root, Some(""), &[("memory", "shell"), ("pids", ""), ("cpu", "")]);
    let job = JobCgroup { unified: Some(root.join("unified/job")), ..JobCgroup::default() };
    let own = Reading { cpu: Some(5000), ..Reading::default() };
    assert_eq!(read(membership.clone(), &job), ("job".into(), own));
    // One of v1 for memory, which nothing but the job is in.
    tree(root, &[("memory/shell/job/memory.usage_in_bytes", "3\n")]);
    let job = JobCgroup { memory: Some(root.join("memory/shell/job")), ..job };
    assert_eq!(read(membership.clone(), &job), ("job".into(), Reading { memory: Some(3), ..own }));
    // Without one of its own, it is the shell's by name as well.
    let shells = Reading { memory: Some(7), memory_peak: Some(2_036_334_592), ..Reading::default() };
    assert_eq!(read(membership, &JobCgroup::default()), ("shell".into(), shells));
}

#[test]
fn in_v1_the_job_s_own_are_used_whatever_lies_above_them() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    tree(
        root,
        &[
            ("memory/shell/job/memory.usage_in_bytes", "1\n"),
            ("cpuacct/job/cpuacct.usage", "2\n"),
            ("cpuacct/job/cpuacct.stat", "user 0\nsystem 0\n"),
            ("pids/pids.current", "100\n"),
        ],
    );
    let membership = hierarchy(root, None, &[("pids", ""), ("cpuacct", ""), ("memory", "shell")]);
    let [cpuacct, memory] = ["cpuacct/job", "memory/shell/job"].map(|path| Some(root.join(path)));
    let job = JobCgroup { unified: None, cpuacct: cpuacct.clone(), memory };
    let own = Reading { cpu: Some(2), memory: Some(1), ..Reading::default() };
    assert_eq!(read(membership.clone(), &job), ("shell/job".into(), own));
    // One for its CPU time only: the memory of the shell is left out.
    let job = JobCgroup { cpuacct, ..JobCgroup::default() };
    let own = Reading { cpu: Some(2), ..Reading::default() };
    assert_eq!(read(membership, &job), ("job".into(), own));
}

/// The new cgroup of v2 has the controllers only that the one above gives to it.
#[test]
fn in_v2_all_figures_are_of_the_nearest_cgroup_with_controllers() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    tree(
        root,
        &[
            ("unified/cpu.stat", "usage_usec 900\n"),
            ("unified/scope/cpu.stat", "usage_usec 50\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1\n"),
            ("unified/scope/memory.current", "7\n"),
            ("unified/scope/pids.current", "3\n"),
            ("unified/scope/job/cpu.stat", "usage_usec 5\n"),
        ],
    );
    let job = JobCgroup { unified: Some(root.join("unified/scope/job")), ..JobCgroup::default() };
    let (path, figures) = read(hierarchy(root, Some("scope"), &[]), &job);
    assert_eq!(path, "scope");
    assert_eq!((figures.cpu, figures.memory, figures.pids), (Some(50_000), Some(7), Some(3)));
    assert_eq!(figures.throttling.map(|throttling| throttling.throttled), Some(2));
    // With controllers of its own it speaks for itself; without any above it as well.
    tree(root, &[("unified/scope/job/memory.current", "1\n")]);
    let (path, figures) = read(hierarchy(root, Some("scope"), &[]), &job);
    assert_eq!((path.as_str(), figures.cpu, figures.memory, figures.pids), ("scope/job", Some(5000), Some(1), None));
    let (path, _) = read(hierarchy(root, Some(""), &[]), &JobCgroup::default());
    assert_eq!(path, "");
}
