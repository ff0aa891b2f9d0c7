//! A summary as rows of words, for everything that shows one.

use nix::sys::signal::Signal;
use resource_tracker_metrics::PeakSource;
use serde::Serialize;

use crate::bound::Resource;
use crate::gpu::GpuSummary;
use crate::job::JobSummary;
use crate::machine::MachineSummary;
use crate::phases::PhaseSummary;
use crate::programs::{ProgramSummary, largest};
use crate::summary::Summary;
use crate::units::{bytes, memory, number, time};

/// So many GPUs have a row each; more share one.
const GPU_ROWS: usize = 4;
/// So many programs are named.
const PROGRAMS: usize = 3;
/// So many phases have a row each; the others are in the JSON.
const PHASE_ROWS: usize = 4;
const LONGEST_TITLE: usize = 120;
/// Added to a figure that is the machine's and not the job's.
const WHOLE_MACHINE: &str = " (whole machine)";

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// What it is about.
    pub label: String,
    /// What was used of what there was, from 0 to 1.
    pub share: Option<f64>,
    /// Its figures.
    pub text: String,
}

/// What is shown of a summary, all of it printable.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rows {
    /// What was run.
    pub title: String,
    /// How it ended, and after which time.
    pub ending: String,
    /// Whether the command is known not to have exited with 0.
    pub has_failed: bool,
    /// The table.
    pub rows: Vec<Row>,
    /// Sentences, each with what it is about, the most important first.
    pub remarks: Vec<(&'static str, String)>,
}

impl Rows {
    /// Of a summary.
    pub fn of(summary: &Summary) -> Self {
        let mut rows = Vec::new();
        let machine = &summary.machine;
        match &summary.job {
            Some(job) => of_job(job, &mut rows),
            None => of_machine(machine, whose(summary), &mut rows),
        }
        let network = summary.job.as_ref().and_then(|job| Some((job.network_rx_bytes?, job.network_tx_bytes?, "")));
        let of_all = || Some((machine.network_rx_bytes?, machine.network_tx_bytes?, WHOLE_MACHINE));
        if let Some((received, sent, whose)) = network.or_else(of_all) {
            let text = format!("{} received, {} sent{whose}", bytes(received as f64), bytes(sent as f64));
            rows.push(Row { label: "Network".into(), share: None, text });
        }
        of_gpus(&summary.gpus, &mut rows);
        rows.extend(waits(summary));
        rows.extend(busiest(&summary.programs));
        of_phases(&summary.phases, &mut rows);
        rows.iter_mut().for_each(|row| row.text = printable(&row.text));
        Self {
            title: printable(&title(summary)),
            ending: ending(summary),
            has_failed: summary.has_failed(),
            rows,
            remarks: remarks(summary).into_iter().map(|(label, text)| (label, printable(&text))).collect(),
        }
    }
}

/// An untrusted text, on one line: control characters become blanks, and characters that change the reading direction
/// are left out.
pub fn printable(text: &str) -> String {
    text.chars().filter(|char| !turns(*char)).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Whether it changes the reading direction of the characters around it.
fn turns(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a terminal acts on it, or it changes the reading direction.
pub(crate) fn is_unprintable(char: char) -> bool {
    char.is_control() || turns(char)
}

/// The command, or what else the summary is about.
fn title(summary: &Summary) -> String {
    match (summary.command(), summary.run.as_ref().and_then(|run| run.pid)) {
        (Some(words), _) => shortened(&words.join(" ")),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) if summary.job.is_some() => "the process that was tracked".into(),
        (None, None) => "the machine".into(),
    }
}

/// A command line can have thousands of names of files.
fn shortened(command: &str) -> String {
    match command.char_indices().nth(LONGEST_TITLE) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None => command.to_owned(),
    }
}

