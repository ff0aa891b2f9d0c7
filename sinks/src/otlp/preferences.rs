//! What a user or a receiver may prefer.

use std::io::Write;

use flate2::write::GzEncoder;
use resource_tracker_telemetry::otlp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How requests are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Compression {
    /// By gzip.
    Gzip,
    /// Not at all.
    None,
}

/// Over which time a sum that only grows is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Temporality {
    /// From the start of the run.
    Cumulative,
    /// Since the request before.
    Delta,
}

impl Compression {
    /// A request as it is sent.
    pub(super) fn compress(self, request: Vec<u8>) -> Vec<u8> {
        match self {
            Self::None => request,
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                // Writing to a vector does not fail.
                let _ = encoder.write_all(&request);
                encoder.finish().unwrap_or_default()
            }
        }
    }
}

impl From<Temporality> for otlp::Temporality {
    fn from(temporality: Temporality) -> Self {
        match temporality {
            Temporality::Cumulative => Self::Cumulative,
            Temporality::Delta => Self::Delta,
        }
    }
}
