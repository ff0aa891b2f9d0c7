//! What held a job up.
//!
//! The summary names a cause only if the figures show it. The first test that applies counts: a shortage explains what
//! follows from it.

use crate::bound::{Bound, Resource};
use crate::job::JobSummary;
use crate::summary::Summary;
use crate::units::number;

/// A test of a run that took so many seconds.
type Test = fn(&Summary, f64) -> Option<String>;

/// What can hold a job up, and the test for it, which gives a text with the figures. The order matters.
const TESTS: [(Resource, Test); 8] = [
    (Resource::CpuLimit, cpu_limit),
    (Resource::Memory, memory),
    (Resource::Gpu, gpu),
    (Resource::Cpu, cpu),
    (Resource::Contention, contention),
    (Resource::Disk, disk),
    (Resource::OneCore, one_core),
    (Resource::Waiting, waiting),
];

/// `None` when the figures do not tell.
pub(super) fn bound(summary: &Summary) -> Option<Bound> {
    if !summary.tells_enough() {
        return None;
    }
    let wall = summary.wall_secs();
    TESTS.iter().find_map(|(by, test)| Some(Bound { by: *by, because: test(summary, wall)? }))
}

/// It ran out of its quota in a quarter of the periods or more. On a machine with v1 they may not be known; then it used nearly
/// all of the quota for half of the time or more.
fn cpu_limit(summary: &Summary, _: f64) -> Option<String> {
    let (job, cgroup) = (summary.job.as_ref()?, summary.cgroup.as_ref()?);
    let limit = cgroup.cpu_limit_cores?;
    let share = match cgroup.cpu_throttled_pct {
        Some(percent) => (percent >= 25.0).then_some(percent / 100.0)?,
        None => share_at_limit(summary, job).filter(|share| job.core_limit == Some(limit) && *share >= 0.5)?,
    };
    Some(format!("the limit of {} cores was reached in {:.0} % of the time", number(limit), 100.0 * share))
}

fn share_at_limit(summary: &Summary, job: &JobSummary) -> Option<f64> {
    Some(job.secs_at_core_limit? / summary.times.sampled_secs)
}

/// Processes were killed for lack of memory, or some of the job's waited for memory a tenth of the time or more.
fn memory(summary: &Summary, wall: f64) -> Option<String> {
    let cgroup = summary.cgroup.as_ref().filter(|_| summary.job.is_some())?;
    if let Some(kills) = cgroup.oom_kills.filter(|kills| *kills > 0) {
        let processes = if kills == 1 { "process was" } else { "processes were" };
        return Some(format!("{kills} {processes} killed because memory ran out"));
    }
    let waited = cgroup.memory_pressure_secs.filter(|waited| cgroup.is_own && *waited >= 0.1 * wall)?;
    Some(format!("it waited {waited:.1} s for memory to be freed or read back"))
}

/// Its GPUs computed for four fifths of the time or more.
fn gpu(summary: &Summary, _: f64) -> Option<String> {
    let job = summary.job.as_ref()?;
    let (gpus, used) = (job.gpus?, job.peak_gpus_used.filter(|used| *used > 0.0)?);
    let of = if used == 1.0 { "its GPU".to_owned() } else { format!("its {used:.0} GPUs") };
    (gpus.mean >= 0.8 * used).then(|| format!("{of} computed for {:.0} % of the time", 100.0 * gpus.mean / used))
}

/// Nearly all cores were in use for half of the time or more.
fn cpu(summary: &Summary, _: f64) -> Option<String> {
    let job = summary.job.as_ref()?;
    let (cores, limit) = (job.cores?, job.core_limit?);
    let share = share_at_limit(summary, job)?;
    let percent = 100.0 * share;
    (share >= 0.5).then(|| match limit == 1.0 {
        true => format!("its one core was in use for {percent:.0} % of the time"),
        false => format!(
            "its {} cores were nearly all in use for {percent:.0} % of the time, {:.1} on average",
            number(limit),
            cores.mean
        ),
    })
}

/// Some of its threads waited for a CPU for a quarter of the time or more. That others had the CPU is known only if the
/// job never had more threads than cores: its own threads wait for each other as well.
fn contention(summary: &Summary, wall: f64) -> Option<String> {
    let waited = summary.cgroup.as_ref().filter(|cgroup| cgroup.is_own)?.cpu_pressure_secs?;
    let job = summary.job.as_ref();
    let has_room = job.and_then(|job| Some(job.peak_threads? <= job.core_limit?)).unwrap_or(false);
    (waited >= 0.25 * wall).then(|| match has_room {
        true => format!("it waited {waited:.1} s for a CPU that others had"),
        false => format!("its threads waited {waited:.1} s for a CPU"),
    })
}

/// Some of its threads waited for storage for a quarter of the time or more.
fn disk(summary: &Summary, wall: f64) -> Option<String> {
    let waited = summary.cgroup.as_ref().filter(|cgroup| cgroup.is_own)?.io_pressure_secs?;
    (waited >= 0.25 * wall).then(|| format!("it waited {waited:.1} s for storage"))
}

/// The job used one core of several, nearly all of the time. (A thread that waits for a GPU may be busy with that.)
fn one_core(summary: &Summary, wall: f64) -> Option<String> {
    let job = summary.job.as_ref().filter(|_| uses_no_gpu(summary))?;
    let (cores, limit) = (job.cores?, job.core_limit?);
    let own = summary.cgroup.as_ref().filter(|cgroup| cgroup.is_own);
    let waited = own.and_then(|cgroup| Some(cgroup.cpu_pressure_secs? + cgroup.io_pressure_secs?)).unwrap_or(0.0);
    let is_one = limit >= 2.0 && cores.mean >= 0.9 && cores.p95 <= 1.1 && waited < 0.1 * wall;
    is_one.then(|| format!("it used {:.2} of {} cores, and hardly ever more than one", cores.mean, number(limit)))
}

/// A tenth of a core and less, no GPU, on a machine that had cores to give.
fn waiting(summary: &Summary, _: f64) -> Option<String> {
    let job = summary.job.as_ref().filter(|_| uses_no_gpu(summary))?;
    let (cores, all, cpus) = (job.cores?, summary.machine.cores?, summary.machine.cpus?);
    let is_waiting = cores.mean < 0.1 && all.mean < 0.9 * f64::from(cpus);
    is_waiting.then(|| format!("it used {:.1} % of one core", 100.0 * cores.mean))
}

/// There is no GPU, or the driver says that the job used none.
fn uses_no_gpu(summary: &Summary) -> bool {
    let used = summary.job.as_ref().and_then(|job| job.gpus);
    summary.gpus.is_empty() || used.is_some_and(|gpus| gpus.mean < 0.05)
}
