//! What a run is.

use std::collections::BTreeMap;

use resource_tracker_metrics::{RunLabels, RunMetrics};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the first sample says of the run. What an older version did not tell is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunSummary {
    /// Identifier that no other run has. `run`, `id`
    pub id: Option<String>,
    /// The command with its arguments; empty when none was started. `run`, `command`
    pub command: Option<Vec<String>>,
    /// Process that was followed, where it is one that was there before (`--pid`). `run`, `pid`
    pub pid: Option<i32>,
    /// When it began, in milliseconds since the Unix epoch. `run`, `started_ms`
    pub started_ms: Option<u64>,
    /// Time between two samples, as it was asked for. `run`, `interval_secs`
    pub interval_secs: Option<f64>,
    /// Version of the tracker. `run`, `version`
    pub version: Option<String>,
    /// The labels that are set. `run`, `labels`
    pub labels: Option<RunLabels>,
    /// Any further labels, by name. `run`, `tags`
    pub tags: Option<BTreeMap<String, String>>,
}

/// What is left of a command that is too long.
const WORDS: usize = 16;
const LETTERS: usize = 200;

impl RunSummary {
    /// Keeps some words of the command, and drops the tags.
    pub(crate) fn shorten(&mut self) {
        self.tags = None;
        for word in self.command.iter_mut().flatten() {
            *word = word.chars().take(LETTERS).collect();
        }
        if let Some(command) = &mut self.command {
            command.truncate(WORDS);
        }
    }

    /// Whether a command is known to have been started.
    pub(crate) fn has_command(&self) -> bool {
        self.command.as_ref().is_some_and(|words| !words.is_empty())
    }
}

impl From<&RunMetrics> for RunSummary {
    fn from(run: &RunMetrics) -> Self {
        let run = run.clone();
        Self {
            id: Some(run.id),
            command: Some(run.command),
            pid: run.pid,
            started_ms: Some(run.started_ms),
            interval_secs: Some(run.interval_secs),
            version: Some(run.version),
            labels: Some(run.labels),
            tags: Some(run.tags),
        }
    }
}
