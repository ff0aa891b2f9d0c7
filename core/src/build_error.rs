//! Why a run cannot be put together.

use std::fmt;
use std::path::PathBuf;

/// Why a component could not be built. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A sink cannot work at all.
    Sink {
        /// The name that it was to have in the run.
        name: String,
        /// What is wrong with its destination or its configuration.
        reason: String,
    },
    /// A derivation of a plugin in isolation has no process.
    Derivation {
        /// The plugin.
        file: PathBuf,
        /// What messages call the derivation.
        name: String,
        /// Why its process cannot be made.
        reason: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Sink { name, reason } => write!(f, "sinks.{name}: {reason}"),
            BuildError::Derivation { file, name, reason } => {
                write!(f, "plugin {}: its derivation {name}: {reason}", file.display())
            }
        }
    }
}

impl std::error::Error for BuildError {}
