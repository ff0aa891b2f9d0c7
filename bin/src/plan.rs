//! The plan of a run, the same for `config check` and for the run itself.

use anyhow::Context;
use resource_tracker_core::config::ByName;
use resource_tracker_core::{Settings, SinkConfig, SourceConfig};

use crate::settings::SITE_FILE;
use crate::tables::{JobTable, TrackerTable};

/// A run as it is configured, checked as far as is possible without opening anything.
pub(crate) struct Plan {
    pub(crate) tracker: TrackerTable,
    pub(crate) job: JobTable,
    pub(crate) sources: ByName<Box<dyn SourceConfig>>,
    pub(crate) sinks: ByName<Box<dyn SinkConfig>>,
}

impl Plan {
    /// # Errors
    /// What a run refuses before the command starts.
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Self> {
        let mut plan = Self {
            tracker: settings.extract("tracker")?,
            job: settings.extract("job")?,
            sources: settings.sources()?,
            sinks: settings.sinks()?,
        };
        let mut sinks = Vec::new();
        for (name, config) in plan.sinks {
            match config.check().with_context(|| format!("sinks.{name}")) {
                Ok(()) => sinks.push((name, config)),
                // A variable that the user has for another program must not keep the job from starting.
                Err(why) if is_on_by_site(settings, &name) => log::warn!("{why:#}; the run goes on without it"),
                Err(why) => return Err(why),
            }
        }
        plan.sinks = sinks;
        Ok(plan)
    }
}

/// Whether the site has turned on a sink.
fn is_on_by_site(settings: &Settings, name: &str) -> bool {
    settings.origin(&format!("sinks.{name}.enabled")).is_some_and(|origin| origin.starts_with(SITE_FILE))
}
