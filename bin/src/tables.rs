//! The tables of the configuration that belong to the program itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use resource_tracker_core::Job;
use resource_tracker_core::config::{Interval, KnownTable};
use resource_tracker_sinks::{Columns, Format};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The table of the sink that streams to Sentinel.
pub(crate) const SENTINEL: &str = "sinks.sentinel-s3";

/// What is said of a process id that is none.
pub(crate) const NO_PROCESS_ID: &str = "must be a process id, a whole number of 1 or more";

/// How to sample, and where samples go when no sink is configured: the table `[tracker]`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TrackerTable {
    /// Time between samples: seconds, or a text with a unit such as "50ms".
    pub(crate) interval_secs: Interval,
    /// How samples are written; json, or csv for a file named .csv or .csv.gz.
    pub(crate) format: Option<Format>,
    /// The file that samples are appended to; "-" is standard output.
    #[schemars(extend("x-needs-named-file" = ["jsonl", "jsonl.gz", "ndjson", "ndjson.gz", "csv", "csv.gz"]))]
    pub(crate) output: Option<String>,
    /// Write no samples to standard output or standard error.
    #[serde(deserialize_with = "switch")]
    pub(crate) quiet: bool,
    /// Say at the end what the run took; around a command on a terminal it is said anyway.
    #[serde(deserialize_with = "switch")]
    pub(crate) summary: bool,
    /// Which columns a CSV has.
    pub(crate) csv_columns: Option<Columns>,
    /// Do not adopt orphans of the command.
    #[serde(deserialize_with = "switch")]
    pub(crate) no_subreaper: bool,
    /// Make no cgroup for the command.
    #[serde(deserialize_with = "switch")]
    pub(crate) no_cgroup: bool,
    /// Complete the labels of the run by what the batch system, the workflow or the container tells.
    #[serde(deserialize_with = "switch")]
    pub(crate) detect: bool,
    /// What one run for each rank of a job on several nodes reads of the machine.
    pub(crate) per_node: PerNode,
    /// Where procfs is mounted.
    #[schemars(extend("x-needs-named-file" = true))]
    pub(crate) procfs: PathBuf,
    /// Where sysfs is mounted.
    #[schemars(extend("x-needs-named-file" = true))]
    pub(crate) sysfs: PathBuf,
}

/// Which of the runs on one node read the machine and its GPUs. All read their own process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PerNode {
    /// Each of them.
    Each,
    /// The first, whose local rank is 0.
    Once,
}

impl Default for TrackerTable {
    fn default() -> Self {
        Self {
            interval_secs: Interval::default(),
            format: None,
            output: None,
            quiet: false,
            summary: false,
            csv_columns: None,
            no_subreaper: false,
            no_cgroup: false,
            detect: true,
            per_node: PerNode::Each,
            procfs: "/proc".into(),
            sysfs: "/sys".into(),
        }
    }
}

/// What is tracked and what it is called: the table `[job]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct JobTable {
    /// Root of the process tree to track.
    #[serde(deserialize_with = "pid")]
    pub(crate) pid: Option<i32>,
    /// Further tags, by the variable of the environment that has each, such as account = "SLURM_JOB_ACCOUNT".
    #[schemars(extend("x-needs-named-file" = true))]
    pub(crate) tags_from: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(crate) labels: Job,
}

/// What the administrator of a machine can say in the file for everybody: the table `[site]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-needs-named-file" = true))]
#[serde(default)]
pub(crate) struct SiteTable {
    /// Keys and tables of that file that no user can change, such as sinks.archive. In another file it has no effect.
    pub(crate) enforce: Vec<String>,
}

/// Which plugins are loaded: the table `[plugins]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-needs-named-file" = true))]
#[serde(default)]
pub(crate) struct PluginsTable {
    /// Files to load.
    #[serde(deserialize_with = "paths")]
    pub(crate) load: Vec<PathBuf>,
    /// A folder whose .so files are all loaded. It and they must belong to root or to you, and nobody else may write there.
    pub(crate) dir: Option<PathBuf>,
    /// Run each source and sink of a plugin in a process of its own, which may crash.
    #[serde(deserialize_with = "switch")]
    pub(crate) isolate: bool,
}

/// A list of paths, also as the text that a variable holds, with colons between them.
fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()),
        list @ Value::Array(_) => serde_json::from_value(list).map_err(serde::de::Error::custom),
        _ => Err(serde::de::Error::custom("must be a list of files")),
    }
}

