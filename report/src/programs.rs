//! Which programs of the job were at work, where its busiest processes are listed.

use std::collections::BTreeMap;

use resource_tracker_core::Sample;
use resource_tracker_metrics::TopProcesses;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::readable::Readable;

/// Programs with further names are left out.
const NAMES: usize = 1000;
/// The summary has so many of those with most CPU time, and the one with most memory.
const TOLD: usize = 10;

/// Sums over the programs.
#[derive(Default)]
pub(crate) struct Programs {
    /// CPU time and the most memory, by name.
    programs: BTreeMap<String, (f64, f64)>,
}

impl Programs {
    pub(crate) fn add(&mut self, sample: &Sample, secs: f64, readable: &mut Readable) {
        let mut memory = BTreeMap::<&str, f64>::new();
        let top = readable.all::<TopProcesses>(sample);
        for process in top.iter().flat_map(|top| &top.0) {
            if !self.programs.contains_key(&process.name) {
                if self.programs.len() == NAMES {
                    continue;
                }
                self.programs.insert(process.name.clone(), (0.0, 0.0));
            }
            if let Some((cpu, _)) = self.programs.get_mut(&process.name) {
                *cpu += process.cores_used * secs;
            }
            *memory.entry(&process.name).or_default() += process.rss_mib;
        }
        for (name, memory) in memory {
            if let Some((_, peak)) = self.programs.get_mut(name) {
                *peak = peak.max(memory);
            }
        }
    }

    pub(crate) fn summary(&self) -> Vec<ProgramSummary> {
        let of = |(name, (cpu_secs, peak_rss_mib)): (&String, &(f64, f64))| ProgramSummary {
            name: name.clone(),
            cpu_secs: *cpu_secs,
            peak_rss_mib: *peak_rss_mib,
        };
        let mut programs: Vec<ProgramSummary> = self.programs.iter().map(of).collect();
        programs.sort_unstable_by(|one, other| other.cpu_secs.total_cmp(&one.cpu_secs));
        let largest = largest(&programs).cloned();
        programs.truncate(TOLD);
        programs.extend(largest.filter(|largest| programs.iter().all(|program| program.name != largest.name)));
        programs
    }
}

/// The program that had most memory.
pub(crate) fn largest(programs: &[ProgramSummary]) -> Option<&ProgramSummary> {
    programs.iter().max_by(|one, other| one.peak_rss_mib.total_cmp(&other.peak_rss_mib))
}

/// What the processes of one program used, in the samples in which they were among the busiest of the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ProgramSummary {
    /// Its name, of which the kernel keeps 15 bytes. `top_processes`, `name`
    pub name: String,
    /// CPU time of its processes. `cores_used` times the length of the interval
    pub cpu_secs: f64,
    /// The most memory that they had resident at one sample, all together. `rss_mib`
    pub peak_rss_mib: f64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_of_one_name_are_one_program() {
        let (mut programs, mut readable) = (Programs::default(), Readable::default());
        let process = |pid: u32, name: &str, cores: f64, rss: f64| json!({ "pid": pid, "name": name, "cores_used": cores, "rss_mib": rss });
        for top in [
            json!([process(1, "cc1", 1.0, 100.0), process(2, "cc1", 0.5, 50.0), process(3, "make", 0.01, 3.0)]),
            json!([process(4, "ld", 0.25, 900.0), process(2, "cc1", 0.25, 120.0)]),
        ] {
            let line = json!({ "timestamp_ms": 1, "elapsed_secs": 2, "top_processes": top }).to_string();
            programs.add(&Sample::from_json(&line).unwrap(), 2.0, &mut readable);
        }
        let told: Vec<_> = programs
            .summary()
            .into_iter()
            .map(|program| (program.name, program.cpu_secs, program.peak_rss_mib))
            .collect();
        let expected = [("cc1", 3.5, 150.0), ("ld", 0.5, 900.0), ("make", 0.02, 3.0)];
        assert_eq!(told, expected.map(|(name, cpu, rss)| (name.to_owned(), cpu, rss)));
        for number in 0..5000_u32 {
            let top = json!([process(number, &number.to_string(), 9.0, 0.0)]);
            let line = json!({ "timestamp_ms": 1, "elapsed_secs": 1, "top_processes": top }).to_string();
            programs.add(&Sample::from_json(&line).unwrap(), 1.0, &mut readable);
        }
        let told = programs.summary();
        assert_eq!((programs.programs.len(), told.len(), told[TOLD].name.as_str()), (NAMES, TOLD + 1, "ld"));
    }
}
