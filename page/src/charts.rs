//! Which figures of a sample the page draws.

use std::collections::BTreeMap;
use std::time::Duration;

use resource_tracker_core::Sample;
use resource_tracker_metrics::{
    CgroupMetrics, CloudMetrics, Disks, Gpus, JobGpuMetrics, JobLimitMetrics, JobNetworkMetrics, Marks, MemoryMetrics,
    Networks, OutcomeMetrics, PressureMetrics, ProcessMetrics, ResourcePressure, TopProcesses,
};
use resource_tracker_report::{CpuFields, Kinds, MetricKind, Readable, Span, Spans, is_image, other_figures};
use serde::Serialize;

use crate::timeline::{About, Drawing, Line, Role, Timeline};

const MIB: f64 = 1_048_576.0;
/// A shorter gap between samples is not drawn: a clock may have been set by so much.
const SMALLEST_GAP: Duration = Duration::from_secs(1);
/// A longer gap means that the clock was set for the first time.
const LONGEST_GAP: Duration = Duration::from_secs(30 * 86_400);
/// A phase takes as much of a page as so many points.
const POINTS_OF_PHASE: usize = 4;
/// The most figures of sections that are known by their schema alone; further ones are left out.
const OTHER_FIGURES: usize = 1000;

const CPU: About = about(0, "CPU", "cores", None);
const MEMORY: About = about(1, "Memory", "MiB", None);
const DISK: About = about(2, "Disk", "bytes/second", None);
const SPACE: About = about(3, "Disk space in use", "percent", Some(100.0));
const NETWORK: About = about(4, "Network", "bytes/second", None);
const GPU_USE: About = about(5, "GPUs in use", "percent", Some(100.0));
const GPU_MEMORY: About = about(6, "GPU memory", "MiB", None);
const GPU_POWER: About = about(7, "GPU power", "watts", None);
const GPU_TEMPERATURE: About = about(8, "GPU temperature", "celsius", None);
const JOB_GPUS: About = about(9, "GPUs that the job used", "GPUs", None);
const JOB_GPU_MEMORY: About = about(10, "GPU memory of the job", "MiB", None);
const WAITING: About = about(11, "Time spent waiting", "percent", None);
const PROCESSES: About = about(12, "Processes and threads of the job", "", None);
const PROGRAMS: About = about(13, "Busiest programs of the job", "cores", None);
const TASKS: About = about(14, "Tasks of the machine", "", None);
const OTHERS: u8 = 15;

const fn about(rank: u8, title: &'static str, unit: &'static str, top: Option<f32>) -> About<'static> {
    About { rank, title, unit, top }
}

/// What the charts lack for want of room, or because it could not be read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LeftOut {
    /// Whether all charts are left out.
    charts: bool,
    /// The most figures of one sample that have no line.
    figures: u64,
    /// Phases that are left out.
    phases: u64,
    /// A sentence for each section that could not be read in some samples.
    unreadable: Vec<String>,
}

/// The charts of a run, from its samples as they come: in one pass, in memory that does not grow with their number.
#[derive(Debug, Default)]
pub struct RunCharts {
    timeline: Timeline,
    phases: Spans,
    cloud: CloudMetrics,
    /// The latest time at which a sample was taken.
    last: Option<Duration>,
    /// Whether limits of a job are known; else those of the machine are drawn.
    has_job_limits: bool,
    /// Figures that are known by their schema alone, by path.
    others: BTreeMap<String, OtherFigure>,
    readable: Readable,
    are_left_out: bool,
}