fn ending(summary: &Summary) -> String {
    let is_known = summary.outcome.is_none() || summary.known_wall_secs().is_some();
    let wall = format!("{}{}", if is_known { "" } else { "at least " }, time(summary.wall_secs()));
    match &summary.outcome {
        Some(outcome) => match (outcome.exit_code, outcome.signal) {
            (Some(code), _) => format!("exited with {code} after {wall}"),
            (None, Some(signal)) => format!("was ended by {} after {wall}", signal_name(signal)),
            (None, None) => format!("ended after {wall}"),
        },
        None if summary.command().is_some() => format!("was sampled for {wall}; how it ended is not recorded"),
        None => format!("was sampled for {wall}"),
    }
}

/// A signal as `kill -l` has it, with its `SIG`.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

fn of_job(job: &JobSummary, rows: &mut Vec<Row>) {
    if let Some(cores) = job.cores {
        let share = job.core_limit.and_then(|limit| share(cores.mean, limit));
        let of = job.core_limit.map(|limit| format!(" of {}", number(limit))).unwrap_or_default();
        let noun = if job.core_limit == Some(1.0) { "core" } else { "cores" };
        let text = format!("{:.2}{of} {noun}{}, peak {:.2}", cores.mean, percent(share), cores.peak);
        rows.push(Row { label: "CPU".into(), share, text });
    }
    if let (Some(whole), Some(user), Some(system)) = (job.cpu_secs(), job.user_secs, job.system_secs) {
        let text = format!("{} (user {}, system {})", time(whole), time(user), time(system));
        rows.push(Row { label: "CPU time".into(), share: None, text });
    }
    if let Some(peak) = job.peak_memory_mib {
        let share = job.memory_limit_mib.and_then(|limit| share(peak, limit));
        let of = job.memory_limit_mib.map(|limit| format!(" of {}", memory(limit))).unwrap_or_default();
        // What is resident can be more than was needed: files that are mapped. (80 columns have no room for the share then.)
        let more = match job.memory_mib {
            Some(held) if held.peak > peak => format!(", {} with files", memory(held.peak)),
            Some(held) => format!("{}, resident {}", percent(share), memory(held.peak)),
            None => percent(share),
        };
        // Processes that peaked together between two samples are not seen.
        let peak_is = if job.peak_source == Some(PeakSource::Sampled) { "at least" } else { "peak" };
        rows.push(Row { label: "Memory".into(), share, text: format!("{peak_is} {}{of}{more}", memory(peak)) });
    }
    if let (Some(read), Some(written)) = (job.disk_read_bytes, job.disk_write_bytes) {
        // A file that was deleted before it was written out never went to a disk.
        let deleted = job.cancelled_write_bytes.filter(|deleted| *deleted > 0 && *deleted >= written / 100);
        let deleted = deleted.map(|deleted| format!(" ({} deleted before)", bytes(deleted as f64)));
        rows.push(disk(read, written, deleted.as_deref().unwrap_or_default()));
    }
    if let (Some(processes), Some(threads)) = (job.peak_processes, job.peak_threads) {
        let plural = if threads == 1.0 { "" } else { "s" };
        let text = format!("{processes:.0} at most, {threads:.0} thread{plural}");
        rows.push(Row { label: "Processes".into(), share: None, text });
    }
}

/// Added to figures of the machine that a reader might take for the command's.
fn whose(summary: &Summary) -> &'static str {
    if summary.command().is_some() { WHOLE_MACHINE } else { "" }
}

fn of_machine(machine: &MachineSummary, whose: &str, rows: &mut Vec<Row>) {
    if let (Some(cores), Some(cpus)) = (machine.cores, machine.cpus) {
        let share = share(cores.mean, f64::from(cpus));
        let text = format!("{:.2} of {cpus} cores{}, peak {:.2}{whose}", cores.mean, percent(share), cores.peak);
        rows.push(Row { label: "CPU".into(), share, text });
    }
    if let (Some(used), Some(total)) = (machine.memory_mib, machine.memory_total_mib) {
        let share = share(used.peak, total as f64);
        let (peak, mean) = (memory(used.peak), memory(used.mean));
        let text = format!("peak {peak} of {}{}, mean {mean}{whose}", memory(total as f64), percent(share));
        rows.push(Row { label: "Memory".into(), share, text });
    }
    if let (Some(read), Some(written)) = (machine.disk_read_bytes, machine.disk_write_bytes) {
        rows.push(disk(read, written, whose));
    }
}

