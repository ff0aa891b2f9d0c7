//! Environment variables: the keys that they set, the lists that some hold, and names that look like a slip of the pen.

use resource_tracker_core::Settings;
use resource_tracker_core::config::{ConfigError, ConfigErrorKind, Origin};
use resource_tracker_core::registry::{ComponentKind, nearest};
use resource_tracker_sources::HostField;

use crate::tables::SENTINEL;

/// The file that is read in place of the one in the current folder.
pub(crate) const CONFIG: &str = "TRACKER_CONFIG";
const ENABLE: &str = "TRACKER_ENABLE";
const DISABLE: &str = "TRACKER_DISABLE";
const PLUGIN: &str = "TRACKER_PLUGIN";
const TAG: &str = "TRACKER_TAG";
const SPOOL_MAX: &str = "TRACKER_SPOOL_MAX";

/// Variables of one text, and the keys that they set.
const TEXTS: [(&str, &str); 24] = [
    ("TRACKER_INTERVAL", "tracker.interval_secs"),
    ("TRACKER_FORMAT", "tracker.format"),
    ("TRACKER_OUTPUT", "tracker.output"),
    ("TRACKER_QUIET", "tracker.quiet"),
    ("TRACKER_SUMMARY", "tracker.summary"),
    ("TRACKER_CSV_COLUMNS", "tracker.csv_columns"),
    ("TRACKER_NO_SUBREAPER", "tracker.no_subreaper"),
    ("TRACKER_NO_CGROUP", "tracker.no_cgroup"),
    ("TRACKER_PLUGINS", "plugins.load"),
    ("TRACKER_PID", "job.pid"),
    ("TRACKER_JOB_NAME", "job.name"),
    ("TRACKER_PROJECT_NAME", "job.project_name"),
    ("TRACKER_STAGE_NAME", "job.stage_name"),
    ("TRACKER_TASK_NAME", "job.task_name"),
    ("TRACKER_TEAM", "job.team"),
    ("TRACKER_ENV", "job.env"),
    ("TRACKER_LANGUAGE", "job.language"),
    ("TRACKER_ORCHESTRATOR", "job.orchestrator"),
    ("TRACKER_EXECUTOR", "job.executor"),
    ("TRACKER_EXTERNAL_RUN_ID", "job.external_run_id"),
    ("TRACKER_CONTAINER_IMAGE", "job.container_image"),
    ("SENTINEL_API_URL", "sinks.sentinel-s3.api_url"),
    ("TRACKER_UPLOAD_INTERVAL", "sinks.sentinel-s3.upload_interval_secs"),
    ("TRACKER_SPOOL_DIR", "sinks.sentinel-s3.spool_dir"),
];
/// Variables that hold something else.
const OTHERS: [&str; 6] = [CONFIG, ENABLE, DISABLE, PLUGIN, TAG, SPOOL_MAX];

/// The layer of the environment, except for [`plugins`].
pub(crate) fn layer(settings: Settings) -> Result<Settings, ConfigError> {
    let mut settings = settings.environment(PREFIX, &TEXTS, std::env::vars_os())?;
    if let Some(text) = text(SPOOL_MAX) {
        let key = format!("{SENTINEL}.spool_max_mib");
        settings = match text.trim().parse::<u64>() {
            Ok(limit) => settings.set(Origin::variable(SPOOL_MAX), &key, limit),
            Err(_) => settings.set(Origin::variable(SPOOL_MAX), &key, text),
        };
    }
    for tag in list(TAG) {
        let (key, value) = crate::cli::assignment(&tag).map_err(|problem| {
            let problem = format!("{problem}, with commas between several");
            ConfigError::new(ConfigErrorKind::BadValue, TAG, problem).with_value(format!("{tag:?}"))
        })?;
        settings = settings.set_at(Origin::variable(TAG), ["job", "tags", &key], value);
    }
    for (variable, on) in [(ENABLE, true), (DISABLE, false)] {
        for component in list(variable) {
            settings = settings.switch(Origin::variable(variable), component, on);
        }
    }
    Ok(settings)
}

/// Leaves out fields of the machine whose variable is 0 or empty: `TRACKER_HOST_IP=0`. Fields that a key leaves out
/// stay out as well.
pub(crate) fn suppress(mut settings: Settings) -> Settings {
    let is_suppressed =
        |field: &&&str| std::env::var(of_host(field)).is_ok_and(|value| matches!(value.trim(), "" | "0"));
    let fields: Vec<&str> = HostField::NAMES.iter().filter(is_suppressed).copied().collect();
    if fields.is_empty() {
        return settings;
    }
    let origin = fields.iter().map(|field| of_host(field)).collect::<Vec<_>>().join(", ");
    // Errors in a component or in its list are reported where it is built.
    let sources = settings.components(ComponentKind::Source).unwrap_or_default();
    for source in sources.into_iter().filter(|source| source.component_type.name == "host") {
        let list = source.values().remove("suppress").unwrap_or_else(|| serde_json::json!([]));
        if let Ok(mut list) = serde_json::from_value::<Vec<String>>(list) {
            list.extend(fields.iter().map(|field| (*field).to_owned()));
            // This layer is above all others, because its list includes theirs.
            settings =
                settings.set_at(Origin::flag(&origin), [ComponentKind::Source.table(), &source.name, "suppress"], list);
        }
    }
    settings
}

