//! The layers of the configuration, and the tables that belong to the program itself.

use std::path::{Path, PathBuf};

use resource_tracker_core::config::{ConfigError, ConfigFile, Interval, KnownTable};
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Job, Settings};
use resource_tracker_sinks::sentinel::TOKEN;
use resource_tracker_sinks::{Columns, Format};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cli::Cli;
use crate::variables::Switch;
use crate::{outputs, plugins, variables};

/// The table of the sink that streams to Sentinel.
pub(crate) const SENTINEL: &str = "sinks.sentinel-s3";

const DEFAULT_FILE: &str = "resource-tracker.toml";

/// How to sample, and where samples go when no sink is configured: the table `[tracker]`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TrackerTable {
    /// Time between samples: seconds, or a text with a unit such as "50ms".
    pub(crate) interval_secs: Interval,
    /// How samples are written; json, or csv for a file named .csv or .csv.gz.
    pub(crate) format: Option<Format>,
    /// The file that samples are appended to; "-" is standard output.
    pub(crate) output: Option<String>,
    /// Write no samples to standard output or standard error.
    #[serde(deserialize_with = "switch")]
    pub(crate) quiet: bool,
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
    /// Where procfs is mounted.
    #[schemars(extend("x-needs-named-file" = true))]
    pub(crate) procfs: PathBuf,
    /// Where sysfs is mounted.
    #[schemars(extend("x-needs-named-file" = true))]
    pub(crate) sysfs: PathBuf,
}