impl RunCharts {
    /// Adds the next sample. Sections that cannot be read are left out and reported.
    pub fn add(&mut self, sample: &Sample, kinds: &Kinds) {
        let secs = sample.elapsed().as_secs_f64();
        let since = self.last.and_then(|last| sample.timestamp().checked_sub(last));
        let missing = since.and_then(|since| since.checked_sub(sample.elapsed()));
        let gap = SMALLEST_GAP.max(sample.elapsed())..LONGEST_GAP;
        if let Some(missing) = missing.filter(|missing| gap.contains(missing)) {
            self.timeline.skip(missing.as_secs_f64());
        }
        self.last = self.last.max(Some(sample.timestamp()));
        self.timeline.begin_sample(secs);
        if let Some(marks) = self.readable.first::<Marks>(sample) {
            let now = self.timeline.now();
            for mark in &marks.0 {
                let ago = (sample.timestamp().as_millis() as f64 - mark.at_ms as f64) / 1000.0;
                self.phases.add(mark, now - ago.clamp(0.0, secs));
            }
        }
        if let Some(cloud) = self.readable.first::<CloudMetrics>(sample) {
            self.cloud = cloud.into_owned();
        }
        self.add_job(sample, secs);
        self.add_programs(sample);
        self.add_machine(sample);
        self.add_gpus(sample);
        self.add_waiting(sample, secs);
        self.add_others(sample, secs, kinds);
        self.timeline.end_sample();
    }

    /// Makes the charts coarser, so that a page has room for many runs.
    pub fn keep_at_most(&mut self, points: usize) {
        self.timeline.keep_at_most(points);
    }