/// True or false, also as the text that a variable holds.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(value) => Ok(value),
        Value::String(text) if ["1", "true", "yes", "on"].contains(&text.as_str()) => Ok(true),
        Value::String(text) if ["0", "false", "no", "off"].contains(&text.as_str()) => Ok(false),
        _ => Err(serde::de::Error::custom("must be true or false")),
    }
}

/// A process id, also as text.
fn pid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let pid = number.and_then(|number| i32::try_from(number).ok()).filter(|pid| *pid > 0);
    pid.map(Some).ok_or_else(|| serde::de::Error::custom(NO_PROCESS_ID))
}

/// The tables beside `sources` and `sinks`.
pub(crate) const KNOWN_TABLES: [KnownTable; 4] = [
    KnownTable::new::<JobTable>("job"),
    KnownTable::new::<PluginsTable>("plugins"),
    KnownTable::new::<SiteTable>("site"),
    KnownTable::new::<TrackerTable>("tracker"),
];

#[cfg(test)]
mod tests {
    use resource_tracker_core::config::NEEDS_NAMED_FILE;
    use resource_tracker_core::registry::{ComponentKind, Registry};

    use super::*;

    /// The keys that a file which nobody named may set: they neither load code, nor say where secrets go or come from, nor
    /// what is believed or destroyed.
    const HARMLESS: &[&str] = &[
        "job.container_image",
        "job.env",
        "job.executor",
        "job.external_run_id",
        "job.group",
        "job.language",
        "job.name",
        "job.orchestrator",
        "job.pid",
        "job.project_name",
        "job.stage_name",
        "job.tags",
        "job.task_name",
        "job.team",
        "sinks.csv.columns",
        "sinks.csv.stream",
        "sinks.file.columns",
        "sinks.file.format",
        "sinks.file.gzip",
        "sinks.file.rotate_bytes",
        "sinks.file.rotate_secs",
        "sinks.otlp.compression",
        "sinks.otlp.export_interval_secs",
        "sinks.otlp.finish_timeout_secs",
        "sinks.otlp.temporality",
        "sinks.otlp.timeout_secs",
        "sinks.prometheus.finish_timeout_secs",
        "sinks.prometheus.keep",
        // Without an address or a folder, only this machine can ask.
        "sinks.prometheus.mode",
        "sinks.prometheus.write_interval_secs",
        "sinks.s3.columns",
        "sinks.s3.finish_timeout_secs",
        "sinks.s3.format",
        "sinks.s3.object_interval_secs",
        "sinks.s3.object_rows",
        "sinks.sentinel-s3.finish_timeout_secs",
        "sinks.sentinel-s3.upload_interval_secs",
        "sinks.stdout-json.stream",
        "sinks.summary.format",
        "sinks.summary.stream",
        "sources.cgroup.pressure",
        "sources.host.suppress",
        "sources.process.pss_budget_pct",
        "sources.process.run_queue_wait",
        "sources.process.top",
        "tracker.csv_columns",
        "tracker.detect",
        "tracker.format",
        "tracker.interval_secs",
        "tracker.no_cgroup",
        "tracker.no_subreaper",
        "tracker.per_node",
        "tracker.quiet",
        "tracker.summary",
    ];

    #[test]
    fn of_every_key_it_is_known_whether_it_needs_a_named_file() {
        let registry = Registry::new();
        let components = ComponentKind::all().flat_map(|kind| {
            let table = move |name: &str| format!("{}.{name}", kind.table());
            registry.of(kind).into_iter().map(move |component| (table(component.name), component.schema()))
        });
        let tables = KNOWN_TABLES.into_iter().map(|table| (table.name().to_owned(), table.schema()));
        let mut unmarked = Vec::new();
        for (table, schema) in tables.chain(components).filter(|(_, schema)| schema[NEEDS_NAMED_FILE].is_null()) {
            let keys = schema["properties"].as_object().into_iter().flatten();
            let keys = keys.filter(|(_, key)| key[NEEDS_NAMED_FILE].is_null());
            unmarked.extend(keys.map(|(name, _)| format!("{table}.{name}")));
        }
        unmarked.sort_unstable();
        assert_eq!(unmarked, HARMLESS, "mark a new key with {NEEDS_NAMED_FILE}, or list it here with a reason");
    }
}
