//! One run: what is configured becomes a tracker, around a command or alone.

use std::path::Path;

use anyhow::Context;
use resource_tracker_core::{Host, Run, SinkContext, Tracker};
use resource_tracker_sources::RunSource;

use crate::cli::Cli;
use crate::ending::Ending;
use crate::inherited::Inherited;
use crate::plan::Plan;
use crate::settings::settings;
use crate::{heap, standalone, surroundings, wrapper};

/// Runs to the end, and says how the program is to end.
///
/// # Errors
/// What is wrong with the configuration or with an output; no command was started.
pub(crate) fn run(cli: &Cli, inherited: &Inherited) -> anyhow::Result<Ending> {
    let settings = settings(cli)?;
    let derivations = settings.registry().derivations();
    let Plan { tracker: table, mut job, sources, sinks } = Plan::new(&settings)?;
    if table.detect {
        let variable = |name: &str| std::env::var(name).ok();
        surroundings::complete(&mut job.labels, &cli.command, variable, Path::new("/"));
    }
    let wraps = !cli.command.is_empty();
    let run = Run {
        program: crate::PROGRAM,
        version: env!("CARGO_PKG_VERSION"),
        job: job.labels,
        command: cli.command.clone(),
        // The process id of the command is not known yet.
        pid: job.pid.filter(|_| !wraps),
        interval: table.interval_secs.0,
        ..Run::default()
    };
    let host = Host::new(table.procfs, table.sysfs);
    let options = wrapper::Options { subreaper: !table.no_subreaper, cgroup: !table.no_cgroup, host: host.clone() };
    let labels = RunSource::of(&run.job);
    let mut tracker = Tracker::new(run).host(host.clone());
    if let Some(labels) = labels {
        tracker = tracker.own_source("run", labels, RunSource::SCHEDULE);
    }
    for (name, config) in sources {
        tracker = tracker.source(name, config);
    }
    for derivation in derivations {
        tracker = tracker.derivation(derivation.name(), derivation.build()?);
    }
    for (name, config) in sinks {
        let context = || format!("sinks.{name}");
        let sink = SinkContext { wraps_command: wraps };
        tracker = tracker.sink_from(name.clone(), &*config, &sink).with_context(context)?;
    }
    if !wraps {
        return standalone::run(tracker, host);
    }
    heap::outlive_want();
    Ok(wrapper::run(tracker, &cli.command, inherited, &options))
}
