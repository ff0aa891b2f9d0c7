//! The summary of a run at its end.

use std::time::Duration;

use resource_tracker_core::{
    Outcome, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink, sample_schema,
};
use resource_tracker_sinks::{OpenStream, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::Kinds;
use crate::run_statistics::RunStatistics;
use crate::text::{Look, text};
use crate::{json, markdown};

/// What the run took, at its end: for a person, for a program, or for a page.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct SummaryConfig {
    /// Where it is written.
    pub stream: Stream,
    /// How it is written.
    pub format: SummaryFormat,
}

/// How a summary is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SummaryFormat {
    /// Lines for a terminal.
    #[default]
    Text,
    /// All figures, as a JSON object.
    Json,
    /// A heading, a table and a list.
    Markdown,
}

from_json!(SummaryConfig);

#[typetag::deserialize(name = "summary")]
impl SinkConfig for SummaryConfig {
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        let stream = OpenStream::new(self.stream, context)?;
        let registry = context.registry.clone();
        let kinds = Kinds::of_schema(move || sample_schema("", &registry));
        let statistics = RunStatistics::default();
        Ok(Box::new(SummarySink { statistics, kinds, stream, format: self.format }))
    }
}

register_sink!(SinkEntry::new::<SummaryConfig>("summary", "What the run took, in a few lines at its end"));

struct SummarySink {
    statistics: RunStatistics,
    kinds: Kinds,
    stream: OpenStream,
    format: SummaryFormat,
}

impl Sink for SummarySink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.statistics.add(sample, &self.kinds);
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
        let summary = self.statistics.summary();
        let text = match self.format {
            SummaryFormat::Text => text(&summary, Look::of(self.stream.file())),
            SummaryFormat::Json => json(&summary)?,
            SummaryFormat::Markdown => markdown(&summary),
        };
        self.stream.write(text.as_bytes())
    }
}
