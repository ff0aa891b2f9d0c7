use std::collections::BTreeMap;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::unit::{Gauge, Info};
use resource_tracker_core::{Group, Job, Run, Section};

/// The run itself: `run`. It is in the first sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMetrics {
    /// Identifier that no other run has: a UUID of version 7, which begins with the time.
    #[schemars(transform = Info)]
    pub id: String,
    /// The command with its arguments, in which what looks like a password, a token or a key is `***`. After 256 words, or 64 KiB, there is `...`. Empty when none was started.
    #[schemars(transform = Info)]
    pub command: Vec<String>,
    /// Process that was followed, known before the run began (`--pid`). Null when a command was started, or no job is tracked.
    #[schemars(transform = Info)]
    pub pid: Option<i32>,
    /// When the run began, in milliseconds since the Unix epoch.
    #[schemars(transform = Gauge("milliseconds"))]
    pub started_ms: u64,
    /// Time between two samples, as it was asked for.
    #[schemars(transform = Gauge("seconds"))]
    pub interval_secs: f64,
    /// Version of the tracker.
    #[schemars(transform = Info)]
    pub version: String,
    /// How far the clock of the machine can be off, as the kernel knows it (`adjtimex`): samples of several machines lie so close on one time axis. Null where it does not know.
    pub clock: Option<RunClock>,
    /// Which part the run is of a job of several processes. Null when it is the whole job.
    pub group: Option<RunGroup>,
    /// Labels that were given, or that the batch system, the workflow or the container tells.
    pub labels: RunLabels,
    /// Any further labels, by name.
    pub tags: BTreeMap<String, String>,
}

/// The clock of the machine when the run began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunClock {
    /// Whether something keeps it in step with the time of day, such as chrony. Without, the errors are guesses of the kernel's.
    #[schemars(transform = Info)]
    pub synchronized: bool,
    /// The most that it can be off (`maxerror`).
    #[schemars(transform = Gauge("seconds"))]
    pub max_error_secs: f64,
    /// How far it is probably off (`esterror`).
    #[schemars(transform = Gauge("seconds"))]
    pub estimated_error_secs: f64,
}

/// The part that a run is of a job of several processes, as what started them tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunGroup {
    /// Identifier of the whole job, the same in all its parts.
    #[schemars(transform = Info)]
    pub id: Option<String>,
    /// Number of the process in the job, from 0.
    #[schemars(transform = Info)]
    pub rank: Option<u32>,
    /// How many processes the job has.
    #[schemars(transform = Info)]
    pub size: Option<u32>,
    /// Number of the process on its node, from 0.
    #[schemars(transform = Info)]
    pub local_rank: Option<u32>,
    /// How many processes of the job are on the node.
    #[schemars(transform = Info)]
    pub local_size: Option<u32>,
    /// Name of the node.
    #[schemars(transform = Info)]
    pub node: Option<String>,
    /// Number of the node in the job, from 0.
    #[schemars(transform = Info)]
    pub node_rank: Option<u32>,
    /// How many nodes the job has.
    #[schemars(transform = Info)]
    pub nodes: Option<u32>,
    /// What started the processes, such as slurm or torchrun.
    #[schemars(transform = Info)]
    pub launcher: Option<String>,
}

impl RunGroup {
    /// The part that a run is; `None` when it is the whole job.
    fn of(group: &Group) -> Option<Self> {
        let Group { id, rank, size, local_rank, local_size, node, node_rank, nodes, launcher, .. } = group.clone();
        let part = Self { id, rank, size, local_rank, local_size, node, node_rank, nodes, launcher };
        (!group.is_empty()).then_some(part)
    }
}

/// The labels that are set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunLabels {
    /// Label of the run, which is `job_name` in every sample.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Project that the run belongs to.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
    /// Stage of the workflow.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_name: Option<String>,
    /// Task of the stage.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_name: Option<String>,
    /// Team that owns the run.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Environment, such as dev or prod.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Programming language of the command.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// What started the run, such as airflow.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestrator: Option<String>,
    /// What carries the run out, such as slurm or k8s.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// Identifier of the run in the orchestrator.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_run_id: Option<String>,
    /// Container image, with its tag.
    #[schemars(transform = Info)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_image: Option<String>,
}

impl RunMetrics {
    /// What is known of a run when it begins. Its command is taken as it is: who shows it masks it before.
    pub fn of(id: String, run: &Run) -> Self {
        let words = run.command.iter().map(|word| word.to_string_lossy().into_owned());
        let since = run.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            id,
            command: words.collect(),
            pid: run.pid,
            started_ms: since.as_millis() as u64,
            interval_secs: run.interval.as_secs_f64(),
            version: run.version.to_owned(),
            clock: None,
            group: RunGroup::of(&run.job.group),
            labels: RunLabels::of(&run.job),
            tags: run.job.tags.clone(),
        }
    }
}

impl RunLabels {
    /// What a job is called.
    pub fn of(job: &Job) -> Self {
        let Job {
            name,
            project_name,
            stage_name,
            task_name,
            team,
            env,
            language,
            orchestrator,
            executor,
            external_run_id,
            container_image,
            ..
        } = job.clone();
        Self {
            job_name: name,
            project_name,
            stage_name,
            task_name,
            team,
            env,
            language,
            orchestrator,
            executor,
            external_run_id,
            container_image,
        }
    }
}

impl Section for RunMetrics {
    const NAME: &'static str = "run";
}

crate::shared_section!(RunMetrics);

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value as Json};

    use super::*;

    #[test]
    fn every_label_of_a_job_is_in_it() -> serde_json::Result<()> {
        let keys: Map<String, Json> = serde_json::from_value(serde_json::to_value(Job::default())?)?;
        let named = keys.keys().map(|key| match key.as_str() {
            "tags" => (key.clone(), serde_json::json!({ "a": "1" })),
            "group" => (key.clone(), serde_json::json!({ "rank": 3 })),
            _ => (key.clone(), Json::from(key.as_str())),
        });
        let job: Job = serde_json::from_value(Json::Object(named.collect()))?;
        let mut run = Run::default();
        run.job = job;
        let metrics = RunMetrics::of("id".into(), &run);
        let labels: Map<String, Json> = serde_json::from_value(serde_json::to_value(&metrics.labels)?)?;
        // The tags and the group are none of them.
        assert_eq!((labels.len() + 2, metrics.tags.len()), (keys.len(), 1));
        assert_eq!(metrics.group.and_then(|group| group.rank), Some(3));
        assert!(labels.iter().all(|(key, value)| key == value || key == "job_name"));
        assert_eq!(RunLabels::of(&Job::default()), RunLabels::default());
        Ok(())
    }
}
