//! The layers of the configuration.

use std::path::{Path, PathBuf};

use resource_tracker_core::Settings;
use resource_tracker_core::config::{ConfigError, ConfigFile, Origin};
use resource_tracker_core::registry::Registry;
use resource_tracker_sinks::sentinel::TOKEN;

use crate::cli::Cli;
use crate::tables::{JobTable, KNOWN_TABLES, PerNode, SENTINEL, SiteTable, TrackerTable};
use crate::{outputs, plugins, ranks, variables};

const DEFAULT_FILE: &str = "resource-tracker.toml";
/// What the administrator of the machine sets for everybody.
pub(crate) const SITE_FILE: &str = "/etc/resource-tracker.toml";

/// The configuration files of a run.
pub(crate) struct ConfigFiles {
    pub(crate) site: ConfigFile,
    /// The one that the user named, or the one that lies in the current folder.
    pub(crate) user: ConfigFile,
}

/// Reads the configuration files.
pub(crate) fn config_files(cli: &Cli) -> ConfigFiles {
    let variable = || std::env::var_os(variables::CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
    let user = match cli.configuration.config.clone().or_else(variable) {
        Some(path) => ConfigFile::named(&path),
        None => ConfigFile::found(Path::new(DEFAULT_FILE)),
    };
    ConfigFiles { site: ConfigFile::of_site(Path::new(SITE_FILE)), user }
}

/// The whole configuration. A file that cannot be used is no error but a warning, and so is what has no effect.
pub(crate) fn settings(cli: &Cli, files: &ConfigFiles) -> anyhow::Result<Settings> {
    for problem in [&files.site, &files.user].into_iter().filter_map(ConfigFile::problem) {
        log::warn!("{problem}; the defaults are used");
    }
    let settings = settings_with(cli, files)?;
    for problem in without_effect(&settings) {
        log::warn!("{problem}");
    }
    Ok(settings)
}

/// What was set and counts for nothing.
pub(crate) fn without_effect(settings: &Settings) -> Vec<String> {
    let mut problems = variables::ignored(settings);
    problems.extend(settings.overruled());
    problems
}

/// All layers: the files, the environment, the flags, and below them the sink that samples go to by default.
pub(crate) fn settings_with(cli: &Cli, files: &ConfigFiles) -> anyhow::Result<Settings> {
    let mut settings = layers(cli, files)?;
    let registry = plugins::load(cli, &settings)?;
    settings = settings.with_registry(registry);
    let tracker: TrackerTable = settings.extract("tracker")?;
    settings = per_node(settings, &tracker)?;
    settings = outputs::default_sink(settings, &tracker, !cli.command.is_empty())?;
    settings = variables::suppress(sentinel(settings));
    outputs::check_streams(&settings, !cli.command.is_empty())?;
    Ok(settings)
}

/// What the user set, wherever.
fn layers(cli: &Cli, files: &ConfigFiles) -> Result<Settings, ConfigError> {
    let mut settings = flags(variables::layer(tables_and_files(Registry::new(), files))?, cli);
    for (key, value) in &cli.lists.set {
        settings = settings.set_assignment("--set", &format!("{key}={value}"))?;
    }
    for (flag, names, on) in [("--enable", &cli.lists.enable, true), ("--disable", &cli.lists.disable, false)] {
        settings = names.iter().fold(settings, |settings, name| settings.switch(flag, name, on));
    }
    Ok(settings)
}

/// The configuration of the files alone.
pub(crate) fn tables_and_files(registry: Registry, files: &ConfigFiles) -> Settings {
    let tables = Settings::of(registry).tables(KNOWN_TABLES);
    if files.site.is_missing() {
        return tables.config_file(files.user.clone());
    }
    let site = tables.clone().site_file(files.site.clone()).extract::<SiteTable>("site");
    let enforced = site.unwrap_or_else(|problem| {
        log::warn!("{problem}; nothing is enforced");
        SiteTable::default()
    });
    let enforced = enforced.enforce;
    let (settings, problems) = tables.site_file(files.site.clone()).enforce(&enforced);
    for problem in problems {
        log::warn!("{problem}");
    }
    settings.config_file(files.user.clone())
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

/// The sources that read the machine and its GPUs.
const OF_MACHINE: [&str; 13] = [
    "amd",
    "cloud",
    "cpu",
    "cpufreq",
    "disk",
    "disk-discard",
    "energy",
    "memory",
    "network",
    "nvidia",
    "pressure",
    "run-queue",
    "tcp",
];

/// Where one run for each node reads the machine, the others do not, unless they are asked to.
fn per_node(mut settings: Settings, tracker: &TrackerTable) -> Result<Settings, ConfigError> {
    if tracker.per_node == PerNode::Each {
        return Ok(settings);
    }
    let mut job: JobTable = settings.extract("job")?;
    if tracker.detect {
        ranks::complete(&mut job.labels, |name| std::env::var(name).ok(), ranks::host);
    }
    if let Some(rank) = job.labels.group.local_rank.filter(|rank| *rank > 0) {
        for name in OF_MACHINE {
            let why = Origin::default_of(format!("tracker.per_node: this is local rank {rank}"));
            settings = settings.set(why, &format!("sources.{name}.enabled"), false);
        }
    }
    Ok(settings)
}

/// With a token samples are streamed, and the cloud is asked what it is. Without one there is no connection.
fn sentinel(settings: Settings) -> Settings {
    if std::env::var_os(TOKEN).is_none_or(|token| token.is_empty()) {
        return settings;
    }
    let settings = settings.set(Origin::default_of(TOKEN), &format!("{SENTINEL}.enabled"), true);
    settings.set(Origin::default_of(TOKEN), "sources.cloud.enabled", true)
}
