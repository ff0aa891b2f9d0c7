//! How often the job would fit beside itself into the machine's memory.

use resource_tracker_core::export_plugin;
use resource_tracker_core::prelude::*;

/// Memory beside the job's own: `headroom`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
struct Headroom {
    /// The memory that is available to new programs, in memories of the job.
    #[schemars(transform = Gauge("jobs"))]
    jobs: Option<f64>,
}

impl Section for Headroom {
    const NAME: &'static str = "headroom";
}

/// What it needs of the section of this name.
#[derive(Deserialize)]
struct Memory {
    available_mib: f64,
}

#[derive(Deserialize)]
struct Cpu {
    process_rss_mib: Option<f64>,
}

#[derive(Default)]
struct HeadroomOfJob;

impl Derivation for HeadroomOfJob {
    fn derive(&mut self, _: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        let (memory, cpu) = (sample.read::<Memory>("memory"), sample.read::<Cpu>("cpu"));
        let used = cpu.and_then(|cpu| cpu.process_rss_mib).filter(|used| *used > 0.0);
        out.section::<Headroom>().jobs = memory.zip(used).map(|(memory, used)| memory.available_mib / used);
        Ok(())
    }
}

register_section!(Headroom);
register_derivation!(DerivationEntry::new::<HeadroomOfJob>("headroom", "How often the job would fit beside itself"));
export_plugin!();

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn jobs(line: &str) -> Option<f64> {
        let second = Duration::from_secs(1);
        let (tick, sample) = (Tick::new(1, Instant::now(), second, second), Sample::from_json(line).unwrap());
        let mut out = Sections::default();
        HeadroomOfJob.derive(&tick, &sample, &mut out).unwrap();
        out.get::<Headroom>().unwrap().jobs
    }

    #[test]
    fn it_is_what_is_available_by_what_is_used() {
        assert_eq!(jobs(r#"{"memory":{"available_mib":800.0},"cpu":{"process_rss_mib":200.0}}"#), Some(4.0));
    }

    #[test]
    fn without_a_job_it_is_not_known() {
        assert_eq!(jobs(r#"{"memory":{"available_mib":800.0},"cpu":{"process_rss_mib":null}}"#), None);
        assert_eq!(jobs(r#"{"memory":{"available_mib":800.0}}"#), None);
    }
}
