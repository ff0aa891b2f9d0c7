//! Sources that a program hands over ready-made.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::source::{Host, Schedule, Source, SourceConfig};

/// A source that needs no configuration any more.
pub(super) struct ReadySource {
    source: Mutex<Option<Box<dyn Source>>>,
    schedule: Schedule,
}

impl ReadySource {
    pub(super) fn new(source: impl Source + 'static, schedule: Schedule) -> Self {
        Self { source: Mutex::new(Some(Box::new(source))), schedule }
    }
}

impl fmt::Debug for ReadySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a source of this program")
    }
}

impl SourceConfig for ReadySource {
    fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(self.source.lock().unwrap_or_else(PoisonError::into_inner).take())
    }

    fn schedule(&self) -> Schedule {
        self.schedule
    }

    fn typetag_deserialize(&self) {}
}
