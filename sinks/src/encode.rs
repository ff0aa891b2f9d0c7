//! A sample as one line, in the format that the user chose.

use resource_tracker_core::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;

/// How samples are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON Lines: one object a line.
    Json,
    /// Comma-separated values, with a header.
    Csv,
}

/// Turns samples into lines, each with its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Encoder {
    Json,
    Csv(Columns),
}

impl Encoder {
    /// The line that comes before the first sample, if there is one.
    pub(crate) fn header(self) -> Option<String> {
        match self {
            Encoder::Json => None,
            Encoder::Csv(columns) => Some(columns.header() + "\n"),
        }
    }

    /// Appends the line of a sample.
    pub(crate) fn encode(self, sample: &Sample, out: &mut Vec<u8>) -> anyhow::Result<()> {
        match self {
            Encoder::Json => sample.write_json(out)?,
            Encoder::Csv(columns) => columns.write_row(sample, out),
        }
        out.push(b'\n');
        Ok(())
    }
}
