//! Notes for the person who looks after a job.

use resource_tracker_metrics::ProcessAccounting;

use crate::phases::PhaseSummary;
use crate::summary::{FEWEST_SAMPLES, Summary};
use crate::units::{memory, number};

/// Each rule, in the order of the notes.
const RULES: [fn(&Summary) -> Option<String>; 15] = [
    unknown_end,
    failure,
    oom_kills,
    throttled,
    unused_gpu,
    idle_gpu,
    slowed_gpu,
    unused_cores,
    unused_memory,
    swap,
    full_disk,
    stolen,
    few_samples,
    short_phases,
    estimated,
];

/// The notes on a run.
pub(super) fn notes(summary: &Summary) -> Vec<String> {
    RULES.iter().filter_map(|rule| rule(summary)).collect()
}

/// The advice is given all the same: it is the best that is known.
fn unknown_end(summary: &Summary) -> Option<String> {
    (summary.advice.is_some() && summary.outcome.is_none())
        .then(|| "how it ended is not known, nor what it needed after the last sample: it may be more".to_owned())
}

/// Why there is no advice. Where memory ran out, that is said in its place.
fn failure(summary: &Summary) -> Option<String> {
    let explains = summary.tells_enough() && summary.job.is_some() && oom_kills(summary).is_none();
    (explains && summary.has_failed())
        .then(|| "it failed, perhaps before it took most: its figures say little of what to ask for".to_owned())
}

fn oom_kills(summary: &Summary) -> Option<String> {
    let cgroup = summary.cgroup.as_ref()?;
    let kills = cgroup.oom_kills.filter(|kills| *kills > 0)?;
    let of = if kills == 1 { "1 process was".to_owned() } else { format!("{kills} processes were") };
    let limit = cgroup.memory_limit_mib.map(|limit| format!(" (its limit is {})", memory(limit))).unwrap_or_default();
    Some(format!("{of} killed because memory ran out{limit}: ask for more memory"))
}

/// In a twentieth of the periods or more.
fn throttled(summary: &Summary) -> Option<String> {
    let cgroup = summary.cgroup.as_ref().filter(|_| summary.job.is_some())?;
    let (limit, percent) = (cgroup.cpu_limit_cores?, cgroup.cpu_throttled_pct?);
    let of = number(limit);
    (percent >= 5.0).then(|| {
        format!(
            "the limit of {of} cores was reached in {percent:.0} % of the time: ask for more, or start fewer threads"
        )
    })
}

/// The run took a minute or more, the driver says which processes use a GPU, and the job left some or all unused.
fn unused_gpu(summary: &Summary) -> Option<String> {
    let count = summary.gpus.iter().filter(|gpu| gpu.parent_uuid.is_none()).count();
    let job = summary.job.as_ref()?;
    let holds_memory = job.gpu_memory_mib.is_some_and(|memory| memory.peak > 0.0);
    let used = job.peak_gpus_used.filter(|used| *used < count as f64 && summary.wall_secs() >= 60.0)?;
    let gpus = if count == 1 { "a GPU".to_owned() } else { format!("{count} GPUs") };
    match used > 0.0 {
        true => Some(format!("the machine has {gpus}, and the job used no more than {used:.0}")),
        false => (!holds_memory).then(|| format!("the machine has {gpus}, and the job used none")),
    }
}

/// GPUs were used for less than 15 % of the time.
fn idle_gpu(summary: &Summary) -> Option<String> {
    let job = summary.job.as_ref()?;
    let (used, gpus) = (job.peak_gpus_used.filter(|used| *used > 0.0)?, job.gpus?);
    let percent = 100.0 * gpus.mean / used;
    (percent < 15.0).then(|| {
        format!(
            "the GPUs that the job used were idle for {:.0} % of the time: it waits for something else",
            100.0 - percent
        )
    })
}

/// Reasons of NVML for lower clocks that somebody wants.
const MEANT: [&str; 3] = ["gpu_idle", "applications_clocks_setting", "display_clock_setting"];

