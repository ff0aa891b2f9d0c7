//! What happens to an existing file.

use std::fs::File;
use std::path::Path;

use anyhow::bail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contents::Contents;

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    /// Samples are added at its end, if it holds samples of the same format.
    #[default]
    Append,
    /// Its contents are lost.
    Overwrite,
    /// The run does not begin.
    Fail,
}

impl IfExists {
    /// Whether samples may go to a file.
    pub(super) fn judge(self, file: &File, path: &Path, contents: Contents) -> anyhow::Result<()> {
        match self {
            Self::Append => contents.check(file, path),
            Self::Fail if file.metadata()?.len() > 0 => bail!("{} exists already", path.display()),
            Self::Fail | Self::Overwrite => Ok(()),
        }
    }
}
