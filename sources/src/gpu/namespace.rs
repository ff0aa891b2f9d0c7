//! Whether the processes that a driver names are those that can be seen here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resource_tracker_metrics::GpuProcess;

use crate::pid_namespace::is_initial_namespace;

/// For how long at most a process that has ended is still listed.
const LINGERS: Duration = Duration::from_secs(1);

/// The pid namespace that the tracker is in. The driver may speak of processes in another one, whose numbers say
/// nothing here.
pub(super) struct Namespace {
    source: &'static str,
    procfs: PathBuf,
    is_initial: bool,
    /// Processes that are listed and not here, and since when.
    missing: HashMap<u32, Instant>,
    said: bool,
}

impl Namespace {
    pub(super) fn new(source: &'static str, procfs: &Path) -> Self {
        // Drivers count processes in the first namespace.
        let is_initial = is_initial_namespace(procfs).unwrap_or(true);
        Self { source, procfs: procfs.to_owned(), is_initial, missing: HashMap::new(), said: false }
    }

    /// Whether it is the first one of the machine.
    pub(super) fn is_initial(&self) -> bool {
        self.is_initial
    }

    /// Those of `listed` that are in `tree`; `None` when that cannot be known. `utilization` is the whole device's,
    /// `share` what one process uses.
    pub(super) fn those_in(
        &mut self,
        tree: Option<&[i32]>,
        listed: Option<Vec<(u32, Option<u64>)>>,
        utilization: Option<f64>,
        share: impl Fn(u32) -> Option<f64>,
    ) -> Option<Vec<GpuProcess>> {
        let (tree, listed) = (tree?, listed?);
        if !self.is_initial && self.is_foreign(&listed, utilization, Instant::now()) {
            return None;
        }
        let in_tree = |(pid, vram_bytes): (u32, Option<u64>)| {
            let own = i32::try_from(pid).ok().filter(|pid| tree.contains(pid))?;
            Some(GpuProcess { pid: own, vram_bytes, utilization_pct: share(pid), cu_occupancy_pct: None })
        };
        Some(listed.into_iter().filter_map(in_tree).collect())
    }

    fn is_foreign(&mut self, listed: &[(u32, Option<u64>)], utilization: Option<f64>, now: Instant) -> bool {
        let is_here = |pid: u32| self.procfs.join(pid.to_string()).exists();
        let missing: Vec<u32> = listed.iter().map(|(pid, _)| *pid).filter(|pid| !is_here(*pid)).collect();
        let hidden = listed.is_empty() && utilization.is_some_and(|pct| pct > 0.0);
        let since = missing.iter().map(|pid| (*pid, *self.missing.entry(*pid).or_insert(now)));
        let stranger = since.into_iter().find(|(_, since)| now.saturating_duration_since(*since) > LINGERS);
        let why = match stranger {
            Some((pid, _)) => Some(format!("the driver names process {pid}, which is not in this pid namespace")),
            None if hidden => Some("a GPU is busy and the driver names no process of this pid namespace".to_owned()),
            None => None,
        };
        if let (false, Some(why)) = (self.said, why) {
            self.said = true;
            log::warn!(
                "source {}: {why}, so what the job has of the GPUs is not known; share the namespace of the host \
                 (such as docker run --pid=host)",
                self.source
            );
        }
        !missing.is_empty() || hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(is_initial: bool) -> Namespace {
        Namespace { source: "test", procfs: "/proc".into(), is_initial, missing: HashMap::new(), said: false }
    }

    #[test]
    fn only_those_of_the_tree() {
        let listed = Some(vec![(5, Some(100)), (6, None), (u32::MAX, Some(1))]);
        let found = namespace(true).those_in(Some(&[6, 5, 9]), listed.clone(), None, |pid| Some(f64::from(pid)));
        let expected = [(5, Some(100), Some(5.0)), (6, None, Some(6.0))].map(|(pid, vram_bytes, utilization_pct)| {
            GpuProcess { pid, vram_bytes, utilization_pct, cu_occupancy_pct: None }
        });
        assert_eq!(found.as_deref(), Some(&expected[..]));
        assert_eq!(namespace(true).those_in(None, listed, None, |_| None), None);
        assert_eq!(namespace(true).those_in(Some(&[1]), None, None, |_| None), None);
    }

    /// Inside a container, a pid that does not exist there is one of the host's, or of a process that has just ended.
    #[test]
    fn pids_of_another_namespace_are_not_matched() {
        let (own, gone) = (std::process::id(), u32::MAX - 1);
        let tree = [own as i32];
        let listed = |pids: &[u32]| Some(pids.iter().map(|pid| (*pid, Some(1))).collect::<Vec<_>>());
        let mut inside = namespace(false);
        assert!(inside.those_in(Some(&tree), listed(&[own]), None, |_| None).is_some());
        assert!(inside.those_in(Some(&tree), listed(&[own, gone]), None, |_| None).is_none());
        assert!(!inside.said, "it may have ended");
        assert!(inside.is_foreign(&[(gone, None)], None, Instant::now() + 2 * LINGERS) && inside.said);
        assert!(inside.those_in(Some(&tree), listed(&[]), Some(50.0), |_| None).is_none());
        assert!(inside.those_in(Some(&tree), listed(&[]), Some(0.0), |_| None).is_some());
        let mut initial = namespace(true);
        assert!(initial.those_in(Some(&tree), listed(&[gone]), Some(50.0), |_| None).is_some());
    }
}
