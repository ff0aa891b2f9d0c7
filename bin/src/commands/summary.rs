//! `summary`: what recorded runs took.

use std::io;
use std::path::PathBuf;

use resource_tracker_core::registry::Registry;
use resource_tracker_core::sample_schema;
use resource_tracker_report::{Advice, Kinds, Look, json, markdown, read_runs, text};

use super::print;
use crate::cli::Cli;
use crate::settings::{config_file, settings};

/// Of all sections, those of the plugins that are configured as well. Recordings can be read without a configuration.
pub(super) fn kinds(cli: &Cli) -> Kinds {
    let registry = match settings(cli, &config_file(cli)) {
        Ok(settings) => settings.registry().clone(),
        Err(error) => {
            log::warn!("{error:#}; figures of plugins are taken as they come");
            Registry::new()
        }
    };
    Kinds::of_schema(move || sample_schema(crate::PROGRAM, &registry))
}

pub(crate) fn summary(cli: &Cli, files: &[PathBuf], as_json: bool, as_markdown: bool) -> anyhow::Result<i32> {
    let look = Look::of(&io::stdout());
    let mut enough: Option<Advice> = None;
    let mut count = 0;
    read_runs(files, &kinds(cli), &mut |run| {
        let text = match (as_json, as_markdown) {
            (true, _) => json(&run.summary)?,
            (_, true) => markdown(&run.summary),
            _ => text(&run.summary, look),
        };
        if count > 0 && !as_json {
            print(b"\n")?;
        }
        print(text.as_bytes())?;
        count += 1;
        let advice = run.summary.advice.iter().filter(|_| run.summary.is_success());
        enough = Advice::worst(enough.iter().chain(advice));
        Ok(())
    })?;
    if let Some(advice) = enough.filter(|_| count > 1 && !as_json) {
        print(format!("\nEnough for each of the runs that ended well: {}\n", advice.slurm).as_bytes())?;
    }
    Ok(0)
}