/// `None` if `of` is zero, which a recording can say.
fn share(used: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| used / of)
}

fn percent(share: Option<f64>) -> String {
    let shown =
        |share: f64| if 0.0 < share && share < 0.005 { " (<1 %)".into() } else { format!(" ({:.0} %)", 100.0 * share) };
    share.map(shown).unwrap_or_default()
}

fn disk(read: u64, written: u64, whose: &str) -> Row {
    let text = format!("{} read, {} written{whose}", bytes(read as f64), bytes(written as f64));
    Row { label: "Disk".into(), share: None, text }
}

fn of_gpus(gpus: &[GpuSummary], rows: &mut Vec<Row>) {
    let whole: Vec<&GpuSummary> = gpus.iter().filter(|gpu| gpu.parent_uuid.is_none()).collect();
    if whole.len() > GPU_ROWS {
        let means: Vec<f64> = whole.iter().filter_map(|gpu| Some(gpu.utilization_pct?.mean)).collect();
        let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
        let busiest = whole.iter().filter_map(|gpu| Some(gpu.utilization_pct?.mean)).fold(0.0, f64::max);
        let fullest = whole.iter().copied().filter(|gpu| gpu.memory_mib.is_some());
        let peak = |gpu: &GpuSummary| gpu.memory_mib.map_or(0.0, |memory| memory.peak);
        let fullest = fullest.max_by(|one, other| peak(one).total_cmp(&peak(other)));
        let used = (!means.is_empty()).then(|| format!("{mean:.0} % in use, the busiest {busiest:.0} %"));
        let held = fullest.map(|gpu| {
            let of = gpu.memory_total_mib.map(|total| format!(" of {}", memory(total))).unwrap_or_default();
            format!("at most {}{of} of one", memory(peak(gpu)))
        });
        let text = [used.clone(), held].into_iter().flatten().collect::<Vec<_>>().join("; ");
        let share = used.map(|_| mean / 100.0);
        rows.push(Row { label: format!("{} GPUs", whole.len()), share, text });
        return;
    }
    for (index, gpu) in whole.into_iter().enumerate() {
        let used = gpu.utilization_pct.map(|used| format!("{:.0} % in use, peak {:.0} %", used.mean, used.peak));
        let held = gpu.memory_mib.zip(gpu.memory_total_mib);
        let held = held.map(|(held, total)| format!("{} of {}", memory(held.peak), memory(total)));
        let text: Vec<String> = used.into_iter().chain(held).collect();
        let share = gpu.utilization_pct.map(|used| used.mean / 100.0);
        rows.push(Row { label: format!("GPU {index}"), share, text: text.join("; ") });
    }
}

/// The longest phases, in the order in which they began.
fn of_phases(phases: &[PhaseSummary], rows: &mut Vec<Row>) {
    let mut lengths: Vec<f64> = phases.iter().map(|phase| phase.secs).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    lengths.reverse();
    let shown = if phases.len() > PHASE_ROWS { PHASE_ROWS - 1 } else { phases.len() };
    let shortest = lengths.get(shown.wrapping_sub(1)).copied().unwrap_or(0.0);
    for phase in phases.iter().filter(|phase| phase.secs >= shortest).take(shown) {
        let cores = phase.cpu_secs.filter(|_| phase.secs > 0.0).map(|cpu| cpu / phase.secs);
        let cores = cores.map(|cores| format!(", {cores:.2} cores")).unwrap_or_default();
        let peak = phase.peak_memory_mib.map(|peak| format!(", resident {}", memory(peak))).unwrap_or_default();
        let text = format!("{}: {}{cores}{peak}", phase.name, time(phase.secs));
        rows.push(Row { label: "Phase".into(), share: None, text });
    }
    if phases.len() > shown {
        let text = format!("the longest of {} are shown", phases.len());
        rows.push(Row { label: "Phases".into(), share: None, text });
    }
}