impl Default for TrackerTable {
    fn default() -> Self {
        Self {
            interval_secs: Interval(std::time::Duration::from_secs(1)),
            format: None,
            output: None,
            quiet: false,
            csv_columns: None,
            no_subreaper: false,
            no_cgroup: false,
            detect: true,
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
    #[serde(flatten)]
    pub(crate) labels: Job,
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
    pid.map(Some).ok_or_else(|| serde::de::Error::custom("must be a process id, a whole number of 1 or more"))
}

/// The tables beside `sources` and `sinks`.
pub(crate) fn known_tables() -> [KnownTable; 3] {
    [
        KnownTable::new::<JobTable>("job"),
        KnownTable::new::<PluginsTable>("plugins"),
        KnownTable::new::<TrackerTable>("tracker"),
    ]
}

/// Reads the configuration file that the user named, or the one that lies in the current folder.
pub(crate) fn config_file(cli: &Cli) -> ConfigFile {
    let variable = || std::env::var_os(variables::CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
    match cli.configuration.config.clone().or_else(variable) {
        Some(path) => ConfigFile::named(&path),
        None => ConfigFile::found(Path::new(DEFAULT_FILE)),
    }
}

/// The whole configuration. That its file cannot be used is no error, but is said; so is a variable that says nothing.
pub(crate) fn settings(cli: &Cli) -> anyhow::Result<Settings> {
    let file = config_file(cli);
    if let Some(problem) = file.problem() {
        log::warn!("{problem}; the defaults are used");
    }
    let settings = settings_with(cli, &file)?;
    for problem in variables::ignored(&settings) {
        log::warn!("{problem}");
    }
    Ok(settings)
}

/// All layers: the file, the environment, the flags, and below them the sink that samples go to by default.
pub(crate) fn settings_with(cli: &Cli, file: &ConfigFile) -> anyhow::Result<Settings> {
    let mut settings = layers(cli, file, Registry::new(), &[])?;
    let (registry, switches) = (plugins::load(cli, &settings)?, variables::switches());
    if registry.plugins().next().is_some() || !switches.is_empty() {
        // Once more, because names of components matter in the layers.
        settings = layers(cli, file, registry, &switches)?;
    }
    let tracker: TrackerTable = settings.extract("tracker")?;
    settings = outputs::default_sink(settings, &tracker)?;
    settings = sentinel(settings);
    if !cli.configuration.set.is_empty() {
        settings.check_assignments(&known_tables())?;
    }
    for name in &cli.configuration.enable {
        settings = settings.switch("--enable", name, true)?;
    }
    for name in &cli.configuration.disable {
        settings = settings.switch("--disable", name, false)?;
    }
    outputs::check_streams(&settings, !cli.command.is_empty())?;
    Ok(settings)
}

/// What the user set, wherever.
fn layers(cli: &Cli, file: &ConfigFile, registry: Registry, switches: &[Switch]) -> Result<Settings, ConfigError> {
    let mut settings = variables::layer(Settings::of(registry).config_file(file.clone()))?;
    for Switch { variable, component, on } in switches {
        settings = settings.switch(variable, component, *on)?;
    }
    settings = flags(settings, cli);
    for (key, value) in &cli.configuration.set {
        settings = settings.set_assignment("--set", &format!("{key}={value}"))?;
    }
    if file.was_found() {
        settings.check_found_file(&known_tables())?;
    }
    Ok(settings)
}

fn flags(mut settings: Settings, cli: &Cli) -> Settings {
    let metadata = &cli.metadata;
    let texts = [
        ("--output", "tracker.output", &cli.output.output),
        ("--format", "tracker.format", &cli.output.format),
        ("--csv-columns", "tracker.csv_columns", &cli.output.csv_columns),
        ("--job-name", "job.name", &metadata.job_name),
        ("--project-name", "job.project_name", &metadata.project_name),
        ("--stage-name", "job.stage_name", &metadata.stage_name),
        ("--task-name", "job.task_name", &metadata.task_name),
        ("--team", "job.team", &metadata.team),
        ("--env", "job.env", &metadata.env),
        ("--language", "job.language", &metadata.language),
        ("--orchestrator", "job.orchestrator", &metadata.orchestrator),
        ("--executor", "job.executor", &metadata.executor),
        ("--external-run-id", "job.external_run_id", &metadata.external_run_id),
        ("--container-image", "job.container_image", &metadata.container_image),
    ];
    for (flag, key, value) in texts {
        if let Some(value) = value {
            settings = settings.set(flag, key, value.as_str());
        }
    }
    if let Some(interval) = cli.sampling.interval {
        settings = settings.set("--interval", "tracker.interval_secs", interval.0.as_secs_f64());
    }
    if let Some(pid) = cli.sampling.pid {
        settings = settings.set("--pid", "job.pid", pid);
    }
    for (flag, key, on) in [
        ("--quiet", "tracker.quiet", cli.output.quiet),
        ("--no-subreaper", "tracker.no_subreaper", cli.sampling.no_subreaper),
        ("--no-cgroup", "tracker.no_cgroup", cli.sampling.no_cgroup),
    ] {
        if on {
            settings = settings.set(flag, key, true);
        }
    }
    if let Some(directory) = &cli.output.spool_dir {
        settings = settings.set("--spool-dir", &format!("{SENTINEL}.spool_dir"), directory.to_string_lossy().as_ref());
    }
    if let Some(limit) = cli.output.spool_max {
        settings = settings.set("--spool-max", &format!("{SENTINEL}.spool_max_mib"), limit);
    }
    for (key, value) in &metadata.tag {
        settings = settings.set_at("--tag", ["job", "tags", key].into_iter(), value.as_str());
    }
    settings
}

/// With a token samples are streamed, and the cloud is asked what it is. Without one there is no connection.
fn sentinel(settings: Settings) -> Settings {
    if std::env::var_os(TOKEN).is_none_or(|token| token.is_empty()) {
        return settings;
    }
    let settings = settings.set_default(TOKEN, &format!("{SENTINEL}.enabled"), true);
    settings.set_default(TOKEN, "sources.cloud.enabled", true)
}

#[cfg(test)]
mod tests {
    use resource_tracker_core::config::NEEDS_NAMED_FILE;
    use resource_tracker_core::registry::Kind;

    use super::*;

    /// The keys that a file which nobody named may set: they neither load code, nor say where secrets go or come from, nor
    /// what is believed or destroyed. `path` and `output` are among them, because to record into a file is what such a file is
    /// for, and a file that holds anything but samples is refused.
    const HARMLESS: &[&str] = &[
        "job.container_image",
        "job.env",
        "job.executor",
        "job.external_run_id",
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
        "sinks.file.mode",
        "sinks.file.path",
        "sinks.file.rotate_bytes",
        "sinks.file.rotate_keep",
        "sinks.file.rotate_secs",
        "sinks.sentinel-s3.finish_timeout_secs",
        "sinks.sentinel-s3.spool_max_mib",
        "sinks.sentinel-s3.upload_interval_secs",
        "sinks.stdout-json.stream",
        "sources.host.suppress",
        "sources.process.pss_budget_pct",
        "tracker.csv_columns",
        "tracker.detect",
        "tracker.format",
        "tracker.interval_secs",
        "tracker.no_cgroup",
        "tracker.no_subreaper",
        "tracker.output",
        "tracker.quiet",
    ];

    #[test]
    fn of_every_key_it_is_known_whether_it_needs_a_named_file() {
        let registry = Registry::new();
        let components = Kind::ALL.into_iter().flat_map(|kind| {
            let table = move |name: &str| format!("{}.{name}", kind.table());
            registry.of(kind).into_iter().map(move |component| (table(component.name), component.schema()))
        });
        let tables = known_tables().into_iter().map(|table| (table.name.to_owned(), table.schema));
        let mut unmarked = Vec::new();
        for (table, schema) in tables.chain(components).filter(|(_, schema)| schema[NEEDS_NAMED_FILE] != true) {
            let keys = schema["properties"].as_object().into_iter().flatten();
            let keys = keys.filter(|(_, key)| key[NEEDS_NAMED_FILE] != true);
            unmarked.extend(keys.map(|(name, _)| format!("{table}.{name}")));
        }
        unmarked.sort_unstable();
        assert_eq!(unmarked, HARMLESS, "mark a new key with {NEEDS_NAMED_FILE}, or list it here with a reason");
    }
}
