//! What sources and derivations wrote for one sample, and where each section of it is.

use std::any::TypeId;
use std::sync::Arc;

use crate::section::{Sections, Slot};

/// Parts of a sample, one for each source or derivation, in their order. A sample is searched many times, so there is one list
/// of all their sections.
#[derive(Default)]
pub(crate) struct Parts {
    parts: Vec<Arc<Sections>>,
    places: Vec<Place>,
    /// Whether one of them is JSON.
    has_json: bool,
}

/// Where a section is.
struct Place {
    type_id: TypeId,
    part: usize,
    slot: usize,
}

impl Parts {
    /// What one of them wrote.
    pub(crate) fn of(part: Sections) -> Self {
        let mut parts = Self::default();
        parts.push(Arc::new(part));
        parts
    }

    /// Adds what one of them wrote.
    pub(crate) fn push(&mut self, part: Arc<Sections>) {
        let number = self.parts.len();
        for (place, slot) in part.slots.iter().enumerate().filter(|(_, slot)| slot.fresh) {
            self.places.push(Place { type_id: slot.type_id, part: number, slot: place });
            self.has_json |= slot.is_json();
        }
        self.parts.push(part);
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.places.clear();
        self.has_json = false;
    }

    /// Whether a section is JSON.
    pub(crate) fn has_json(&self) -> bool {
        self.has_json
    }

    /// All sections, in their order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.places.iter().map(|place| self.slot(place))
    }

    /// The next section of this type, or of this name if it is JSON, after the first `seen` ones of all.
    pub(crate) fn next_of(&self, type_id: TypeId, name_of_json: Option<&str>, seen: &mut usize) -> Option<&Slot> {
        while let Some(place) = self.places.get(*seen) {
            *seen += 1;
            let is_wanted = |slot: &Slot| slot.is_json() && name_of_json == Some(slot.name);
            if place.type_id == type_id || (name_of_json.is_some() && is_wanted(self.slot(place))) {
                return Some(self.slot(place));
            }
        }
        None
    }

    fn slot(&self, place: &Place) -> &Slot {
        &self.parts[place.part].slots[place.slot]
    }
}
