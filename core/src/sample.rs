//! What travels from the sources to the sinks.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use resource_tracker_json as json;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::job::Run;
use crate::name::name_forever;

/// A part of a sample: one object or one list, under a name of its own.
///
/// A section is a plain struct. The doc comment of a field is its description; its unit and kind are given by
/// `#[schemars(transform = Counter("bytes"))]` and the others of [`unit`](crate::unit).
/// Several section types may share a name: objects are joined into one object, lists are put one after the other.
pub trait Section: Serialize + JsonSchema + Default + Clone + Send + Sync + 'static {
    /// The key of the section in a sample.
    const NAME: &'static str;

    /// Whether it is for derivations alone, and so in no output.
    const IS_INTERNAL: bool = false;

    /// The section for a sample that repeats it because its source was not read since: without what was counted over an
    /// interval (kind `delta`), so that nothing is counted twice. `None` when it holds no such figure.
    fn without_deltas(&self) -> Option<Self> {
        None
    }
}

/// A section whose type is not known, for a walk through serde.
trait AnySection: erased_serde::Serialize + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn copy(&self) -> Box<dyn AnySection>;
    fn without_deltas(&self) -> Option<Box<dyn AnySection>>;
    fn is_internal(&self) -> bool;
}

impl<T: Section> AnySection for T {
    fn is_internal(&self) -> bool {
        T::IS_INTERNAL
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn copy(&self) -> Box<dyn AnySection> {
        Box::new(self.clone())
    }

    fn without_deltas(&self) -> Option<Box<dyn AnySection>> {
        Some(Box::new(Section::without_deltas(self)?))
    }
}

/// A section that came as JSON and is passed on as it is.
#[derive(Clone)]
struct JsonSection {
    text: Box<RawValue>,
    /// Its members that are deltas.
    deltas: &'static [String],
}

impl AnySection for JsonSection {
    fn is_internal(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn copy(&self) -> Box<dyn AnySection> {
        Box::new(self.clone())
    }

    fn without_deltas(&self) -> Option<Box<dyn AnySection>> {
        if self.deltas.is_empty() {
            return None;
        }
        let text = json::with_nulls(&self.text, self.deltas).ok()?;
        Some(Box::new(Self { text, deltas: self.deltas }))
    }
}

impl Serialize for JsonSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

struct Slot {
    name: &'static str,
    /// The type of the value, to find it without a call of each.
    type_id: TypeId,
    fresh: bool,
    value: Box<dyn AnySection>,
}

impl Slot {
    fn get<T: 'static>(&self) -> Option<&T> {
        if self.type_id == TypeId::of::<T>() { self.value.as_any().downcast_ref() } else { None }
    }
}

/// The sections that one source writes in one tick.
#[derive(Default)]
pub struct Sections {
    slots: Vec<Slot>,
}

impl Sections {
    /// Section `T` of this tick, to be written over.
    ///
    /// It still holds what an earlier tick left in it, so that strings and lists can be filled again without a new
    /// allocation. A section that is not asked for in a tick is not in the sample.
    pub fn section<T: Section>(&mut self) -> &mut T {
        let type_id = TypeId::of::<T>();
        let index = match self.slots.iter().position(|slot| slot.type_id == type_id) {
            Some(index) => index,
            None => {
                self.slots.push(Slot { name: T::NAME, type_id, fresh: true, value: Box::<T>::default() });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        slot.fresh = true;
        match slot.value.as_any_mut().downcast_mut() {
            Some(section) => section,
            None => unreachable!("the slot was found by its type"),
        }
    }

    /// Section `T`, if it was written in this tick.
    pub fn get<T: Section>(&self) -> Option<&T> {
        self.slots.iter().filter(|slot| slot.fresh).find_map(Slot::get)
    }

    /// A section that is JSON already. `deltas` are the names of its members that are deltas.
    pub(crate) fn put_json(&mut self, name: &'static str, section: &RawValue, deltas: &'static [String]) {
        // In JSON, a line end can only be between two tokens. (A search in bytes is many times faster than one in
        // chars.)
        let bytes = section.get().as_bytes();
        let text = match bytes.contains(&b'\n') || bytes.contains(&b'\r') {
            true => {
                RawValue::from_string(section.get().replace(['\n', '\r'], " ")).unwrap_or_else(|_| section.to_owned())
            }
            false => section.to_owned(),
        };
        let value: Box<dyn AnySection> = Box::new(JsonSection { text, deltas });
        let new = Slot { name, type_id: TypeId::of::<JsonSection>(), fresh: true, value };
        match self.slots.iter_mut().find(|slot| slot.name == name) {
            Some(slot) => *slot = new,
            None => self.slots.push(new),
        }
    }

    /// These sections for a sample that repeats them; `None` when they can be repeated as they are.
    pub(crate) fn without_deltas(&self) -> Option<Self> {
        let fresh = || self.slots.iter().filter(|slot| slot.fresh);
        // In the usual case, in which there is none, nothing is allocated.
        let first = fresh().position(|slot| slot.value.without_deltas().is_some())?;
        let slots = fresh().enumerate().map(|(index, slot)| {
            let value = if index < first { None } else { slot.value.without_deltas() };
            Slot { value: value.unwrap_or_else(|| slot.value.copy()), ..*slot }
        });
        Some(Self { slots: slots.collect() })
    }

    /// Takes all sections out of the tick; their buffers stay.
    pub(crate) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.fresh = false);
    }

