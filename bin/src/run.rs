//! One run: what is configured becomes a tracker, around a command or alone.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use nix::sys::signal::SigSet;
use resource_tracker_core::config::ByName;
use resource_tracker_core::registry::Registry;
use resource_tracker_core::{Host, Run, SinkContext, SourceConfig, Tracker};
use resource_tracker_metrics::RunMetrics;
use resource_tracker_sources::{MARK_DESCRIPTORS, MarkSource, OutcomeSource, RunEnd, RunSource, clock_error};

use crate::cli::Cli;
use crate::ending::Ending;
use crate::inherited::Inherited;
use crate::plan::Plan;
use crate::settings::{config_files, settings};
use crate::{ranks, standalone, surroundings, wrapper};

/// Runs to the end, and says how the program is to end.
///
/// # Errors
/// What is wrong with the configuration or with an output; no command was started.
pub(crate) fn run(cli: &Cli, inherited: &Inherited) -> anyhow::Result<Ending> {
    let files = config_files(cli);
    // This comes before foreign code is loaded: its threads inherit the blocked signals, and so take none that is meant
    // for the command or would end this process.
    SigSet::all().thread_block()?;
    let settings = settings(cli, &files)?;
    let Plan { tracker: table, mut job, sources, sinks } = Plan::new(&settings)?;
    if table.detect {
        let variable = |name: &str| std::env::var(name).ok();
        surroundings::complete(&mut job.labels, &cli.command, variable, Path::new("/"));
        ranks::complete(&mut job.labels, variable, ranks::host);
    }
    let is_enforced = settings.is_enforced("job.tags_from");
    surroundings::tag(&mut job.labels, &job.tags_from, |name| std::env::var(name).ok(), is_enforced);
    let wraps = !cli.command.is_empty();
    let mut run = Run::new(crate::PROGRAM, env!("CARGO_PKG_VERSION"));
    (run.job, run.command, run.interval) = (job.labels, cli.command.clone(), table.interval_secs.into());
    // The process id of the command is not known yet.
    run.pid = job.pid.filter(|_| !wraps);
    let host = Host::new(table.procfs, table.sysfs);
    let options = wrapper::Options { subreaper: !table.no_subreaper, cgroup: !table.no_cgroup, host: host.clone() };
    let end = RunEnd::default();
    let mut tracker = with_run(Tracker::new(run).host(host.clone()), &end);
    match wraps.then(MarkSource::open) {
        Some(Ok(marks)) => {
            if let Some(number) = marks.unusual_descriptor() {
                let usual = MARK_DESCRIPTORS.start();
                log::warn!(
                    "descriptor {usual} is in use: programs that write their marks themselves must take {number}"
                );
            }
            tracker = tracker.own_source("marks", marks, MarkSource::SCHEDULE);
        }
        // Where there is no room for its pipe, marks are not read.
        Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => (),
        Some(Err(error)) => log::warn!("marks of the command are not heard: {error}"),
        None => (),
    }
    let sinks_know = SinkContext::new(wraps).with_registry(settings.registry().clone()).with_host(host.clone());
    let mut tracker = with_sources(tracker, sources, settings.registry(), &host)?;
    if !wraps && sinks.is_empty() {
        log::warn!("no samples are kept, because nothing takes them; -o FILE writes them to a file");
    }
    for (name, config) in sinks {
        tracker = tracker.sink_from(name, &*config, &sinks_know)?;
    }
    if !wraps {
        return standalone::run(tracker, host, inherited, &end);
    }
    Ok(wrapper::run(tracker, &cli.command, inherited, &options, &end))
}

/// Adds the sources about the run itself.
pub(crate) fn with_run(tracker: Tracker, end: &RunEnd) -> Tracker {
    let run = tracker.run().clone();
    let tracker = tracker.own_source("run", RunSource::new(move || description(run)), RunSource::SCHEDULE);
    tracker.own_source("outcome", OutcomeSource::new(end.clone()), OutcomeSource::SCHEDULE)
}

/// Adds the configured sources, and the derivations from their figures.
///
/// # Errors
/// When a derivation cannot be built.
pub(crate) fn with_sources(
    mut tracker: Tracker,
    sources: ByName<Box<dyn SourceConfig>>,
    registry: &Registry,
    host: &Host,
) -> anyhow::Result<Tracker> {
    for (name, config) in sources {
        tracker = tracker.source(name, config);
    }
    Ok(tracker.derivations_of(registry, host)?)
}

/// A sample has at most so many words of a command, and so many bytes. To mask a word takes some microseconds, and a
/// byte up to two.
const COMMAND_WORDS: usize = 256;
const COMMAND_BYTES: usize = 64 * 1024;

/// The section of the first sample about the run.
fn description(mut run: Run) -> RunMetrics {
    let mut bytes = 0;
    let fits = |word: &&OsString| {
        bytes += word.len();
        bytes <= COMMAND_BYTES
    };
    let told = run.command.iter().take(COMMAND_WORDS).take_while(fits).count();
    if told < run.command.len() {
        run.command.truncate(told);
        run.command.push("...".into());
    }
    let mut description = RunMetrics::of(uuid::Uuid::now_v7().to_string(), &run);
    description.clock = clock_error();
    description.command = resource_tracker_mask::command(&description.command);
    description
}
