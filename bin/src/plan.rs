//! The plan of a run, the same for `config check` and for the run itself.

use anyhow::Context;
use resource_tracker_core::config::ByName;
use resource_tracker_core::{Settings, SinkConfig, SourceConfig};

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
        let plan = Self {
            tracker: settings.extract("tracker")?,
            job: settings.extract("job")?,
            sources: settings.sources()?,
            sinks: settings.sinks()?,
        };
        for (name, config) in &plan.sinks {
            config.check().with_context(|| format!("sinks.{name}"))?;
        }
        Ok(plan)
    }
}
