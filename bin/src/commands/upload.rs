//! Sends what earlier runs left behind.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use resource_tracker_sinks::sentinel::{SentinelConfig, TOKEN};
use resource_tracker_sinks::{LeftBehind, Unsent, left_behind};

use super::standard_output::print;
use crate::cli::Cli;
use crate::settings::{config_files, settings};
use crate::tables::SENTINEL;

/// What happened to the runs, and which messages were given.
#[derive(Default)]
struct Count {
    waiting: u32,
    /// How many of them need a token.
    need_token: u32,
    sent: u32,
    left: u32,
    /// Destinations that take no other run now, either.
    given_up: HashSet<String>,
    has_said_that_it_waits: bool,
}

/// Returns 0 when nothing is left that should have been sent, 1 when something is, or cannot be read.
pub(crate) fn upload(cli: &Cli, dry_run: bool, directory: Option<&Path>) -> anyhow::Result<i32> {
    let config: SentinelConfig = settings(cli, &config_files(cli))?.extract(SENTINEL)?;
    let mut count = Count::default();
    let directory = directory.or(cli.output.spool_dir.as_deref());
    left_behind(directory, config.spool_dir.as_deref(), dry_run, |run| match run {
        Ok(run) if dry_run => {
            count.waiting += 1;
            count.need_token += u32::from(run.needs_token());
            print(format!("{}\n", describe(&run)).as_bytes()).map(drop)
        }
        Ok(run) if count.given_up.contains(&run.destination()) => {
            count.left += 1;
            Ok(())
        }
        Ok(run) => send(&config, run, &mut count),
        Err(error) => {
            count.left += 1;
            log::error!("{error:#}");
            Ok(())
        }
    })?;
    print(summary(dry_run, config.names_token(), &count).as_bytes())?;
    Ok(i32::from(count.left > 0))
}

fn send(config: &SentinelConfig, run: LeftBehind, count: &mut Count) -> anyhow::Result<()> {
    let (path, destination, what) = (run.path().to_owned(), run.destination(), describe(&run));
    let waits = |problem: &str, pause: Duration| {
        if !std::mem::replace(&mut count.has_said_that_it_waits, true) {
            log::warn!("{path}: {problem}; it is tried again in {} s", pause.as_secs_f64().ceil());
        }
    };
    match run.send(config, waits) {
        Ok(()) => {
            count.sent += 1;
            print(format!("{what}: sent\n").as_bytes()).map(drop)
        }
        Err(unsent) => {
            count.left += 1;
            if matches!(unsent, Unsent::Destination(_)) {
                count.given_up.insert(destination);
            }
            let (Unsent::Run(problem) | Unsent::Destination(problem)) = unsent;
            log::error!("{path}: {problem}");
            Ok(())
        }
    }
}

fn describe(run: &LeftBehind) -> String {
    format!("{}: {}", run.path(), run.describe())
}

fn summary(dry_run: bool, has_token: bool, count: &Count) -> String {
    let runs = |count: u32| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let left = if count.left == 0 { String::new() } else { format!(", {} left", runs(count.left)) };
    match count {
        Count { waiting: 0, sent: 0, left: 0, .. } => "nothing waits\n".to_owned(),
        _ if dry_run && !has_token && count.need_token > 0 => format!(
            "{} would be sent if there were a token: set {TOKEN}, or token_file in [{SENTINEL}]{left}\n",
            runs(count.waiting)
        ),
        _ if dry_run => format!("{} would be sent{left}\n", runs(count.waiting)),
        _ => format!("{} sent{left}\n", runs(count.sent)),
    }
}
