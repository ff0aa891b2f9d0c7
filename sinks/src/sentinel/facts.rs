//! The facts that a run is registered with.

use resource_tracker_core::{Run, Sample};
use resource_tracker_metrics::{CloudMetrics, HostMetrics};
use serde_json::{Map, Value};

/// What is sent of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SentCommand {
    /// All of it, with what looks like a password, a token or a key replaced by `***`.
    #[default]
    Masked,
    /// The name of the program, without its folder.
    Program,
    /// All of it, as it is.
    Whole,
    /// Nothing.
    None,
}

/// The labels of the run and its command.
pub(crate) fn of_run(run: &Run, command: SentCommand) -> Map<String, Value> {
    let job = &run.job;
    let labels = [
        ("job_name", &job.name),
        ("project_name", &job.project_name),
        ("stage_name", &job.stage_name),
        ("task_name", &job.task_name),
        ("team", &job.team),
        ("env", &job.env),
        ("language", &job.language),
        ("orchestrator", &job.orchestrator),
        ("executor", &job.executor),
        ("external_run_id", &job.external_run_id),
        ("container_image", &job.container_image),
    ];
    let labels = labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
    let mut facts: Map<String, Value> = labels.collect();
    if !job.tags.is_empty() {
        let tags = job.tags.iter().map(|(key, value)| (key.clone(), Value::from(value.clone())));
        facts.insert("tags".into(), tags.collect());
    }
    if command != SentCommand::None && !run.command.is_empty() {
        let words: Vec<String> = run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let words = match command {
            SentCommand::Masked => resource_tracker_mask::command(&words),
            SentCommand::Program => words[0].rsplit('/').take(1).map(str::to_owned).collect(),
            SentCommand::Whole | SentCommand::None => words,
        };
        facts.insert("command".into(), Value::from(words).to_string().into());
    }
    facts
}

/// The facts of a sample about the host and the cloud, under the names of the service. The second value says whether
/// the sample has both.
pub(crate) fn of_sample(sample: &Sample) -> (Map<String, Value>, bool) {
    let mut facts = Map::new();
    let (host, cloud) = (sample.get::<HostMetrics>(), sample.get::<CloudMetrics>());
    let sections = [host.map(serde_json::to_value), cloud.map(serde_json::to_value)];
    for section in sections.into_iter().flatten().flatten() {
        let Value::Object(fields) = section else { continue };
        facts.extend(fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
            let name = match name.as_str() {
                "host_name" => "host_hostname".to_owned(),
                "host_allocation" => "host_server_allocation".to_owned(),
                "host_gpu_vram_mib" => "host_gpu_memory_mib".to_owned(),
                _ => name,
            };
            (name, value)
        }));
    }
    (facts, host.is_some() && cloud.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_flat_and_what_is_unknown_is_left_out() {
        let mut run = Run::default();
        (run.job.name, run.job.team) = (Some("n".into()), Some("t".into()));
        run.job.tags = [("a".to_owned(), "1".to_owned())].into();
        (run.pid, run.command) = (Some(1), vec!["x".into(), "--token=abc".into()]);
        let facts = Value::from(of_run(&run, SentCommand::Masked));
        let expected = serde_json::json!({
            "job_name": "n", "team": "t", "tags": {"a": "1"}, "command": r#"["x","--token=***"]"#,
        });
        assert_eq!(facts, expected);
        assert_eq!(of_run(&run, SentCommand::None).get("command"), None);
        let mut program = Run::default();
        program.command = vec!["/opt/a/train".into(), "hunter2".into()];
        assert_eq!(of_run(&program, SentCommand::Program)["command"], r#"["train"]"#);
        assert_eq!(of_run(&run, SentCommand::Whole)["command"], r#"["x","--token=abc"]"#);
    }
}
