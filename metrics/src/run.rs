use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use resource_tracker_core::Job;
use resource_tracker_core::Section;
use resource_tracker_core::unit::Info;

/// What the run is called: `run`. It is in the first sample, and only when there is something to tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct RunMetrics {
    /// Labels that were given, or that the batch system, the workflow or the container tells.
    pub labels: RunLabels,
    /// Any further labels, by name.
    pub tags: BTreeMap<String, String>,
}

/// The labels that are set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
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
    /// What a job is called; `None` when it is called nothing.
    pub fn of(job: &Job) -> Option<Self> {
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
            tags,
            ..
        } = job.clone();
        let labels = RunLabels {
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
        };
        (labels != RunLabels::default() || !tags.is_empty()).then_some(Self { labels, tags })
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
            _ => (key.clone(), Json::from(key.as_str())),
        });
        let job: Job = serde_json::from_value(Json::Object(named.collect()))?;
        let metrics = RunMetrics::of(&job).unwrap_or_default();
        let labels: Map<String, Json> = serde_json::from_value(serde_json::to_value(&metrics.labels)?)?;
        assert_eq!((labels.len() + 1, metrics.tags.len()), (keys.len(), 1));
        assert!(labels.iter().all(|(key, value)| key == value || key == "job_name"));
        assert_eq!(RunMetrics::of(&Job::default()), None);
        Ok(())
    }
}
