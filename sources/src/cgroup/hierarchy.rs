//! Where a process stands in the cgroup hierarchies, and which directories that is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::job::JobCgroup;

use crate::mountinfo::{self, MountInfo};
use crate::procfile::read_once;
use resource_tracker_scan::lines;

/// The directories of one process's cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchy {
    /// Of the unified hierarchy (v2), where it is mounted.
    pub unified: Option<Directory>,
    /// Of the hierarchies of v1, each with the controllers that it has.
    pub legacy: Vec<(Vec<String>, Directory)>,
}

/// One cgroup of one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The cgroup, below the mount or the mount itself.
    pub path: PathBuf,
}

/// Files of controllers of v2. The root of the hierarchy has none of them.
const CONTROLLER_FILES: [&str; 3] = ["memory.current", "pids.current", "cpu.max"];

/// The one cgroup whose figures are reported. In a hierarchy in which the job is elsewhere it has no directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedCgroup {
    /// Path below the root of the hierarchy.
    pub(super) path: PathBuf,
    /// Its directory in the unified hierarchy.
    pub(super) unified: Option<PathBuf>,
    legacy: Vec<(Vec<String>, PathBuf)>,
}

impl ReportedCgroup {
    /// Its directories whose CPU time and memory are read.
    pub(super) fn directories(&self) -> JobCgroup {
        let legacy = |controller| self.legacy(controller).map(Into::into);
        let cpuacct = if self.unified.is_some() { None } else { legacy("cpuacct") };
        JobCgroup { unified: self.unified.clone(), cpuacct, memory: legacy("memory") }
    }

    /// Its directory in the hierarchy of v1 that has this controller.
    pub(super) fn legacy(&self, controller: &str) -> Option<&Path> {
        let has = |controllers: &[String]| controllers.iter().any(|other| other == controller);
        self.legacy.iter().find(|(controllers, _)| has(controllers)).map(|(_, directory)| directory.as_path())
    }
}

impl Directory {
    /// The cgroup and those above it, as far up as can be seen.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().take_while(|path| path.starts_with(&self.mount))
    }

    /// The nearest cgroup upwards that has a controller of v2; this one if none has.
    fn with_controllers(&self) -> &Path {
        let has = |directory: &&Path| CONTROLLER_FILES.iter().any(|name| directory.join(name).exists());
        self.ancestors().find(has).unwrap_or(&self.path)
    }

    /// Its path below the root of the hierarchy.
    fn name(&self) -> &Path {
        self.name_of(&self.path)
    }

    fn name_of<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.mount).unwrap_or(path)
    }
}

impl Hierarchy {
    /// Of the process with this id, or of the reader itself. Hierarchies that are not mounted, or of which the process's
    /// part is not visible from here, are left out.
    pub fn of(procfs: &Path, pid: Option<i32>) -> Self {
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        Self::of_membership(procfs, &read_once(&procfs.join(process).join("cgroup")).unwrap_or_default())
    }

    /// Of a process whose `/proc/PID/cgroup` says this.
    pub(super) fn of_membership(procfs: &Path, text: &[u8]) -> Self {
        Self::new(text, &read_once(&procfs.join("self/mountinfo")).unwrap_or_default())
    }

    fn new(membership: &[u8], mountinfo: &[u8]) -> Self {
        let mounts: Vec<MountedHierarchy<'_>> = mountinfo::parse(mountinfo).filter_map(MountedHierarchy::new).collect();
        let mut hierarchy = Self::default();
        // 4:memory:/user.slice or 0::/user.slice
        for line in lines(membership) {
            let mut parts = line.splitn(3, |byte| *byte == b':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let path = Path::new(OsStr::from_bytes(path));
            let controllers = String::from_utf8_lossy(controllers);
            let controllers: Vec<String> = controllers.split(',').map(str::to_owned).collect();
            let serves = |mount: &&MountedHierarchy<'_>| match controllers[0].as_str() {
                "" => mount.is_unified,
                controller => !mount.is_unified && mount.has(controller),
            };
            let Some(directory) = mounts.iter().filter(serves).find_map(|mount| mount.directory(path)) else {
                continue;
            };
            match controllers[0].is_empty() {
                true => hierarchy.unified = Some(directory),
                false => hierarchy.legacy.push((controllers, directory)),
            }
        }
        hierarchy
    }

    /// The v1 cgroup that a controller belongs to.
    pub fn legacy(&self, controller: &str) -> Option<&Directory> {
        let has = |controllers: &Vec<String>| controllers.iter().any(|other| other == controller);
        self.legacy.iter().find(|(controllers, _)| has(controllers)).map(|(_, directory)| directory)
    }

    /// The same with the directories that were made for the job below them.
    pub(super) fn with(mut self, job: &JobCgroup) -> Self {
        if let (Some(directory), Some(path)) = (&mut self.unified, &job.unified) {
            directory.path.clone_from(path);
        }
        for (controllers, directory) in &mut self.legacy {
            let path = match () {
                _ if controllers.iter().any(|name| name == "cpuacct") => &job.cpuacct,
                _ if controllers.iter().any(|name| name == "memory") => &job.memory,
                _ => &None,
            };
            if let Some(path) = path {
                directory.path.clone_from(path);
            }
        }
        self
    }

