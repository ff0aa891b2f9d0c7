//! Embeds the core: samples this program around a part of its own work, with a source and a sink of its own.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use resource_tracker_core::config::ConfigFile;
use resource_tracker_core::unit::Gauge;
use resource_tracker_core::{
    Host, Outcome, Run, Sample, Schedule, Section, Sections, Settings, Sink, Source, Tick, Tracker, register_section,
};
use resource_tracker_metrics::{CpuMetrics, ProcessMetrics};
// Linking the crate registers its sources.
use resource_tracker_sources::{CpuConfig, JobObserver, ProcessConfig, TrackedJob};
use schemars::JsonSchema;
use serde::Serialize;

/// What the program knows of itself: `"queue": {"jobs": 12}`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
struct QueueMetrics {
    /// Jobs that wait.
    #[schemars(transform = Gauge("jobs"))]
    jobs: u64,
}

impl Section for QueueMetrics {
    const NAME: &'static str = "queue";
}

register_section!(QueueMetrics);

/// A source that looks into the program.
struct QueueSource(Arc<AtomicU64>);

impl Source for QueueSource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        out.section::<QueueMetrics>().jobs = self.0.load(Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Peak {
    samples: u32,
    machine_cores: f64,
    own_cores: f64,
    own_memory_mib: f64,
    jobs: u64,
}

/// A sink that gets typed samples.
struct PeakSink(Arc<Mutex<Peak>>);

impl Sink for PeakSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let mut peak = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        peak.samples += 1;
        if let Some(cpu) = sample.get::<CpuMetrics>() {
            peak.machine_cores = peak.machine_cores.max(cpu.utilization_pct);
        }
        if let Some(process) = sample.get::<ProcessMetrics>() {
            peak.own_cores = peak.own_cores.max(process.process_cores_used.unwrap_or(0.0));
            peak.own_memory_mib = peak.own_memory_mib.max(process.process_rss_mib.unwrap_or(0.0));
        }
        if let Some(queue) = sample.get::<QueueMetrics>() {
            peak.jobs = peak.jobs.max(queue.jobs);
        }
        Ok(())
    }
}

fn run() -> Run {
    let mut run = Run::new("embed", env!("CARGO_PKG_VERSION"));
    run.pid = Some(std::process::id() as i32);
    run.interval = Duration::from_millis(100);
    run
}

/// The process tree to track: this program and what it starts.
fn job() -> JobObserver {
    JobObserver::new(TrackedJob::attached(std::process::id() as i32), Host::default())
}

fn main() -> anyhow::Result<()> {
    // Picked by code.
    let (peak, jobs) = (Arc::new(Mutex::new(Peak::default())), Arc::new(AtomicU64::new(0)));
    let first = Tracker::new(run())
        .observer(job())
        .source("cpu", Box::new(CpuConfig::default()))
        .source("process", Box::new(ProcessConfig::default()))
        .own_source("queue", QueueSource(Arc::clone(&jobs)), Schedule::default())
        .sink("peak", PeakSink(Arc::clone(&peak)));

    // Picked by configuration: everything that is on by default but the network, and what a file says, if there is one.
    // Nobody named that file, so it counts only when nobody else can have written it.
    let settings =
        Settings::new().config_file(ConfigFile::found("embed.toml".as_ref())).switch("main", "network", false);
    let all = Arc::new(Mutex::new(Peak::default()));
    let second = Tracker::new(run()).observer(job()).sink("peak", PeakSink(Arc::clone(&all)));
    // What follows from several sources, such as the job's share of the GPUs.
    let mut second = second.derivations_of(settings.registry(), &Host::default())?;
    for (name, config) in settings.sources()? {
        second = second.source(name, config);
    }

    // Both at the same time: trackers share nothing.
    let (first, second) = (first.start()?, second.start()?);
    work(&jobs);
    for tracker in [first, second] {
        tracker.take_last_sample(Duration::from_secs(1));
        tracker.finish(Outcome::default());
    }
    println!("{:?}", peak.lock().unwrap_or_else(PoisonError::into_inner));
    println!("{:?}", all.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// One core and 100 MiB for a second.
fn work(jobs: &AtomicU64) {
    let start = Instant::now();
    let mut memory = vec![1u8; 100 << 20];
    jobs.store(12, Ordering::Relaxed);
    while start.elapsed() < Duration::from_secs(1) {
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
    }
    black_box(memory);
}
