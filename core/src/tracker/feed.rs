//! One source at work: when it is read, and what a sample takes from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::apart::Apart;
use crate::isolation::Guard;
use crate::pool::Pool;
use crate::sample::Sections;
use crate::source::{Cadence, Host, Schedule, Source, SourceConfig, Tick};

pub(crate) struct Feed {
    cadence: Cadence,
    place: Place,
    last_read: Option<Instant>,
    last: Last,
    done: bool,
}

/// Where the source is read.
enum Place {
    Here(Box<Reader>),
    Apart(Apart),
    Nowhere,
}

#[derive(Clone)]
pub(super) enum Reading {
    /// The hardware is not here.
    Absent,
    /// The source failed, or is paused because it did.
    Failed,
    Read(Arc<Sections>),
}

impl Feed {
    pub(crate) fn new(name: &str, config: Box<dyn SourceConfig>, host: &Host, interval: Duration) -> Self {
        let Schedule { cadence, blocking } = config.schedule();
        let component = format!("source {name}");
        let reader = Reader::new(&component, config, host.clone());
        let place = if blocking {
            let every = if let Cadence::Every(every) = cadence { every.max(interval) } else { interval };
            match Apart::new(name, reader, every) {
                Ok(apart) => Place::Apart(apart),
                Err(error) => {
                    log::warn!("{component}: no thread for it ({error}), so it is off");
                    Place::Nowhere
                }
            }
        } else {
            Place::Here(Box::new(reader))
        };
        Self { cadence, place, last_read: None, last: Last::default(), done: false }
    }

    /// Asks a source that blocks, so that it works while the others are read.
    pub(crate) fn ask(&mut self, tick: &Tick) {
        let is_due = self.is_due(tick);
        if let Place::Apart(apart) = &mut self.place
            && apart.ask(tick, is_due)
        {
            self.last_read = Some(tick.at);
        }
    }

    /// What belongs into the sample of this tick. Waits for a source that blocks only as long as nobody is kept.
    pub(crate) fn read(&mut self, tick: &Tick) -> Option<Arc<Sections>> {
        if self.done {
            return None;
        }
        let is_due = self.is_due(tick);
        let reading = match &mut self.place {
            Place::Nowhere => Some(Reading::Absent),
            Place::Apart(apart) => apart.read(tick),
            Place::Here(_) if !is_due => None,
            Place::Here(reader) => {
                self.last_read = Some(tick.at);
                Some(reader.read(tick.clone()))
            }
        };
        let sections = match &reading {
            None => self.last.repeat(),
            Some(Reading::Read(sections)) => self.last.set(Some(Arc::clone(sections))),
            Some(Reading::Failed | Reading::Absent) => self.last.set(None),
        };
        match (self.cadence, &reading) {
            (_, Some(Reading::Absent)) => self.done = true,
            (Cadence::Once, Some(Reading::Failed)) => self.last_read = None,
            // The baseline is thrown away, so a source that is read once stays for the first sample.
            (Cadence::Once, _) => self.done = sections.is_some() && tick.number > 0,
            _ => (),
        }
        if self.done {
            // Its thread ends.
            self.place = Place::Nowhere;
        }
        sections
    }

    fn is_due(&self, tick: &Tick) -> bool {
        self.last_read.is_none_or(|last| match self.cadence {
            Cadence::EveryTick => true,
            Cadence::Once => false,
            Cadence::Every(every) => tick.at.saturating_duration_since(last) >= every,
        })
    }
}

/// What was last read.
#[derive(Default)]
struct Last {
    sections: Option<Arc<Sections>>,
    is_repeated: bool,
}

impl Last {
    fn set(&mut self, sections: Option<Arc<Sections>>) -> Option<Arc<Sections>> {
        *self = Self { sections, is_repeated: false };
        self.sections.clone()
    }

    fn repeat(&mut self) -> Option<Arc<Sections>> {
        if !self.is_repeated {
            self.is_repeated = true;
            if let Some(repeated) = self.sections.as_ref().and_then(|sections| sections.without_deltas()) {
                self.sections = Some(Arc::new(repeated));
            }
        }
        self.sections.clone()
    }
}

/// Builds the source when it is first read, and reads it.
pub(super) struct Reader {
    guard: Guard,
    config: Box<dyn SourceConfig>,
    host: Host,
    source: Option<Box<dyn Source>>,
    /// It was looked for and is not here. A tick can ask once more before it has heard so.
    absent: bool,
    pool: Pool<Sections>,
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

    pub(super) fn read(&mut self, mut tick: Tick) -> Reading {
        tick.elapsed = self.last_read.map_or(Duration::ZERO, |last| tick.at.saturating_duration_since(last));
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
            let (sections, result) = pool.fill(|sections: &mut Sections| {
                sections.clear();
                source.collect(&tick, sections)
            });
            *last_read = Some(tick.at);
            result.map(|()| Reading::Read(sections))
        });
        reading.unwrap_or(Reading::Failed)
    }
}