    pub(crate) fn drawing(&mut self) -> Drawing<'_> {
        self.timeline.drawing()
    }

    pub(crate) fn spans(&self) -> &[Span] {
        self.phases.all()
    }

    /// How much of a page the charts take, in points of a line.
    pub fn points(&self) -> usize {
        self.timeline.points() + POINTS_OF_PHASE * self.phases.all().len()
    }

    /// Drops all charts, for a page that has no room for them.
    pub fn leave_out(&mut self) {
        *self = Self { cloud: std::mem::take(&mut self.cloud), are_left_out: true, ..Self::default() };
    }

    pub(crate) fn left_out(&self) -> LeftOut {
        let Self { timeline, phases, readable, are_left_out, .. } = self;
        LeftOut {
            charts: *are_left_out,
            figures: timeline.left_out(),
            phases: phases.left_out(),
            unreadable: readable.problems("charts").collect(),
        }
    }

    pub(crate) fn cloud(&self) -> &CloudMetrics {
        &self.cloud
    }

    fn add_machine(&mut self, sample: &Sample) {
        let Self { timeline, has_job_limits, readable, .. } = self;
        // Where the machine's figures are off, `cpu` has those of the job alone.
        if let Some(cpu) = readable.first_fields::<CpuFields>(sample) {
            timeline.add(CPU, "machine", Role::Machine, cpu.cores_used);
            let cpus = cpu.per_core_pct.filter(|_| !*has_job_limits).map(|cpus| cpus.len() as f64);
            timeline.add(CPU, "all of the machine", Role::Limit, cpus);
            timeline.add(TASKS, "that run, or could", Role::Machine, cpu.processes_running.map(f64::from));
            timeline.add(TASKS, "that wait for a disk", Role::Machine, cpu.processes_blocked.map(f64::from));
        }
        if let Some(memory) = readable.first::<MemoryMetrics>(sample) {
            timeline.add(MEMORY, "machine", Role::Machine, memory.unavailable_mib as f64);
            timeline.add(
                MEMORY,
                "all of the machine",
                Role::Limit,
                (!*has_job_limits).then_some(memory.total_mib as f64),
            );
        }
        let disks = readable.all::<Disks>(sample);
        let disks = || disks.iter().flat_map(|disks| &disks.0);
        let counted = || disks().filter(|disk| disk.is_counted);
        let mut add = |about, label, value| timeline.add(about, label, Role::Machine, value);
        add(DISK, "machine reads", sum(counted().map(|disk| disk.read_bytes_per_sec)));
        add(DISK, "machine writes", sum(counted().map(|disk| disk.write_bytes_per_sec)));
        for mount in disks().flat_map(|disk| &disk.mounts).filter(|mount| !is_image(&mount.filesystem)) {
            timeline.add(SPACE, &mount.mount_point, Role::Other, mount.full_pct());
        }
        let networks = readable.all::<Networks>(sample);
        let networks = || networks.iter().flat_map(|networks| &networks.0).filter(|one| one.is_counted == Some(true));
        let mut add = |label, value| timeline.add(NETWORK, label, Role::Machine, value);
        add("machine receives", sum(networks().map(|network| Some(network.rx_bytes_per_sec))));
        add("machine sends", sum(networks().map(|network| Some(network.tx_bytes_per_sec))));
    }

    fn add_job(&mut self, sample: &Sample, secs: f64) {
        let per_sec = |bytes: Option<u64>| bytes.filter(|_| secs > 0.0).map(|bytes| bytes as f64 / secs);
        let Self { timeline, has_job_limits, readable, .. } = self;
        let mut add = |about, label, value| timeline.add(about, label, Role::Job, value);
        if let Some(job) = readable.first::<ProcessMetrics>(sample) {
            add(CPU, "job", job.process_cores_used);
            add(MEMORY, "job", job.process_memory_mib);
            add(MEMORY, "job, resident (RSS)", job.process_rss_mib);
            add(MEMORY, "job, proportional (PSS)", job.process_pss_mib);
            add(MEMORY, "job, peak so far", job.process_peak_memory_mib);
            add(DISK, "job reads", per_sec(job.process_disk_read_bytes));
            add(DISK, "job writes", per_sec(job.process_disk_write_bytes));
            let threads = job.process_thread_count.filter(|threads| *threads > 0).map(f64::from);
            add(PROCESSES, "threads", threads);
            let children = job.process_child_count.filter(|_| threads.is_some());
            add(PROCESSES, "processes", children.map(|children| f64::from(children) + 1.0));
        }
        if let Some(network) = readable.first::<JobNetworkMetrics>(sample) {
            add(NETWORK, "job receives", per_sec(network.process_network_rx_bytes));
            add(NETWORK, "job sends", per_sec(network.process_network_tx_bytes));
        }
        if let Some(gpus) = readable.first::<JobGpuMetrics>(sample) {
            add(JOB_GPUS, "sum of its shares", gpus.process_gpu_usage);
            add(JOB_GPUS, "GPUs of which it had a share", gpus.process_gpu_utilized.map(f64::from));
            add(JOB_GPU_MEMORY, "of all GPUs", gpus.process_gpu_vram_mib);
        }
        if let Some(limits) = readable.first::<JobLimitMetrics>(sample) {
            let mut limit = |about, value| timeline.add(about, "limit of the job", Role::Limit, value);
            limit(CPU, limits.process_cpu_limit_cores);
            limit(MEMORY, limits.process_memory_limit_mib);
            *has_job_limits |= limits.process_cpu_limit_cores.is_some();
        }
    }

    /// The programs of the busiest processes, where these are listed.
    fn add_programs(&mut self, sample: &Sample) {
        let Some(top) = self.readable.first::<TopProcesses>(sample) else { return };
        let mut cores = BTreeMap::<&str, f64>::new();
        for process in &top.0 {
            *cores.entry(&process.name).or_default() += process.cores_used;
        }
        self.timeline.add_list(PROGRAMS, Role::Other, &cores);
    }

    fn add_gpus(&mut self, sample: &Sample) {
        let gpus = self.readable.all::<Gpus>(sample);
        for gpu in gpus.iter().flat_map(|gpus| &gpus.0) {
            let (name, mib) = (gpu.host_id.as_str(), |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB));
            let mut add = |about, value| self.timeline.add(about, name, Role::Other, value);
            add(GPU_USE, gpu.utilization_pct.or(gpu.sm_utilization_pct));
            add(GPU_MEMORY, mib(gpu.vram_used_bytes));
            add(GPU_POWER, gpu.power_watts);
            add(GPU_TEMPERATURE, gpu.temperature_celsius.map(f64::from));
            // Equal limits share a line.
            let mut limit = |about, value: Option<f64>, scale: f64, unit| {
                if let Some(value) = value {
                    self.timeline.add(about, &format!("limit of {:.0} {unit}", value / scale), Role::Limit, value);
                }
            };
            limit(GPU_MEMORY, mib(gpu.vram_total_bytes), 1024.0, "GiB");
            limit(GPU_POWER, gpu.power_limit_watts, 1.0, "W");
        }
    }

    fn add_waiting(&mut self, sample: &Sample, secs: f64) {
        let Self { timeline, readable, .. } = self;
        if let Some(cgroup) = readable.first::<CgroupMetrics>(sample) {
            // The last sample may have the times of the whole run.
            let is_of_interval = secs > 0.0 && readable.first::<OutcomeMetrics>(sample).is_none();
            let share = |waited: Option<f64>| waited.filter(|_| is_of_interval).map(|waited| 100.0 * waited / secs);
            let mut add = |label, value| timeline.add(WAITING, label, Role::Job, value);
            add("job's cgroup, for a CPU", share(cgroup.cpu_pressure_some_secs));
            add("job's cgroup, for memory", share(cgroup.memory_pressure_some_secs));
            add("job's cgroup, for storage", share(cgroup.io_pressure_some_secs));
            add("job's cgroup, out of its quota", cgroup.cpu_throttled_pct);
        }
        if let Some(pressure) = readable.first::<PressureMetrics>(sample) {
            let some = |of: Option<ResourcePressure>| of.map(|of| of.some.interval_pct);
            let mut add = |label, value| timeline.add(WAITING, label, Role::Machine, value);
            add("machine, for a CPU", some(pressure.cpu));
            add("machine, for memory", some(pressure.memory));
            add("machine, for storage", some(pressure.io));
        }
    }

    /// Sections that are known by their schema alone.
    fn add_others(&mut self, sample: &Sample, secs: f64, kinds: &Kinds) {
        let Self { timeline, others, .. } = self;
        other_figures(sample, kinds, &mut |path, field, value| {
            let figure = match others.get_mut(path) {
                Some(figure) => figure,
                None => {
                    let kind = kinds.of(field);
                    if others.len() == OTHER_FIGURES {
                        return if kind != MetricKind::Info {
                            timeline.leave_out()
                        };
                    }
                    others.entry(path.to_owned()).or_insert(OtherFigure::new(kind))
                }
            };
            let Some(value) = figure.drawn(value, secs, timeline.now()) else { return };
            match *figure.line.get_or_insert_with(|| other_line(timeline, kinds, path, field, figure.kind)) {
                Some(line) => timeline.add_to(line, value),
                None => timeline.leave_out(),
            }
        });
    }
}

