//! A sink: says at the end how much the command used in total.

use std::io::Write;

use resource_tracker_core::{Outcome, Sample, Sink, SinkConfig, SinkContext, SinkEntry, register_sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Its configuration: the table `[sinks.total]`.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct TotalConfig {}

#[typetag::deserialize(name = "total")]
impl SinkConfig for TotalConfig {
    fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        Ok(Box::new(Total { cpu_secs: 0.0 }))
    }
}

register_sink!(SinkEntry::new::<TotalConfig>("total", "CPU time of the command, at the end"));

struct Total {
    cpu_secs: f64,
}

/// What it needs of the section `cpu`. A sink that is only ever linked could take the section's own type, with
/// `sample.get::<ProcessMetrics>()`.
#[derive(Deserialize)]
struct Used {
    process_utime_secs: Option<f64>,
    process_stime_secs: Option<f64>,
}

impl Sink for Total {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        if let Some(used) = sample.read::<Used>("cpu") {
            self.cpu_secs += used.process_utime_secs.unwrap_or(0.0) + used.process_stime_secs.unwrap_or(0.0);
        }
        Ok(())
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        // In one write: `eprintln!` makes several, and what other threads and processes say gets in between.
        let line = format!("the command used {:.2} s of CPU time\n", self.cpu_secs);
        Ok(std::io::stderr().lock().write_all(line.as_bytes())?)
    }
}
