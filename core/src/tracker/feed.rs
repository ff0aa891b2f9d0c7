//! One source at work: when it is read, on which thread, and what a tick takes from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::Background;
use crate::isolation::Guard;
use crate::pool::Pool;
use crate::sample::Sections;
use crate::source::{Cadence, Host, Source, SourceConfig, Tick};

/// The answer of a blocking source is left out when it is older than this, or than three intervals.
const STALE: Duration = Duration::from_secs(2);

pub(crate) struct Feed {
    component: String,
    cadence: Cadence,
    place: Place,
    stale_after: Duration,
    last_read: Option<Instant>,
    last: Option<Arc<Sections>>,
    silent: bool,
    done: bool,
}

/// Where the source is read.
enum Place {
    Here(Box<Reader>),
    Apart(Background<Tick, Reading>),
    Nowhere,
}

#[derive(Clone)]
enum Reading {
    /// The hardware is not here.
    Absent,
    /// The source failed, or is paused because it did.
    Failed,
    Read(Arc<Sections>),
}

impl Feed {
    pub(crate) fn new(name: &str, config: Box<dyn SourceConfig>, host: &Host, interval: Duration) -> Self {
        let schedule = config.schedule();
        let component = format!("source {name}");
        let mut reader = Reader::new(&component, config, host.clone());
        let place = if schedule.blocking {
            match Background::spawn(name, move |tick| reader.read(Tick { at: Instant::now(), ..tick })) {
                Ok(background) => Place::Apart(background),
                Err(error) => {
                    log::warn!("{component}: no thread for it ({error}), so it is off");
                    Place::Nowhere
                }
            }
        } else {
            Place::Here(Box::new(reader))
        };
        let every = if let Cadence::Every(every) = schedule.cadence { every } else { interval };
        let stale_after = STALE.max(every.max(interval) * 3);
        Self {
            component,
            cadence: schedule.cadence,
            place,
            stale_after,
            last_read: None,
            last: None,
            silent: false,
            done: false,
        }
    }

    /// What belongs into the sample of this tick. Never waits for a source that blocks.
    pub(crate) fn read(&mut self, tick: &Tick) -> Option<Arc<Sections>> {
        if self.done {
            return None;
        }
        let due = match self.cadence {
            Cadence::EveryTick | Cadence::Once => true,
            Cadence::Every(every) => self.last_read.is_none_or(|last| tick.at.saturating_duration_since(last) >= every),
        };
        let reading = match &mut self.place {
            Place::Nowhere => Reading::Absent,
            Place::Here(_) if !due => return self.last.clone(),
            Place::Here(reader) => {
                self.last_read = Some(tick.at);
                reader.read(tick.clone())
            }
            Place::Apart(background) => {
                let busy = background.busy_for(tick.at);
                if due && busy.is_none() {
                    self.last_read = Some(tick.at);
                    background.ask(tick.clone());
                }
                let silent = busy.is_some_and(|time| time > self.stale_after);
                if silent && !self.silent {
                    let secs = self.stale_after.as_secs();
                    log::warn!("{} has not answered for {secs} s; it is left out until it does", self.component);
                }
                self.silent = silent;
                match background.answer() {
                    Some((reading, at)) if tick.at.saturating_duration_since(at) <= self.stale_after => reading,
                    _ => Reading::Failed,
                }
            }
        };
        self.last = match reading {
            Reading::Read(sections) => Some(sections),
            Reading::Failed => None,
            Reading::Absent => {
                self.done = true;
                // Its thread ends.
                self.place = Place::Nowhere;
                None
            }
        };
        // The baseline is thrown away, so a source that is read once stays for the first sample.
        self.done |= self.cadence == Cadence::Once && self.last.is_some() && tick.number > 0;
        self.last.clone()
    }
}

/// Builds the source when it is first read, and reads it.
struct Reader {
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
    fn new(component: &str, config: Box<dyn SourceConfig>, host: Host) -> Self {
        let guard = Guard::new(component.to_owned());
        Self { guard, config, host, source: None, absent: false, pool: Pool::new(), last_read: None }
    }

    fn read(&mut self, mut tick: Tick) -> Reading {
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