    /// The sections for the output.
    pub(crate) fn fresh(&self) -> impl Iterator<Item = (&'static str, &dyn erased_serde::Serialize)> {
        self.slots
            .iter()
            .filter(|slot| slot.fresh && !slot.value.is_internal())
            .map(|slot| (slot.name, &*slot.value as _))
    }

    /// Appends them to `line` as one JSON object.
    pub(crate) fn write_json(&self, line: &mut Vec<u8>) -> serde_json::Result<()> {
        line.push(b'{');
        for (name, section) in self.fresh() {
            json::key(line, name)?;
            json::append(line, &section)?;
        }
        line.push(b'}');
        Ok(())
    }
}

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
    pub(crate) parts: Vec<Arc<Sections>>,
    pub(crate) states: Vec<(Arc<str>, SourceState)>,
}

/// Where a search through the sections of a sample has come to.
#[derive(Default)]
struct Place {
    part: usize,
    slot: usize,
}

impl Default for Sample {
    fn default() -> Self {
        let (parts, states) = (Vec::new(), Vec::new());
        Self { run: Arc::default(), timestamp: Duration::ZERO, elapsed: Duration::ZERO, parts, states }
    }
}

impl Sample {
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
        let mut place = Place::default();
        iter::from_fn(move || self.next_of(TypeId::of::<T>(), None, &mut place)?.get())
    }

    /// The next section of this type, or of this name if it is JSON. (It is not generic, so that it is compiled for
    /// speed: a sample is searched many times.)
    fn next_of(&self, type_id: TypeId, name_of_json: Option<&str>, place: &mut Place) -> Option<&Slot> {
        while let Some(part) = self.parts.get(place.part) {
            while let Some(slot) = part.slots.get(place.slot) {
                place.slot += 1;
                let is_json = || slot.type_id == TypeId::of::<JsonSection>() && name_of_json == Some(slot.name);
                if slot.fresh && (slot.type_id == type_id || is_json()) {
                    return Some(slot);
                }
            }
            *place = Place { part: place.part + 1, slot: 0 };
        }
        None
    }

    /// How the reading of the source of this name went; `None` when the run has none of this name.
    pub fn state_of(&self, source: &str) -> Option<SourceState> {
        self.states.iter().find(|(name, _)| **name == *source).map(|(_, state)| *state)
    }

    /// Section `T` of every source that wrote it, also where it is JSON: in a recording, or from a plugin. Then it costs more
    /// than [`all`](Self::all), and what cannot be read as a `T` is an error.
    pub fn read_all<T: Section + DeserializeOwned>(&self) -> impl Iterator<Item = serde_json::Result<Cow<'_, T>>> {
        let mut place = Place::default();
        iter::from_fn(move || {
            let slot = self.next_of(TypeId::of::<T>(), Some(T::NAME), &mut place)?;
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
            parts: vec![Arc::new(sections)],
            states: Vec::new(),
        })
    }

    /// Every section by name, known or not, in the order of the sources. A name can come more than once.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, &dyn erased_serde::Serialize)> {
        self.parts.iter().flat_map(|sections| sections.fresh())
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
        let sections: Vec<_> = self.sections().collect();
        for (index, (name, _)) in sections.iter().enumerate() {
            let is_same = |other: &&(&str, _)| other.0 == *name;
            if !sections[..index].iter().any(|other| is_same(&other)) {
                json::key(line, name)?;
                json::append_joined(line, &mut sections[index..].iter().filter(is_same).map(|(_, section)| *section))?;
            }
        }
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

/// A section type that is linked in: its name and schema, for `schema`, docs and sinks that need metric names.
pub struct SectionEntry {
    pub(crate) name: &'static str,
    /// Orders the types of one section, which are linked in no particular order.
    pub(crate) type_name: fn() -> &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) write_default: Option<fn(&mut Sections)>,
    /// Whether it belongs to no single plugin, even if a plugin has it linked in.
    pub(crate) is_shared: bool,
}

inventory::collect!(SectionEntry);

impl SectionEntry {
    /// Describes section `T`; for use in [`register_section!`](crate::register_section).
    pub const fn new<T: Section>() -> Self {
        Self {
            name: T::NAME,
            type_name: std::any::type_name::<T>,
            schema: |generator| generator.subschema_for::<T>(),
            write_default: None,
            is_shared: false,
        }
    }

    /// The same for a section that is in every sample: its default where no source wrote one (a list of devices is `[]`
    /// on a machine without any).
    pub const fn always_present<T: Section>() -> Self {
        let write_default: fn(&mut Sections) = |sections| *sections.section::<T>() = T::default();
        Self { write_default: Some(write_default), ..Self::new::<T>() }
    }

    /// The same for a section of a crate that several link, such as one that reads it and one that writes it: a plugin
    /// that has it linked in does not say that it writes it.
    pub const fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// The key of the section in a sample.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The JSON Schema of the section's type.
    pub(crate) fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        (self.schema)(generator)
    }
}

/// Registers a section type, so that `schema` and the docs know it: `register_section!(MyMetrics)`, or an entry that says
/// more, `register_section!(entry SectionEntry::always_present::<MyMetrics>())`.
#[macro_export]
macro_rules! register_section {
    (entry $entry:expr) => {
        $crate::reexport::inventory::submit! { $entry }
    };
    ($type:ty) => {
        $crate::register_section!(entry $crate::SectionEntry::new::<$type>());
    };
}
