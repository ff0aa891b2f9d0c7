//! CPUs that the job may run on.

use std::path::PathBuf;

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::cpu_list;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::backoff::{BackoffSchedule, RARE_CHECK_INTERVAL};
use crate::job::JobDetails;
use crate::pid_namespace::shows_own_pid_namespace;
use crate::procfile::attribute;
use resource_tracker_scan::number;

/// CPUs that the job may run on.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct AffinityConfig {}

from_json!(AffinityConfig);

#[typetag::deserialize(name = "affinity")]
impl SourceConfig for AffinityConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        // Processes are asked for by their ids.
        if !shows_own_pid_namespace(&host.procfs) {
            return Ok(None);
        }
        let present = attribute(&host.sysfs.join("devices/system/cpu/present"));
        Ok(Some(Box::new(AffinitySource {
            procfs: host.procfs.clone(),
            present: present.and_then(|list| cpu_list::count(&list)),
            looks: BackoffSchedule::until(RARE_CHECK_INTERVAL),
            allowed: CpuSet::new(),
            cpus: None,
        })))
    }
}

register_source!(
    SourceEntry::new::<AffinityConfig>("affinity", "CPUs that the job may run on").on_by_default().order(21)
);

/// CPUs that the job may run on, for who compares them with other limits.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct Affinity {
    /// As the kernel writes a list of them.
    pub(crate) cpus: Option<String>,
}

impl Section for Affinity {
    const NAME: &'static str = "affinity";
    const IS_INTERNAL: bool = true;
}

struct AffinitySource {
    procfs: PathBuf,
    /// How many CPUs the machine has.
    present: Option<u64>,
    looks: BackoffSchedule,
    allowed: CpuSet,
    /// The same as a list.
    cpus: Option<String>,
}

impl Source for AffinitySource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let Some(job) = &tick.job else { return Ok(()) };
        if self.looks.is_due(tick.at) {
            self.look(job.root, JobDetails::of(job)?);
        }
        out.section::<Affinity>().cpus.clone_from(&self.cpus);
        Ok(())
    }
}

impl AffinitySource {
    /// A thread can be bound to one CPU while others of its process may use more.
    fn look(&mut self, root: i32, job: &JobDetails) {
        let has_all = |allowed: &CpuSet| Some(u64::from(allowed.count())) == self.present;
        let of_root = affinity(root);
        let mut allowed = of_root.unwrap_or_default();
        for member in job.alive().map(|member| member.stat.pid).filter(|pid| *pid != root) {
            if has_all(&allowed) {
                break;
            }
            add(&mut allowed, member);
        }
        if of_root.is_some() && !has_all(&allowed) {
            let threads = std::fs::read_dir(self.procfs.join(format!("{root}/task"))).into_iter().flatten().flatten();
            let ids = threads.filter_map(|thread| i32::try_from(number(thread.file_name().as_encoded_bytes())?).ok());
            ids.for_each(|thread| add(&mut allowed, thread));
        }
        if allowed.count() > 0 && allowed != self.allowed {
            self.allowed = allowed;
            self.cpus =
                Some(cpu_list::text((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u64)));
        }
    }
}

/// Those of a thread; `None` when it has ended, or the machine has more CPUs than the set.
fn affinity(thread: i32) -> Option<CpuSet> {
    sched_getaffinity(Some(Pid::from_raw(thread)?)).ok()
}

fn add(allowed: &mut CpuSet, thread: i32) {
    let Some(own) = affinity(thread).filter(|own| own != allowed) else { return };
    (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).for_each(|cpu| allowed.set(cpu));
}
