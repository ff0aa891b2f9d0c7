//! `schema --metrics`: what others call the figures of a sample.

use std::fmt::Write;

use resource_tracker_telemetry::prometheus::Families;
use resource_tracker_telemetry::{Instrument, Names};

use super::standard_output::print;
use crate::cli::Cli;
use crate::settings::{config_files, settings};

/// A table with a row for each figure, with those of the plugins that are loaded.
pub(crate) fn metrics(cli: &Cli) -> anyhow::Result<i32> {
    let names = Names::new(settings(cli, &config_files(cli))?.registry());
    let families = Families::new(&names);
    let mut text = String::from(
        "| field | OpenTelemetry | attributes | unit | instrument | Prometheus |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for field in names.fields() {
        let metric = &names.metrics()[field.metric];
        let attributes = field.attributes.iter().map(|(name, value)| match value {
            Some(value) => format!("`{name}={value}`"),
            None => format!("`{name}`"),
        });
        let instrument = match metric.instrument {
            Instrument::Gauge => "Gauge",
            Instrument::UpDownCounter => "UpDownCounter",
            Instrument::Counter => "Counter",
        };
        writeln!(
            text,
            "| `{}` | `{}` | {} | `{}` | {instrument} | {} |",
            field.path,
            metric.name,
            attributes.collect::<Vec<_>>().join(", "),
            metric.unit,
            families.name(field.metric).map(|name| format!("`{name}`")).unwrap_or_default(),
        )?;
    }
    print(text.as_bytes())
}
