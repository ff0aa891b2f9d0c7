//! Where samples go.

use std::io::IsTerminal;

use resource_tracker_core::Settings;
use resource_tracker_core::config::{ConfigError, ConfigErrorKind, Origin};
use resource_tracker_core::registry::ComponentKind;
use resource_tracker_sinks::Format;
use serde::Serialize;

use crate::tables::TrackerTable;

/// The sinks that write to a stream.
const TO_STREAMS: [&str; 2] = ["stdout-json", "csv"];

/// Where samples go unless sinks are configured: a file, or a stream, or nowhere. Around a command on a terminal a summary at the
/// end takes the place of the stream.
///
/// # Errors
/// When columns are named for JSON, which has none.
pub(crate) fn default_sink(
    mut settings: Settings,
    tracker: &TrackerTable,
    wraps_command: bool,
) -> Result<Settings, ConfigError> {
    let columns = tracker.csv_columns.and_then(|columns| as_text(&columns));
    // A person wants to know what the command took, and reads no samples.
    let is_read_by_person = wraps_command && std::io::stderr().is_terminal() && !tracker.quiet;
    let wants_samples = tracker.output.is_some() || tracker.format.is_some() || columns.is_some();
    let shows_summary = is_read_by_person && (tracker.output.is_some() || !wants_samples);
    if tracker.summary {
        settings = settings.imply("tracker.summary", "sinks.summary.enabled", true);
    } else if shows_summary {
        settings = settings.set(Origin::default_of("a terminal"), "sinks.summary.enabled", true);
    }
    let format = tracker.format.and_then(|format| as_text(&format));
    let stream = match tracker.format {
        Some(Format::Csv) => "csv",
        None if columns.is_some() => "csv",
        _ => "stdout-json",
    };
    match tracker.output.as_deref().filter(|path| *path != "-") {
        Some(path) => {
            let by = "tracker.output";
            settings = settings.imply(by, "sinks.output.enabled", true).imply(by, "sinks.output.type", "file");
            settings = settings.imply(by, "sinks.output.path", path);
            if let Some(format) = format {
                settings = settings.imply("tracker.format", "sinks.output.format", format);
            }
            if let Some(columns) = columns {
                settings = settings.imply("tracker.csv_columns", "sinks.output.columns", columns);
            }
        }
        None if tracker.output.is_none() && tracker.quiet => {
            for stream in TO_STREAMS {
                settings = settings.imply("tracker.quiet", &format!("sinks.{stream}.enabled"), false);
            }
        }
        None if is_read_by_person && !wants_samples => (),
        None => {
            let key = |key: &str| format!("sinks.{stream}.{key}");
            settings = match tracker.output {
                Some(_) => {
                    let by = "tracker.output";
                    settings = settings.imply(by, &key("enabled"), true).imply(by, &key("type"), stream);
                    settings.imply(by, &key("stream"), "stdout")
                }
                None => settings.set(Origin::default_of("the default"), &key("enabled"), true),
            };
            if stream == "csv" {
                if let Some(columns) = columns {
                    settings = settings.imply("tracker.csv_columns", &key("columns"), columns);
                }
            } else if columns.is_some() {
                let key = "tracker.csv_columns";
                let problem = "JSON has no columns; leave them out, or say --format csv";
                let mut error = ConfigError::new(ConfigErrorKind::BadValue, key, problem).with_value(columns);
                error.origin = settings.origin(key);
                return Err(error);
            }
        }
    }
    Ok(settings)
}

/// Refuses two sinks on one stream, where nobody could tell their lines apart.
///
/// # Errors
/// Names both sinks and the ways out.
pub(crate) fn check_streams(settings: &Settings, wraps_command: bool) -> Result<(), ConfigError> {
    let mut taken: Vec<(String, String)> = Vec::new();
    for sink in settings.components(ComponentKind::Sink)?.into_iter().filter(|sink| sink.state.on) {
        if !TO_STREAMS.contains(&sink.component_type.name) {
            continue;
        }
        let stream = match sink.values().get("stream").and_then(|stream| stream.as_str()) {
            Some("stdout") => "standard output",
            Some("stderr") => "standard error",
            _ if wraps_command => "standard error",
            _ => "standard output",
        };
        if let Some((other, _)) = taken.iter().find(|(_, taken)| taken == stream) {
            let key = format!("sinks.{}", sink.name);
            let free = if stream == "standard output" { "stderr" } else { "stdout" };
            let problem = format!(
                "{other} writes to {stream} as well; turn one off (--disable {other}), take --format csv for CSV alone, or send \
                 one elsewhere (--set {key}.stream={free}, or -o FILE)",
            );
            return Err(ConfigError::new(ConfigErrorKind::BadValue, key, problem).with_origin(sink.state.why));
        }
        taken.push((sink.name, stream.to_owned()));
    }
    Ok(())
}

/// The name of a choice as the configuration has it.
fn as_text(value: &impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned))
}
