//! What is tracked, and how it ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

/// What the user says about the run: labels that make it findable later. The table `[job]` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Job {
    /// Label of the run, in every sample (for example the flow in Metaflow).
    pub name: Option<String>,
    /// Project that the run belongs to.
    pub project_name: Option<String>,
    /// Stage of the workflow (a step in Metaflow, a node in Flyte).
    pub stage_name: Option<String>,
    /// Task of the stage.
    pub task_name: Option<String>,
    /// Team that owns the run.
    pub team: Option<String>,
    /// Environment, such as dev or prod.
    pub env: Option<String>,
    /// Programming language of the command, such as python or r.
    pub language: Option<String>,
    /// What started the run, such as metaflow or airflow.
    pub orchestrator: Option<String>,
    /// What carries the run out, such as k8s or slurm.
    pub executor: Option<String>,
    /// Identifier of the run in the orchestrator, such as a build number.
    pub external_run_id: Option<String>,
    /// Container image, with its tag.
    pub container_image: Option<String>,
    /// Which part it is of a job of several processes.
    pub group: Group,
    /// Any further labels.
    #[serde(deserialize_with = "tags")]
    pub tags: BTreeMap<String, String>,
}

/// Which part a run is of a job of several processes, such as one rank of an MPI program. Empty where it is the whole job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Group {
    /// Identifier of the whole job, the same in all its parts.
    pub id: Option<String>,
    /// Number of the process in the job, from 0.
    pub rank: Option<u32>,
    /// How many processes the job has.
    pub size: Option<u32>,
    /// Number of the process on its node, from 0.
    pub local_rank: Option<u32>,
    /// How many processes of the job are on the node.
    pub local_size: Option<u32>,
    /// Name of the node.
    pub node: Option<String>,
    /// Number of the node in the job, from 0.
    pub node_rank: Option<u32>,
    /// How many nodes the job has.
    pub nodes: Option<u32>,
    /// What started the processes, such as slurm or torchrun.
    pub launcher: Option<String>,
}

impl Group {
    /// Whether the run is the whole job.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Labels, which may also be written as numbers, dates, and with dots in their names.
fn tags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    fn add(tags: &mut BTreeMap<String, String>, name: String, value: Json) -> Result<(), String> {
        let text = match value {
            Json::String(text) => text,
            Json::Number(_) | Json::Bool(_) => value.to_string(),
            // `a.b = "c"` in TOML is a table in a table.
            Json::Object(members) => {
                let mut members = members.into_iter();
                return members.try_for_each(|(member, value)| add(tags, format!("{name}.{member}"), value));
            }
            Json::Array(_) | Json::Null => return Err(format!("the tag {name:?} must be a text, a number or a date")),
        };
        tags.insert(name, text);
        Ok(())
    }
    let mut tags = BTreeMap::new();
    let mut values = serde_json::Map::<String, Json>::deserialize(deserializer)?.into_iter();
    values.try_for_each(|(name, value)| add(&mut tags, name, value)).map_err(serde::de::Error::custom)?;
    Ok(tags)
}

/// The facts of a run, known when it starts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// The program that tracks; its name is part of the version key in a sample.
    pub program: &'static str,
    /// The version of that program.
    pub version: &'static str,
    /// What the user says about the run.
    pub job: Job,
    /// The command that is wrapped, with its arguments; empty when none is.
    pub command: Vec<OsString>,
    /// Root of the process tree that is tracked.
    pub pid: Option<i32>,
    /// Time between two samples.
    pub interval: Duration,
    /// When the run began.
    pub started: SystemTime,
}

impl Run {
    /// A run of this program and version that begins now, without labels, command and process, at one sample a second.
    pub fn new(program: &'static str, version: &'static str) -> Self {
        Self {
            program,
            version,
            job: Job::default(),
            command: Vec::new(),
            pid: None,
            interval: Duration::from_secs(1),
            started: SystemTime::now(),
        }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
    }
}

/// How a run ended. By default it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Exit code of the command, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
}

impl Outcome {
    /// The command exited.
    pub fn exited(code: i32) -> Self {
        Self { exit_code: Some(code), signal: None }
    }

    /// A signal ended the command.
    pub fn killed(signal: i32) -> Self {
        Self { exit_code: None, signal: Some(signal) }
    }
}