/// Files of plugins to load.
pub(crate) fn plugins() -> Vec<String> {
    list(PLUGIN)
}

/// Variables without effect, because there is no such key or no such name. A name without the two underscores of a key
/// counts only if it is nearly one of ours: other programs have variables that begin with `TRACKER_` as well.
pub(crate) fn ignored(settings: &Settings) -> Vec<String> {
    let mut problems: Vec<String> = settings.ignored_variables().iter().map(ConfigError::to_string).collect();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    problems.extend(names.filter_map(|name| slip(&name)));
    problems.sort_unstable();
    problems
}

fn slip(name: &str) -> Option<String> {
    let bare = name.strip_prefix(PREFIX).filter(|bare| !bare.contains("__"))?;
    let known = known();
    let mut known = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
    if known.clone().any(|known| known == bare) {
        return None;
    }
    let near = nearest(bare, &mut known)?;
    Some(format!("{name}: there is no such variable, so it is ignored; did you mean {PREFIX}{near}?"))
}

const PREFIX: &str = "TRACKER_";

/// All names.
fn known() -> Vec<String> {
    let of_host = HostField::NAMES.iter().map(|field| of_host(field));
    TEXTS.iter().map(|(name, _)| *name).chain(OTHERS).map(str::to_owned).chain(of_host).collect()
}

/// The variable of a field of the machine.
fn of_host(field: &str) -> String {
    format!("{PREFIX}{}", field.to_uppercase())
}

/// An empty variable counts as not set.
fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.trim().is_empty())
}

/// The items of a list with commas between them.
fn list(variable: &str) -> Vec<String> {
    let items = text(variable).unwrap_or_default();
    items.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags without a variable.
    const WITHOUT: [(&str, &str); 3] = [
        ("help", "it is a question, and no setting"),
        ("version", "it is a question, and no setting"),
        ("set", "each key has a variable of its own, TRACKER_ and its path"),
    ];

    #[test]
    fn every_flag_has_a_variable() {
        let (mut command, known) = (crate::cli::command(), known());
        command.build();
        let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        assert!(flags.len() > 25, "{flags:?}");
        for flag in &flags {
            let variable = format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_"));
            let has_none = WITHOUT.iter().any(|(without, _)| without == flag);
            assert_eq!(known.contains(&variable), !has_none, "--{flag}: {variable}");
        }
        assert!(WITHOUT.iter().all(|(without, _)| flags.contains(without)));
    }

    #[test]
    fn a_name_that_is_nearly_one_of_ours_is_a_slip() {
        for (name, meant) in [
            ("TRACKER_INTERVALL", "TRACKER_INTERVAL"),
            ("TRACKER_INTERVAL_SECS", "TRACKER_INTERVAL"),
            ("TRACKER_SPOOLDIR", "TRACKER_SPOOL_DIR"),
            ("TRACKER_OUTPT", "TRACKER_OUTPUT"),
            ("TRACKER_TAGS", "TRACKER_TAG"),
            ("TRACKER_HOST_IPP", "TRACKER_HOST_IP"),
        ] {
            let said = slip(name).unwrap_or_default();
            assert!(
                said.starts_with(&format!("{name}: ")) && said.ends_with(&format!("did you mean {meant}?")),
                "{said}"
            );
        }
        let of_gnome = ["TRACKER_DB_ONTOLOGIES_DIR", "TRACKER_VERBOSITY", "TRACKER_DEBUG", "TRACKER_USE_LOG_FILES"];
        let others =
            ["TRACKER_URL", "TRACKER_TOKEN", "TRACKER_SINKS__FILE__PATH", "RESOURCE_TRACKER_INTERVALL", "PATH"];
        // Of a service of Kubernetes that is called tracker.
        let of_kubernetes = [
            "TRACKER_SERVICE_HOST",
            "TRACKER_SERVICE_PORT",
            "TRACKER_SERVICE_PORT_HTTP",
            "TRACKER_PORT",
            "TRACKER_PORT_80_TCP",
            "TRACKER_PORT_80_TCP_ADDR",
            "TRACKER_PORT_80_TCP_PORT",
            "TRACKER_PORT_80_TCP_PROTO",
        ];
        for name in of_gnome.iter().chain(&of_kubernetes).chain(&others).map(|name| (*name).to_owned()).chain(known()) {
            assert_eq!(slip(&name), None);
        }
    }
}
