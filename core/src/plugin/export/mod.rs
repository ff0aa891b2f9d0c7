//! The plugin's side of the contract, for crates that are written in Rust: what `inventory` knows inside the `.so`, as
//! tables of C functions. Panics are caught here.

mod call;
mod derivation;
mod exported;
mod sink;
mod source;

use std::panic::catch_unwind;
use std::sync::OnceLock;

use serde_json::{Map, Value as Json};

use super::abi::{PluginTable, RT_ABI_MAJOR, RT_ABI_MINOR, Text};
use super::messages;
use crate::derivation::DerivationEntry;
use crate::guard::is_guarded;
use crate::registry::{inline_generator, linked_sections};
use crate::sink_entry::SinkEntry;
use crate::source::SourceEntry;
use exported::forever;

/// Makes a crate with registered components a plugin: with `crate-type = ["cdylib"]` it can be loaded, with
/// `["lib", "cdylib"]` linked as well. Once in a crate, beside its registrations.
///
/// It exports the one symbol of a plugin, so that a program can link one such crate. For several, keep the components in a
/// crate of their own, and this line in a `cdylib` beside it.
#[macro_export]
macro_rules! export_plugin {
    () => {
        /// The one symbol of a plugin.
        #[unsafe(no_mangle)]
        pub extern "C" fn resource_tracker_plugin(abi_version: u32) -> *const $crate::plugin::abi::PluginTable {
            $crate::reexport::plugin_table(abi_version, env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        }
    };
}

/// What this library registers, as a plugin of this name; null for a tracker of another major version. What
/// [`export_plugin!`](crate::export_plugin) exports.
#[doc(hidden)]
pub fn table(abi_version: u32, name: &'static str, version: &'static str) -> *const PluginTable {
    static TABLE: OnceLock<Forever<PluginTable>> = OnceLock::new();
    if abi_version >> 16 != u32::from(RT_ABI_MAJOR) {
        return std::ptr::null();
    }
    let table = || {
        // The tracker reports the panics that are caught.
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !is_guarded() {
                say(panic)
            }
        }));
        messages::install();
        Forever(describe(name, version))
    };
    match catch_unwind(|| TABLE.get_or_init(table).0) {
        Ok(table) => table,
        Err(_) => std::ptr::null(),
    }
}

struct Forever<T: 'static>(&'static T);

// SAFETY: tables are never written to once they are there.
unsafe impl<T> Send for Forever<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for Forever<T> {}

fn describe(name: &'static str, version: &'static str) -> &'static PluginTable {
    let sources = list(inventory::iter::<SourceEntry>().map(source::table));
    let sinks = list(inventory::iter::<SinkEntry>().map(sink::table));
    let derivations = list(inventory::iter::<DerivationEntry>().map(derivation::table));
    let own = linked_sections().into_iter().filter(|entry| !entry.is_shared);
    let sections: Map<String, Json> =
        own.map(|entry| (entry.name.to_owned(), entry.schema(&mut inline_generator()).to_value())).collect();
    Box::leak(Box::new(PluginTable {
        size: size_of::<PluginTable>(),
        abi_major: RT_ABI_MAJOR,
        abi_minor: RT_ABI_MINOR,
        abi_minor_needed: 0,
        name: Text::new(name),
        version: Text::new(version),
        sections: forever(Json::Object(sections).to_string()),
        sources: sources.as_ptr(),
        source_count: sources.len(),
        sinks: sinks.as_ptr(),
        sink_count: sinks.len(),
        derivations: derivations.as_ptr(),
        derivation_count: derivations.len(),
    }))
}

/// A list that a table can point to.
fn list<T>(tables: impl Iterator<Item = *const T>) -> &'static [*const T] {
    tables.collect::<Vec<_>>().leak()
}