    /// The cgroup whose figures tell most of the job: the one that was made for it, else the one that it is in. On v2 it
    /// is the nearest one upwards that has controllers; in each hierarchy of v1 it is the one of the same path, if the
    /// job is in that, or the one that was made for it.
    pub(super) fn reported(&self, job: &JobCgroup) -> Option<ReportedCgroup> {
        let made = |directory: &Directory| {
            [&job.unified, &job.cpuacct, &job.memory].into_iter().flatten().any(|path| *path == directory.path)
        };
        // In a hybrid setup, v2 has no controllers, and any process can be at its root.
        let tells = |directory: &&Directory| self.legacy.is_empty() || directory.path != directory.mount;
        if let Some(directory) = self.unified.as_ref().filter(tells) {
            let path = if self.legacy.is_empty() { directory.with_controllers() } else { &directory.path };
            let name = directory.name_of(path);
            let legacy = self.legacy_where(|directory| directory.name() == name || made(directory));
            return Some(ReportedCgroup { path: name.into(), unified: Some(path.into()), legacy });
        }
        let own = || self.legacy.iter().map(|(_, directory)| directory).find(|directory| made(directory));
        let memory = self.legacy("memory");
        match memory.filter(|directory| made(directory)).or_else(own) {
            Some(directory) => {
                Some(ReportedCgroup { path: directory.name().into(), unified: None, legacy: self.legacy_where(made) })
            }
            None => {
                let name = memory.or_else(|| self.legacy.first().map(|(_, directory)| directory))?.name();
                let legacy = self.legacy_where(|directory| directory.name() == name);
                Some(ReportedCgroup { path: name.into(), unified: None, legacy })
            }
        }
    }

    fn legacy_where(&self, is_reported: impl Fn(&Directory) -> bool) -> Vec<(Vec<String>, PathBuf)> {
        let reported = self.legacy.iter().filter(|(_, directory)| is_reported(directory));
        reported.map(|(controllers, directory)| (controllers.clone(), directory.path.clone())).collect()
    }
}

/// A hierarchy, and the part of it that is mounted.
struct MountedHierarchy<'a> {
    info: MountInfo<'a>,
    is_unified: bool,
}

impl<'a> MountedHierarchy<'a> {
    fn new(info: MountInfo<'a>) -> Option<Self> {
        let is_unified = match &*info.filesystem {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        Some(Self { info, is_unified })
    }

    /// Whether it is the one of v1 that has this controller: its options have their names among them.
    fn has(&self, controller: &str) -> bool {
        self.info.super_options.split(',').any(|option| option == controller)
    }

    /// Where a cgroup is, unless it is outside of what is mounted.
    fn directory(&self, path: &Path) -> Option<Directory> {
        let MountInfo { root, point, .. } = &self.info;
        let below = path.strip_prefix(root).ok()?;
        if below.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let path = if below.as_os_str().is_empty() { point.to_path_buf() } else { point.join(below) };
        Some(Directory { mount: point.to_path_buf(), path })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn directory(mount: &str, path: &str) -> Directory {
        Directory { mount: mount.into(), path: path.into() }
    }

    fn found(membership: &str, mountinfo: &str) -> Hierarchy {
        Hierarchy::new(membership.as_bytes(), mountinfo.as_bytes())
    }

    #[test]
    fn unified() {
        let mounts = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hierarchy = found("0::/user.slice/user-1000.slice/session-1.scope\n", mounts);
        let path = "/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope";
        assert_eq!(hierarchy, Hierarchy { unified: Some(directory("/sys/fs/cgroup", path)), legacy: Vec::new() });
        assert_eq!(hierarchy.unified.unwrap().ancestors().count(), 4);
    }

    #[test]
    fn hybrid_in_a_container_that_sees_its_own_part_only() {
        let mounts = "40 39 0:30 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                      41 39 0:31 /docker/ab /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n\
                      42 39 0:32 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n";
        let hierarchy =
            found("4:memory:/docker/ab/job\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/x\n0::/../other\n", mounts);
        assert_eq!(hierarchy.unified, None, "it is outside");
        assert_eq!(
            hierarchy.legacy("cpuacct"),
            Some(&directory("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(hierarchy.legacy("memory"), Some(&directory("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/job")));
        let reported = hierarchy.reported(&JobCgroup::default()).unwrap();
        assert_eq!(
            (reported.path.as_path(), reported.legacy("cpuacct")),
            (Path::new("job"), None),
            "it is not in cpuacct's job"
        );
        assert_eq!(reported.legacy("memory"), Some(Path::new("/sys/fs/cgroup/memory/job")));
    }

    #[test]
    fn names_with_escapes_and_names_that_only_begin_alike() {
        let mounts = "29 23 0:26 /docker/a\\040b /sys/fs/my\\011cgroup rw - cgroup2 cgroup2 rw\n";
        let expected = Some(directory("/sys/fs/my\tcgroup", "/sys/fs/my\tcgroup/job"));
        assert_eq!(found("0::/docker/a b/job\n", mounts).unified, expected);
        assert_eq!(found("0::/docker/a bc\n", mounts).unified, None, "it is beside what is mounted");
    }

    #[test]
    fn what_was_made_for_the_job() {
        let mounts = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let job = JobCgroup { unified: Some("/sys/fs/cgroup/a/job".into()), ..JobCgroup::default() };
        let hierarchy = found("0::/a\n", mounts).with(&job);
        assert_eq!(hierarchy.reported(&job).unwrap().path, Path::new("a/job"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(membership in ".{0,80}", mountinfo in "([a-z0-9/ :,-]|\n){0,80}") {
            found(&membership, &mountinfo);
        }
    }
}