/// What the job waited for. If its cgroup does not say, what any program of the machine waited for.
fn waits(summary: &Summary) -> Option<Row> {
    let text = match summary.cgroup.as_ref().filter(|cgroup| cgroup.is_own && cgroup.cpu_pressure_secs.is_some()) {
        Some(cgroup) => {
            let waited = [
                (cgroup.cpu_pressure_secs, "a CPU"),
                (cgroup.memory_pressure_secs, "memory"),
                (cgroup.io_pressure_secs, "storage"),
            ];
            let waited = listed(waited, |secs| (secs >= 0.01).then(|| time(secs)));
            let throttled = cgroup.cpu_throttled_pct.filter(|percent| *percent >= 0.5);
            let throttled = throttled.map(|percent| format!("out of its quota in {percent:.0} % of periods"));
            waited.into_iter().chain(throttled).reduce(|waited, throttled| format!("{waited}; {throttled}"))?
        }
        None => {
            let machine = &summary.machine;
            let waited = [
                (machine.cpu_pressure_pct, "a CPU"),
                (machine.memory_pressure_pct, "memory"),
                (machine.io_pressure_pct, "storage"),
            ];
            let text = listed(waited, |percent| (percent >= 0.5).then(|| format!("{percent:.0} % of the time")))?;
            format!("{text} (any program of the machine)")
        }
    };
    Some(Row { label: "Waited".into(), share: None, text })
}

/// The programs that used most CPU time, and the one that had most memory.
fn busiest(programs: &[ProgramSummary]) -> Option<Row> {
    let largest = largest(programs)?;
    let used = programs.iter().take(PROGRAMS).filter(|program| program.cpu_secs > 0.0);
    let mut used: Vec<String> = used.map(|program| format!("{} {}", program.name, time(program.cpu_secs))).collect();
    if let Some(first) = used.first_mut() {
        *first += " of CPU time";
    }
    let most = format!("most memory {} {}", largest.name, memory(largest.peak_rss_mib));
    let text = if used.is_empty() { most } else { format!("{}; {most}", used.join(", ")) };
    Some(Row { label: "Busiest".into(), share: None, text })
}

/// The times that are worth showing. `None` if there are none.
fn listed<const N: usize>(waited: [(Option<f64>, &str); N], shown: impl Fn(f64) -> Option<String>) -> Option<String> {
    let parts = waited.into_iter().filter_map(|(waited, what)| Some(format!("{} for {what}", shown(waited?)?)));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn remarks(summary: &Summary) -> Vec<(&'static str, String)> {
    let mut remarks = Vec::new();
    if let Some(bound) = &summary.bound {
        remarks.push(("Held up", format!("by {}: {}", noun(bound.by), bound.because)));
    }
    if let Some(advice) = &summary.advice {
        // How many cores it could have used beyond its quota, nobody knows.
        let is_capped = summary.bound.as_ref().is_some_and(|bound| bound.by == Resource::CpuLimit);
        remarks.push(("Ask for", format!("{}{}", if is_capped { "at least " } else { "" }, advice.in_words())));
    }
    remarks.extend(summary.problems.iter().map(|problem| ("Missing", problem.clone())));
    remarks.extend(summary.notes.iter().map(|note| ("Note", note.clone())));
    remarks
}

fn noun(resource: Resource) -> &'static str {
    match resource {
        Resource::CpuLimit => "its CPU limit",
        Resource::Cpu => "its cores",
        Resource::OneCore => "one core",
        Resource::Memory => "memory",
        Resource::Contention => "busy cores",
        Resource::Disk => "storage",
        Resource::Gpu => "its GPUs",
        Resource::Waiting => "waiting",
    }
}
