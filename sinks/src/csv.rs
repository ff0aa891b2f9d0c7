//! CSV to a stream.

use resource_tracker_core::{Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::encode::Encoder;
use crate::stream::{Stream, StreamSink};

/// CSV on standard output or standard error.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct CsvConfig {
    /// Which stream.
    pub stream: Stream,
    /// Which columns.
    pub columns: Columns,
}

from_json!(CsvConfig);

#[typetag::deserialize(name = "csv")]
impl SinkConfig for CsvConfig {
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        Ok(Box::new(StreamSink::new(self.stream, Encoder::Csv(self.columns), context)?))
    }
}

register_sink!(SinkEntry::new::<CsvConfig>("csv", "CSV on standard output or standard error"));