/// A figure of a section that is known by its schema alone.
#[derive(Debug)]
struct OtherFigure {
    kind: MetricKind,
    /// The last value of a counter, and when it was read.
    last: Option<(f64, f64)>,
    /// Its line, once it has had a value: `Some(None)` if there was no room for one.
    line: Option<Option<Line>>,
}

impl OtherFigure {
    fn new(kind: MetricKind) -> Self {
        Self { kind, last: None, line: None }
    }

    /// The value to draw: a gauge as it is, and a count as a rate per second.
    fn drawn(&mut self, value: f64, secs: f64, now: f64) -> Option<f64> {
        let drawn = match self.kind {
            MetricKind::Info => None,
            MetricKind::Gauge => Some(value),
            MetricKind::Delta => Some(value / secs),
            MetricKind::Counter => self.last.replace((value, now)).map(|(before, then)| {
                // A counter that was reset starts from zero.
                let grown = if value < before { value } else { value - before };
                grown / (now - then)
            }),
        };
        drawn.filter(|value| value.is_finite())
    }
}

/// The line of a figure that is known by its schema alone.
fn other_line(timeline: &mut Timeline, kinds: &Kinds, path: &str, field: &str, kind: MetricKind) -> Option<Line> {
    let (section, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    let label = rest.trim_start_matches(['.', '[']).replace("].", " ").replace(']', "");
    let is_rate = matches!(kind, MetricKind::Delta | MetricKind::Counter);
    let unit = kinds.unit(field).map(|unit| if is_rate { format!("{unit}/second") } else { unit.to_owned() });
    // Figures of unknown units have nothing to do with one another.
    let title = match &unit {
        Some(_) => section.to_owned(),
        None => field.replace("[]", ""),
    };
    let about = About { rank: OTHERS, title: &title, unit: unit.as_deref().unwrap_or_default(), top: None };
    timeline.line(about, &label, Role::Other)
}

/// The sum of the known values. `None` if there are none.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|one, other| one + other)
}
