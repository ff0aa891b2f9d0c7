//! Reads a source, on whichever thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::guard::Guard;
use crate::pool::Pool;
use crate::sample::Sections;
use crate::source::{Host, Source, SourceConfig, Tick};

/// What a source is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For the deltas of the first sample.
    Prime,
    /// For a sample.
    Sample,
}

/// What came of reading it.
#[derive(Clone)]
pub(super) enum Reading {
    /// The hardware is not here.
    Absent,
    /// The source failed, or is paused because it did.
    Failed,
    Read(Arc<Sections>),
}

/// Builds the source, at the latest when it is first read, and reads it.
pub(super) struct Reader {
    guard: Guard,
    config: Box<dyn SourceConfig>,
    host: Host,
    source: Option<Box<dyn Source>>,
    /// The hardware was looked for and is not here. A tick can ask once more before it gets that answer.
    absent: bool,
    pool: Pool<Sections>,
    /// When the last reading that succeeded began. A reading that fails leaves the counters as they were.
    last_read: Option<Instant>,
}

impl Reader {
    pub(super) fn new(component: &str, config: Box<dyn SourceConfig>, host: Host) -> Self {
        let guard = Guard::new(component.to_owned());
        Self { guard, config, host, source: None, absent: false, pool: Pool::new(), last_read: None }
    }

    pub(super) fn component(&self) -> &str {
        self.guard.component()
    }

    /// The machine that it reads.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Builds it now. One that cannot be built is tried again when it is read.
    pub(super) fn build(&mut self) {
        let Self { guard, config, host, source, absent, .. } = self;
        let built = guard.call(Instant::now(), || config.build(host));
        *absent = matches!(built, Some(None));
        *source = built.flatten();
    }

    /// Reads it now. Pauses after failures count from tick to tick. Rates count from reading to reading, because the
    /// sources before it at a tick take more or less time.
    pub(super) fn read(&mut self, tick: &Tick, purpose: Purpose) -> Reading {
        let Self { guard, config, host, source, absent, pool, last_read } = self;
        if *absent {
            return Reading::Absent;
        }
        let reading = guard.call(tick.at, || {
            if source.is_none() {
                *source = config.build(host)?;
            }
            let Some(source) = source else {
                *absent = true;
                return Ok(Reading::Absent);
            };
            let at = Instant::now();
            let elapsed = last_read.map_or(Duration::ZERO, |last| at.saturating_duration_since(last));
            let tick = Tick { at, elapsed, ..*tick };
            let (sections, result) = pool.fill(|sections: &mut Sections| {
                sections.clear();
                match purpose {
                    Purpose::Prime => source.prime(&tick, sections),
                    Purpose::Sample => source.collect(&tick, sections),
                }
            });
            result?;
            *last_read = Some(at);
            Ok(Reading::Read(sections))
        });
        reading.unwrap_or(Reading::Failed)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.guard.end(self.source.take());
    }
}
