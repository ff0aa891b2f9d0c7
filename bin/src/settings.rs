//! The layers of the configuration.

use std::path::{Path, PathBuf};

use resource_tracker_core::Settings;
use resource_tracker_core::config::{ConfigError, ConfigFile, Origin};
use resource_tracker_core::registry::Registry;
use resource_tracker_sinks::sentinel::TOKEN;

use crate::cli::Cli;
use crate::tables::{KNOWN_TABLES, SENTINEL, TrackerTable};
use crate::{outputs, plugins, variables};

const DEFAULT_FILE: &str = "resource-tracker.toml";

/// Reads the configuration file that the user named, or the one that lies in the current folder.
pub(crate) fn config_file(cli: &Cli) -> ConfigFile {
    let variable = || std::env::var_os(variables::CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
    match cli.configuration.config.clone().or_else(variable) {
        Some(path) => ConfigFile::named(&path),
        None => ConfigFile::found(Path::new(DEFAULT_FILE)),
    }
}

/// The whole configuration. A file that cannot be used is no error but a warning, and so is a variable without effect.
pub(crate) fn settings(cli: &Cli, file: &ConfigFile) -> anyhow::Result<Settings> {
    if let Some(problem) = file.problem() {
        log::warn!("{problem}; the defaults are used");
    }
    let settings = settings_with(cli, file)?;
    for problem in variables::ignored(&settings) {
        log::warn!("{problem}");
    }
    Ok(settings)
}

/// All layers: the file, the environment, the flags, and below them the sink that samples go to by default.
pub(crate) fn settings_with(cli: &Cli, file: &ConfigFile) -> anyhow::Result<Settings> {
    let mut settings = layers(cli, file)?;
    let registry = plugins::load(cli, &settings)?;
    settings = settings.with_registry(registry);
    let tracker: TrackerTable = settings.extract("tracker")?;
    settings = outputs::default_sink(settings, &tracker, !cli.command.is_empty())?;
    settings = variables::suppress(sentinel(settings));
    outputs::check_streams(&settings, !cli.command.is_empty())?;
    Ok(settings)
}

/// What the user set, wherever.
fn layers(cli: &Cli, file: &ConfigFile) -> Result<Settings, ConfigError> {
    let mut settings = flags(variables::layer(tables_and_file(Registry::new(), file))?, cli);
    for (key, value) in &cli.lists.set {
        settings = settings.set_assignment("--set", &format!("{key}={value}"))?;
    }
    for (flag, names, on) in [("--enable", &cli.lists.enable, true), ("--disable", &cli.lists.disable, false)] {
        settings = names.iter().fold(settings, |settings, name| settings.switch(flag, name, on));
    }
    Ok(settings)
}

/// The configuration of a file alone.
pub(crate) fn tables_and_file(registry: Registry, file: &ConfigFile) -> Settings {
    Settings::of(registry).tables(KNOWN_TABLES).config_file(file.clone())
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
        settings =
            settings.set("--interval", "tracker.interval_secs", std::time::Duration::from(interval).as_secs_f64());
    }
    if let Some(pid) = cli.sampling.pid {
        settings = settings.set("--pid", "job.pid", pid);
    }
    for (flag, key, on) in [
        ("--quiet", "tracker.quiet", cli.output.quiet),
        ("--summary", "tracker.summary", cli.output.summary),
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
    for (key, value) in &cli.lists.tag {
        settings = settings.set_at("--tag", ["job", "tags", key], value.as_str());
    }
    settings
}

/// With a token samples are streamed, and the cloud is asked what it is. Without one there is no connection.
fn sentinel(settings: Settings) -> Settings {
    if std::env::var_os(TOKEN).is_none_or(|token| token.is_empty()) {
        return settings;
    }
    let settings = settings.set(Origin::default_of(TOKEN), &format!("{SENTINEL}.enabled"), true);
    settings.set(Origin::default_of(TOKEN), "sources.cloud.enabled", true)
}