/// The clocks of a GPU were held back for a tenth of the time or more.
fn slowed_gpu(summary: &Summary) -> Option<String> {
    let whole = summary.gpus.iter().filter(|gpu| gpu.parent_uuid.is_none()).enumerate();
    let reasons = whole.flat_map(|(index, gpu)| gpu.throttled_secs.iter().map(move |(why, secs)| (index, why, secs)));
    let reasons = reasons.filter(|(_, why, _)| !MEANT.contains(&why.as_str()));
    let (index, why, secs) = reasons.max_by(|one, other| one.2.total_cmp(other.2))?;
    let percent = 100.0 * secs / summary.times.sampled_secs;
    (percent >= 10.0)
        .then(|| format!("the clocks of GPU {index} were held back for {percent:.0} % of the time ({why})"))
}

/// The job used less than half of its cores, four or more, for 95 % of the time.
fn unused_cores(summary: &Summary) -> Option<String> {
    let job = summary.job.as_ref()?;
    let (cores, limit) = (job.cores?, job.core_limit?);
    let advice = summary.advice.as_ref()?;
    (limit >= 4.0 && cores.p95 < limit / 2.0).then(|| {
        format!(
            "{:.1} of {} cores were enough for 95 % of the time: {} will do",
            cores.p95,
            number(limit),
            advice.cores
        )
    })
}

/// The job used less than a fifth of what its own limit allows. (The machine's whole memory is not a request.)
fn unused_memory(summary: &Summary) -> Option<String> {
    let limit = summary.cgroup.as_ref()?.memory_limit_mib?;
    let peak = summary.job.as_ref()?.peak_memory_mib?;
    let advice = summary.advice.as_ref()?;
    (peak < limit / 5.0).then(|| {
        format!("{} of {} were enough: {} will do", memory(peak), memory(limit), memory(advice.memory_mib as f64))
    })
}

fn swap(summary: &Summary) -> Option<String> {
    let swap = summary.job.as_ref()?.peak_swap_mib?;
    (swap >= 1.0).then(|| format!("{} of the job's memory was in swap, which is slow", memory(swap)))
}

fn full_disk(summary: &Summary) -> Option<String> {
    let full = summary.machine.fullest_file_system.as_ref().filter(|fullest| fullest.is_full())?;
    let left = memory(full.available_bytes as f64 / 1_048_576.0);
    // `df` rounds up.
    Some(format!("{} was {:.0} % full: {left} were left", full.mount_point, full.full_pct.ceil()))
}

/// Other machines got a twentieth of the CPU time or more.
fn stolen(summary: &Summary) -> Option<String> {
    let steal = summary.machine.steal_cores.filter(|_| summary.tells_enough())?;
    let cpus = f64::from(summary.machine.cpus?);
    (steal >= 0.05 * cpus).then(|| format!("the hypervisor gave {steal:.1} of {cpus:.0} cores to other machines"))
}

fn few_samples(summary: &Summary) -> Option<String> {
    let samples = summary.times.samples;
    let missed = summary.outcome.as_ref().and_then(|outcome| outcome.missed_samples).unwrap_or(0);
    if samples < FEWEST_SAMPLES {
        let say = if samples == 1 { "1 sample says" } else { &format!("{samples} samples say") };
        return Some(format!("{say} little: take a shorter --interval"));
    }
    // A late sample now and then does no harm.
    (missed > 0 && missed.saturating_mul(100) >= samples).then(|| {
        let samples = if missed == 1 { "1 sample was" } else { &format!("{missed} samples were") };
        format!("{samples} not taken in time: the machine was busy, or the --interval is too short")
    })
}

/// A sample in which a phase begins or ends is shared out by time: that is a good part of a phase of less than three.
fn short_phases(summary: &Summary) -> Option<String> {
    let interval = summary.times.sampled_secs / summary.times.samples as f64;
    let is_short = |phase: &&PhaseSummary| phase.secs < 3.0 * interval * phase.times as f64;
    let short = summary.phases.iter().filter(is_short).count();
    let what = match short {
        0 => return None,
        _ if summary.times.samples < FEWEST_SAMPLES => return None,
        1 => "1 phase was shorter than 3 samples and has".to_owned(),
        _ => format!("{short} phases were shorter than 3 samples and have"),
    };
    Some(format!("{what} a share of what was used beside: take a shorter --interval"))
}

fn estimated(summary: &Summary) -> Option<String> {
    let accounting = summary.job.as_ref()?.cpu_accounting?;
    (accounting == ProcessAccounting::Sampled)
        .then(|| "CPU time of children for which nobody waited is missing after they were last seen".to_owned())
}
