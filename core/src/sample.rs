//! What travels from the sources to the sinks.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use resource_tracker_json as json;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::job::Run;
use crate::name::name_forever;
use crate::parts::Parts;
use crate::section::{JsonSection, Slot, write_members};
pub use crate::section::{Section, SectionEntry, Sections};

/// No sample has more sections, or longer names.
const MOST_SECTIONS: usize = 1000;
const LONGEST_NAME: usize = 256;

/// How the reading of a source went, as of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceState {
    /// It has not answered yet, not even once.
    Awaited,
    /// What it reads is not on this machine.
    Absent,
    /// It failed, or does not answer any more, and is left out until it does.
    Failed,
    /// It was read; the sample has what it saw, or repeats it.
    Read,
}

/// What all sources saw at one tick, and what follows from it.
pub struct Sample {
    pub(crate) run: Arc<Run>,
    pub(crate) timestamp: Duration,
    pub(crate) elapsed: Duration,
    pub(crate) parts: Parts,
    pub(crate) states: Vec<(Arc<str>, SourceState)>,
}

impl Default for Sample {
    fn default() -> Self {
        let (parts, states) = (Parts::default(), Vec::new());
        Self { run: Arc::default(), timestamp: Duration::ZERO, elapsed: Duration::ZERO, parts, states }
    }
}

impl Sample {
    /// A sample of these sections.
    pub(crate) fn of(sections: Sections) -> Self {
        Self { parts: Parts::of(sections), ..Self::default() }
    }

    /// A sample of what these sources wrote, and how reading each of them went: what a test of a derivation needs.
    pub fn of_sources<'a>(
        elapsed: Duration,
        sources: impl IntoIterator<Item = (&'a str, SourceState, Sections)>,
    ) -> Self {
        let mut sample = Self { elapsed, ..Self::default() };
        for (name, state, sections) in sources {
            sample.states.push((name.into(), state));
            sample.parts.push(Arc::new(sections));
        }
        sample
    }

    /// When the sample was taken, since the Unix epoch.
    pub fn timestamp(&self) -> Duration {
        self.timestamp
    }

    /// The time since the sample before, from tick to tick. A source's deltas and rates are from one reading of it to the next,
    /// which are moments later than the ticks; a rate is taken over the time between them.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The run that the sample belongs to.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Section `T`, if a source wrote it.
    pub fn get<T: Section>(&self) -> Option<&T> {
        self.all().next()
    }

    /// Section `T` of every source that wrote it (sources of different vendors write the same list of devices).
    pub fn all<T: Section>(&self) -> impl Iterator<Item = &T> {
        let mut seen = 0;
        iter::from_fn(move || self.parts.next_of(TypeId::of::<T>(), None, &mut seen)?.get())
    }

    /// Whether a section came as JSON, from a recording or a plugin. [`get`](Self::get) does not find those.
    pub fn has_json(&self) -> bool {
        self.parts.has_json()
    }

    /// How the reading of the source of this name went; `None` when the run has none of this name.
    pub fn state_of(&self, source: &str) -> Option<SourceState> {
        self.states.iter().find(|(name, _)| **name == *source).map(|(_, state)| *state)
    }

    /// Section `T` of every source that wrote it, also where it is JSON: in a recording, or from a plugin. Then it costs more
    /// than [`all`](Self::all), and what cannot be read as a `T` is an error.
    pub fn read_all<T: Section + DeserializeOwned>(&self) -> impl Iterator<Item = serde_json::Result<Cow<'_, T>>> {
        let mut seen = 0;
        iter::from_fn(move || {
            let name_of_json = self.has_json().then_some(T::NAME);
            let slot = self.parts.next_of(TypeId::of::<T>(), name_of_json, &mut seen)?;
            let typed = slot.get().map(|section| Ok(Cow::Borrowed(section)));
            typed.or_else(|| {
                let json = slot.get::<JsonSection>()?;
                Some(serde_json::from_str(json.text.get()).map(Cow::Owned))
            })
        })
    }

    /// Section `name` as a `T`, whichever source wrote it: the fields that `T` has and the section has. Unlike
    /// [`get`](Self::get) it also finds what came from a plugin, and works in one; and it costs more.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let mut line = Vec::new();
        json::append_joined(&mut line, &mut self.named(name)).ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// The sample that was printed as this line, without its run: for tests of sinks and derivations, and to read a
    /// recording. Its sections are found by [`read`](Self::read).
    ///
    /// # Errors
    /// When the line is no JSON object.
    pub fn from_json(line: &str) -> serde_json::Result<Self> {
        Self::of_run(line, &Arc::default(), name_forever)
    }

    /// The same, of a run. `keep` makes names of sections last.
    pub(crate) fn of_run(line: &str, run: &Arc<Run>, keep: impl Fn(&str) -> &'static str) -> serde_json::Result<Self> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(line)?;
        let number = |name: &str| members.get(name).and_then(|value| value.get().parse::<f64>().ok());
        let number = |name: &str| number(name).filter(|number| number.is_finite()).unwrap_or(0.0);
        let seconds = |secs: f64| Duration::try_from_secs_f64(secs).unwrap_or_default();
        let mut sections = Sections::default();
        let is_section = |value: &RawValue| value.get().starts_with(['{', '[']);
        let found = || members.iter().filter(|(_, value)| is_section(value));
        // Names are kept for good.
        if found().count() > MOST_SECTIONS || found().any(|(name, _)| name.len() > LONGEST_NAME) {
            return Err(serde::de::Error::custom("it has more sections, or longer names of them, than a sample has"));
        }
        for (name, value) in found() {
            sections.put_json(keep(name), value, &[]);
        }
        Ok(Self {
            run: Arc::clone(run),
            timestamp: Duration::from_millis(number("timestamp_ms") as u64),
            elapsed: seconds(number("elapsed_secs")),
            ..Self::of(sections)
        })
    }

    /// Every section by name, known or not, in the order of the sources. A name can come more than once.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, &dyn erased_serde::Serialize)> {
        self.parts.slots().filter_map(Slot::shown)
    }

    /// Appends the sample to `line` as one JSON object, without a line end.
    ///
    /// Sections that share a name become one. Numbers have at most six decimals.
    ///
    /// # Errors
    /// When a section cannot be serialised; `line` is then as it was.
    pub fn write_json(&self, line: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = line.len();
        self.write_members(line).inspect_err(|_| line.truncate(start))
    }

    fn write_members(&self, line: &mut Vec<u8>) -> serde_json::Result<()> {
        line.extend_from_slice(b"{\"timestamp_secs\":");
        json::append(line, &self.timestamp.as_secs())?;
        json::key(line, "timestamp_ms")?;
        json::append(line, &(self.timestamp.as_millis() as u64))?;
        json::key(line, "elapsed_secs")?;
        json::append(line, &self.elapsed.as_secs_f64())?;
        json::key(line, "job_name")?;
        json::append(line, &self.run.job.name)?;
        json::key(line, "pid")?;
        json::append(line, &self.run.pid)?;
        write_members(line, || self.sections())?;
        // The version key is named after the program that embeds the tracker.
        json::key(line, &format!("{}-version", self.run.program))?;
        json::append(line, &self.run.version)?;
        line.push(b'}');
        Ok(())
    }

    /// Every section of this name.
    fn named(&self, name: &str) -> impl Iterator<Item = &dyn erased_serde::Serialize> {
        self.sections().filter(move |(other, _)| *other == name).map(|(_, section)| section)
    }
}
