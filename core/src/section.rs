//! Parts of a sample: what one source or derivation writes.

use std::any::{Any, TypeId};

use resource_tracker_json as json;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

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
trait AnySection: Any + erased_serde::Serialize + Send + Sync {
    fn copy(&self) -> Box<dyn AnySection>;
    fn without_deltas(&self) -> Option<Box<dyn AnySection>>;
    fn is_internal(&self) -> bool;
}

impl<T: Section> AnySection for T {
    fn is_internal(&self) -> bool {
        T::IS_INTERNAL
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
pub(crate) struct JsonSection {
    pub(crate) text: Box<RawValue>,
    /// Its members that are deltas.
    deltas: &'static [String],
}

impl AnySection for JsonSection {
    fn is_internal(&self) -> bool {
        false
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

pub(crate) struct Slot {
    pub(crate) name: &'static str,
    /// The type of the value, to find it without a call of each.
    pub(crate) type_id: TypeId,
    /// Whether it was written in this tick.
    pub(crate) fresh: bool,
    value: Box<dyn AnySection>,
}

impl Slot {
    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        let value: &dyn Any = &*self.value;
        if self.type_id == TypeId::of::<T>() { value.downcast_ref() } else { None }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.type_id == TypeId::of::<JsonSection>()
    }

    /// Its name and value, unless it is in no output.
    pub(crate) fn shown(&self) -> Option<(&'static str, &dyn erased_serde::Serialize)> {
        (!self.value.is_internal()).then_some((self.name, &*self.value as _))
    }
}

/// The sections that one source writes in one tick.
#[derive(Default)]
pub struct Sections {
    pub(crate) slots: Vec<Slot>,
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
        let value: &mut dyn Any = &mut *slot.value;
        match value.downcast_mut() {
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
        self.slots.iter().filter(|slot| slot.fresh).filter_map(Slot::shown)
    }

    /// Appends them to `line` as one JSON object.
    pub(crate) fn write_json(&self, line: &mut Vec<u8>) -> serde_json::Result<()> {
        line.push(b'{');
        write_members(line, || self.fresh())?;
        line.push(b'}');
        Ok(())
    }
}

/// Appends sections as members of an object; those of one name are one.
pub(crate) fn write_members<'a, Named>(line: &mut Vec<u8>, sections: impl Fn() -> Named) -> serde_json::Result<()>
where
    Named: Iterator<Item = (&'static str, &'a dyn erased_serde::Serialize)>,
{
    for (index, (name, _)) in sections().enumerate() {
        if sections().take(index).all(|(other, _)| other != name) {
            json::key(line, name)?;
            let of_name = sections().skip(index).filter(|(other, _)| *other == name);
            json::append_joined(line, &mut of_name.map(|(_, section)| section))?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, Clone, Serialize, JsonSchema)]
    struct One {
        a: u32,
    }

    impl Section for One {
        const NAME: &'static str = "both";
    }

    #[derive(Default, Clone, Serialize, JsonSchema)]
    struct Other {
        b: u32,
    }

    impl Section for Other {
        const NAME: &'static str = "both";
    }

    #[test]
    fn two_sections_of_one_name_are_one_also_for_a_plugin() -> serde_json::Result<()> {
        let mut sections = Sections::default();
        sections.section::<One>().a = 1;
        sections.section::<Other>().b = 2;
        let mut line = Vec::new();
        sections.write_json(&mut line)?;
        assert_eq!(String::from_utf8_lossy(&line), r#"{"both":{"a":1,"b":2}}"#);
        Ok(())
    }
}
