//! The facts of a run for a plugin's sink, as JSON.

use std::time::{Duration, SystemTime};

use serde_json::Value as Json;

use crate::job::{Outcome, Run};
use crate::name::name_forever;

impl Run {
    /// As a sink of a plugin gets it.
    pub(super) fn to_json(&self) -> Json {
        let command: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        serde_json::json!({
            "program": self.program, "version": self.version, "job": self.job, "command": command, "pid": self.pid,
            "interval_secs": self.interval.as_secs_f64(), "started_ms": started.as_millis() as u64,
        })
    }

    pub(super) fn from_json(run: &Json) -> Self {
        let text = |key: &str| name_forever(run[key].as_str().unwrap_or_default());
        let words = run["command"].as_array().into_iter().flatten().filter_map(Json::as_str);
        let interval = run["interval_secs"].as_f64().and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        Self {
            program: text("program"),
            version: text("version"),
            job: serde_json::from_value(run["job"].clone()).unwrap_or_default(),
            command: words.map(Into::into).collect(),
            pid: run["pid"].as_i64().and_then(|pid| pid.try_into().ok()),
            interval: interval.unwrap_or_default(),
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(run["started_ms"].as_u64().unwrap_or(0)),
        }
    }
}

impl Outcome {
    /// As a sink of a plugin gets it.
    pub(super) fn to_json(self) -> Json {
        serde_json::json!({ "exit_code": self.exit_code, "signal": self.signal })
    }

    pub(super) fn from_json(outcome: &Json) -> Self {
        let number = |key: &str| outcome[key].as_i64().and_then(|number| number.try_into().ok());
        Self { exit_code: number("exit_code"), signal: number("signal") }
    }
}
