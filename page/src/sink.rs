//! The page of a run at its end.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use resource_tracker_core::{
    Outcome, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink, sample_schema,
};
use resource_tracker_report::{Kinds, RunStatistics};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::charts::RunCharts;
use crate::destination::{Destination, IfThere};
use crate::page::{PageRun, write_page};

/// The report of the run at its end: one HTML page with charts.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct ReportConfig {
    /// The file. Its directory must exist. An older report is replaced, and nothing else.
    #[schemars(extend("x-needs-named-file" = ["html"]))]
    pub path: PathBuf,
}

from_json!(ReportConfig);

#[typetag::deserialize(name = "report")]
impl SinkConfig for ReportConfig {
    fn check(&self) -> anyhow::Result<()> {
        if self.path.as_os_str().is_empty() {
            bail!("path: is missing; it must name the file, such as path = \"report.html\"");
        }
        Ok(())
    }

    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        self.check()?;
        let destination = Destination::of(&self.path, IfThere::ReplacePage)?;
        let registry = context.registry.clone();
        let kinds = Kinds::of_schema(move || sample_schema("", &registry));
        Ok(Box::new(ReportSink {
            destination,
            kinds,
            statistics: RunStatistics::default(),
            charts: RunCharts::default(),
        }))
    }
}

register_sink!(SinkEntry::new::<ReportConfig>("report", "What the run took, as an HTML page with charts at its end"));

struct ReportSink {
    destination: Destination,
    kinds: Kinds,
    statistics: RunStatistics,
    charts: RunCharts,
}

impl Sink for ReportSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.statistics.add(sample, &self.kinds);
        self.charts.add(sample, &self.kinds);
        Ok(())
    }

    /// It writes nothing before the end.
    fn delay(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        if self.statistics.samples() == 0 {
            return Ok(());
        }
        self.statistics.end(outcome);
        let (summary, charts) = (self.statistics.summary(), std::mem::take(&mut self.charts));
        self.destination.write(|file| write_page(file, &mut [PageRun { path: None, summary, charts }]))
    }
}
