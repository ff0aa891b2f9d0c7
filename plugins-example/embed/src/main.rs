//! Embeds the core: samples this program around a part of its own work, and keeps the highest figures.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use resource_tracker_core::metrics::{CpuMetrics, ProcessMetrics};
use resource_tracker_core::{Outcome, Run, Sample, Settings, Sink, Tracker};
// Linking the crate registers its sources.
use resource_tracker_sources as _;

#[derive(Debug, Default)]
struct Peak {
    samples: u32,
    machine_cores: f64,
    own_cores: f64,
    own_memory_mib: f64,
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
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let peak = Arc::new(Mutex::new(Peak::default()));
    let run = Run {
        program: "embed",
        pid: Some(std::process::id() as i32),
        interval: Duration::from_millis(100),
        ..Run::default()
    };
    // All sources but two; the configuration could also come from a file or the environment.
    let settings = Settings::new().switch("main", "network", false)?.switch("main", "disk", false)?;
    let mut tracker = Tracker::new(run).sink("peak", PeakSink(Arc::clone(&peak)));
    for (name, config) in settings.sources()? {
        tracker = tracker.source(name, config);
    }
    let running = tracker.start()?;
    work();
    running.take_last_sample(Duration::from_secs(1));
    running.finish(Outcome::default());
    println!("{:?}", peak.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// One core and 100 MiB for a second.
fn work() {
    let start = Instant::now();
    let mut memory = vec![1u8; 100 << 20];
    while start.elapsed() < Duration::from_secs(1) {
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
    }
    black_box(memory);
}
