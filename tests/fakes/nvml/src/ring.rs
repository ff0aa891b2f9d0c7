//! What the driver notes of the use of a device, and what NVML makes of it.
//!
//! A note every 167 ms (three timestamps in issue 110 of nvtop are 23, 7 and 7 times that apart), stamped with the time
//! of day, in a ring of 100 (`NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL` of the open kernel module). NVML tells
//! of each process "that had some non-zero utilization during the last sample period" one sample (`nvml.h`): the mean
//! over all notes since a timestamp, as `gpuacctProcessGpuUtil` of the kernel module computes it, and the time of its
//! last note.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use crate::script::{Device, Process};

/// Microseconds.
const PERIOD: u64 = 167_130;
pub const SIZE: usize = 100;

/// By the number of the note.
type Ring = VecDeque<(u64, Vec<(u32, f64)>)>;

/// Process, share and timestamp of each sample.
pub fn since(device: &Device, since: u64) -> Vec<(u32, u32, u64)> {
    static RINGS: Mutex<BTreeMap<String, Ring>> = Mutex::new(BTreeMap::new());
    let mut rings = RINGS.lock().expect("nobody panics with it");
    let ring = rings.entry(device.uuid.clone()).or_default();
    note(ring, device);
    let notes: Vec<_> = ring.iter().filter(|(number, _)| number * PERIOD > since).collect();
    let mut told: BTreeMap<u32, (f64, u64)> = BTreeMap::new();
    for (number, used) in &notes {
        for (pid, share) in used.iter().filter(|(_, share)| *share > 0.0) {
            let (sum, newest) = told.entry(*pid).or_default();
            *sum += share;
            *newest = number * PERIOD;
        }
    }
    let mean = |(pid, (sum, at)): (u32, (f64, u64))| (pid, (sum / notes.len() as f64 + 1e-6) as u32, at);
    let samples = told.into_iter().map(mean).filter(|(_, share, _)| *share > 0);
    samples.chain(device.garbage.iter().copied()).collect()
}

/// What was used since the last note.
fn note(ring: &mut Ring, device: &Device) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64;
    let last = now / PERIOD;
    let next = ring.back().map_or(last, |(number, _)| number + 1).max(last.saturating_sub(SIZE as u64 - 1));
    if next > last {
        return;
    }
    let busy: Vec<(u32, &Process)> = device
        .processes
        .iter()
        .filter(|process| process.share > 0)
        .filter_map(|process| Some((process.pid()?, process)))
        .collect();
    for number in next..=last {
        let used = busy.iter().map(|(pid, process)| (*pid, f64::from(process.share) * part(process, number * PERIOD)));
        ring.push_back((number, used.collect()));
    }
    ring.drain(..ring.len().saturating_sub(SIZE));
}

/// The part of the time before a note in which a process used its share.
fn part(process: &Process, at: u64) -> f64 {
    let Some([length, cycle]) = process.bursts else { return 1.0 };
    let busy = (at - PERIOD..at).step_by(1000).filter(|micros| micros / 1000 % cycle < length).count();
    busy as f64 / PERIOD.div_ceil(1000) as f64
}
