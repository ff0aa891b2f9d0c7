//! What tables point to: texts and entries that stay for good.

use schemars::{Schema, SchemaGenerator};
use serde_json::Value as Json;

use super::super::abi::Text;
use crate::registry::inline_generator;

/// A text that a table can point to.
pub(super) fn forever(text: String) -> Text {
    Text::new(text.leak())
}

pub(super) fn schema(make: fn(&mut SchemaGenerator) -> Schema) -> Text {
    forever(make(&mut inline_generator()).to_value().to_string())
}

pub(super) fn defaults(make: fn() -> serde_json::Result<Json>) -> Text {
    forever(make().unwrap_or_default().to_string())
}

/// A table with the entry that it was made from: a call gets the table, and finds the entry behind it.
#[repr(C)]
pub(super) struct Exported<T, E: 'static> {
    table: T,
    entry: &'static E,
}

impl<T, E> Exported<T, E> {
    /// The table, for good.
    pub(super) fn forever(table: T, entry: &'static E) -> *const T {
        (&raw const *Box::leak(Box::new(Self { table, entry }))).cast()
    }

    /// The entry behind a table.
    ///
    /// # Safety
    /// `table` is what [`forever`](Self::forever) gave.
    pub(super) unsafe fn entry(table: *const T) -> &'static E {
        // SAFETY: the caller's promise.
        unsafe { (*table.cast::<Self>()).entry }
    }
}
