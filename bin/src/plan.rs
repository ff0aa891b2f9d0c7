//! What a run is going to do, as `config check` looks at it and as the run itself does.

use anyhow::Context;
use resource_tracker_core::config::ByName;
use resource_tracker_core::{Settings, SinkConfig, SourceConfig};

use crate::tables::{JobTable, TrackerTable};

/// A run as it is configured, looked at as closely as can be without opening anything.
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
