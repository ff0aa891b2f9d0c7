//! The configuration of a plugin's source, as the tracker uses any other.

use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use serde::de::Error;
use serde_json::{Map, Value as Json};

use super::fork_server::ForkServer;
use super::isolated::{self, RemoteSource};
use super::source::{self, LocalSource};
use super::types::{Hosting, SourceType};
use crate::source::{Host, Schedule, Source, SourceConfig};

/// A configuration of a plugin's source.
pub(crate) struct PluginSourceConfig {
    source: &'static SourceType,
    config: String,
    /// Its process, unless it runs in this one.
    fork_server: Option<Arc<ForkServer>>,
}

impl SourceType {
    /// The user's configuration, completed, and checked by the plugin.
    pub(crate) fn configure(&'static self, values: Map<String, Json>) -> serde_json::Result<Box<dyn SourceConfig>> {
        let config = self.info.component.configuration(values)?;
        let checked = match &self.hosting {
            Hosting::InProcess { table, original } => source::check(table, *original, &config).map(|()| None),
            Hosting::Isolated => isolated::configured_source(self, &config).map(Some),
        };
        let fork_server = checked.map_err(|error| serde_json::Error::custom(format!("{error:#}")))?.map(Arc::new);
        Ok(Box::new(PluginSourceConfig { source: self, config, fork_server }))
    }
}

impl fmt::Debug for PluginSourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {} of {}", self.source.info.component.name, self.source.file.display())
    }
}

impl SourceConfig for PluginSourceConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let source = self.source;
        if let Some(fork_server) = &self.fork_server {
            return Ok(Some(Box::new(RemoteSource::new(source, Arc::clone(fork_server), self.config.clone(), host))));
        }
        let (table, original) = source.hosting.in_process()?;
        let opened = LocalSource::open(source, table, original, &self.config, host);
        let opened = opened.with_context(|| source.file.display().to_string())?;
        Ok(opened.map(|opened| Box::new(opened) as Box<dyn Source>))
    }

    /// What it does is not known, so it never runs on the sampling thread.
    fn schedule(&self) -> Schedule {
        Schedule { cadence: self.source.info.cadence(), blocking: true }
    }

    fn typetag_deserialize(&self) {}
}
