//! Sends what earlier runs left behind.

use std::path::Path;

use resource_tracker_sinks::sentinel::SentinelConfig;

use super::print;
use crate::cli::Cli;
use crate::settings::{SENTINEL, settings};

/// Returns 0 when nothing is left, 1 when something is.
pub(crate) fn upload(cli: &Cli, dry_run: bool, directory: Option<&Path>) -> anyhow::Result<i32> {
    let config: SentinelConfig = settings(cli)?.extract(SENTINEL)?;
    let runs = config.left_behind(directory)?;
    let (mut sent, mut left) = (0, 0);
    for run in runs {
        let (path, run_id, batches) = run.describe();
        let name = run_id.map_or("a run that is not registered".to_owned(), |run_id| format!("run {run_id}"));
        let plural = if batches == 1 { "" } else { "es" };
        let what = format!("{path}: {name}, {batches} batch{plural}");
        if dry_run {
            left += 1;
            print(format!("{what}\n").as_bytes())?;
            continue;
        }
        match config.send(run) {
            Ok(()) => {
                sent += 1;
                print(format!("{what}: sent\n").as_bytes())?;
            }
            Err(error) => {
                left += 1;
                log::error!("{path}: {error:#}");
            }
        }
    }
    let runs = |count: u32| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let summary = match (dry_run, sent, left) {
        (_, 0, 0) => "nothing waits\n".to_owned(),
        (true, _, left) => format!("{} would be sent\n", runs(left)),
        (false, sent, 0) => format!("{} sent\n", runs(sent)),
        (false, sent, left) => format!("{} sent, {} left\n", runs(sent), runs(left)),
    };
    print(summary.as_bytes())?;
    Ok(i32::from(!dry_run && left > 0))
}
