//! JSON Lines to a stream.

use resource_tracker_core::{Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::encode::Encoder;
use crate::stream::{Stream, StreamSink};

/// JSON Lines on standard output or standard error.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct StdoutJsonConfig {
    /// Which stream.
    pub stream: Stream,
}

from_json!(StdoutJsonConfig);

#[typetag::deserialize(name = "stdout-json")]
impl SinkConfig for StdoutJsonConfig {
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        Ok(Box::new(StreamSink::new(self.stream, Encoder::Json, context)?))
    }
}

register_sink!(SinkEntry::new::<StdoutJsonConfig>("stdout-json", "JSON Lines on standard output or standard error"));
