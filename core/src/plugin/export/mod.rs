//! The plugin's side of the contract, for crates that are written in Rust: what `inventory` knows inside the `.so`, as
//! tables of C functions. Panics are caught here.

mod derivation;
mod sink;
mod source;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use schemars::SchemaGenerator;
use serde_json::{Map, Value as Json};

use super::abi::{
    HostTable, PluginTable, RT_ABI_MAJOR, RT_ABI_MINOR, RT_FAILED, RT_OK, RT_TICK_LAST, RT_TICK_SPAWNED, Reply, Text,
    TickTable,
};
use super::messages;
use crate::derivation::DerivationEntry;
use crate::guard::{self, is_guarded, panic_message};
use crate::observer::ObservedJob;
use crate::registry::{inline_generator, linked_sections};
use crate::sample::Sections;
use crate::sink::SinkEntry;
use crate::source::{SourceEntry, Tick};

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
            $crate::plugin::table(abi_version, env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
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
        // What is caught is told by the tracker.
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

/// A text that a table can point to.
fn forever(text: String) -> Text {
    Text::new(text.leak())
}

fn schema(make: fn(&mut SchemaGenerator) -> schemars::Schema) -> Text {
    forever(make(&mut inline_generator()).to_value().to_string())
}

fn defaults(make: fn() -> serde_json::Result<Json>) -> Text {
    forever(make().unwrap_or_default().to_string())
}

/// A table with the entry that it was made from: a call gets the table, and finds the entry behind it.
#[repr(C)]
struct Exported<T, E: 'static> {
    table: T,
    entry: &'static E,
}

impl<T, E> Exported<T, E> {
    /// The table, for good.
    fn forever(table: T, entry: &'static E) -> *const T {
        (&raw const *Box::leak(Box::new(Self { table, entry }))).cast()
    }

    /// The entry behind a table.
    ///
    /// # Safety
    /// `table` is what [`forever`](Self::forever) gave.
    unsafe fn entry(table: *const T) -> &'static E {
        // SAFETY: the caller's promise.
        unsafe { (*table.cast::<Self>()).entry }
    }
}

/// A configuration, by way of the plugin's own typetag registry.
fn parse<T: serde::de::DeserializeOwned>(name: &str, config: &str) -> anyhow::Result<T> {
    let mut values: Map<String, Json> = serde_json::from_str(config)?;
    values.insert("type".into(), name.into());
    Ok(serde_json::from_value(values.into())?)
}

/// Runs what a call is to do. An error or a panic becomes a message and a code; what is said meanwhile goes to `host`.
///
/// # Safety
/// `reply` is that of the call, and `host` is there during the call, or null.
unsafe fn guarded(host: *const HostTable, reply: *const Reply, body: impl FnOnce() -> anyhow::Result<i32>) -> i32 {
    let message = match messages::with_host(host, || guard::guarded(body)) {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
    };
    // SAFETY: the caller's promise.
    let reply = unsafe { &*reply };
    if let Some(fail) = reply.fail {
        // SAFETY: the contract; the message lives during the call.
        unsafe { fail(reply.context, Text::new(&message)) };
    }
    RT_FAILED
}

/// A text of a call.
///
/// # Safety
/// It lives during the call.
unsafe fn text<'a>(text: Text) -> anyhow::Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { text.as_str() }.map_err(|problem| anyhow!(problem))
}

/// A moment as a component of this library sees it.
///
/// # Safety
/// `table` is that of a call, and lives with its list during the call.
unsafe fn tick<'a>(table: &TickTable) -> Tick<'a> {
    let pids = match table.pid_count {
        0 => &[],
        // SAFETY: the caller's promise.
        count => unsafe { std::slice::from_raw_parts(table.pids, count) },
    };
    let is_spawned = table.flags & RT_TICK_SPAWNED != 0;
    let job = (table.root_pid != 0).then(|| ObservedJob::new(table.root_pid, is_spawned, pids));
    let (elapsed, interval) = (Duration::from_nanos(table.elapsed_ns), Duration::from_nanos(table.interval_ns));
    let last = table.flags & RT_TICK_LAST != 0;
    Tick { last, job, ..Tick::new(table.number, Instant::now(), elapsed, interval) }
}

/// Sections on their way to the tracker.
#[derive(Default)]
struct Written {
    sections: Sections,
    text: Vec<u8>,
    /// What writes them has panicked, and what it holds may be anything.
    panicked: Option<String>,
}

impl Written {
    /// Has `write` fill the sections anew, and hands them over.
    ///
    /// # Safety
    /// `reply` is that of a call.
    unsafe fn answer(
        &mut self,
        reply: *const Reply,
        write: impl FnOnce(&mut Sections) -> anyhow::Result<()>,
    ) -> anyhow::Result<i32> {
        if let Some(message) = &self.panicked {
            bail!("{message}");
        }
        self.sections.clear();
        let sections = &mut self.sections;
        match catch_unwind(AssertUnwindSafe(|| write(sections))) {
            Ok(result) => result?,
            Err(panic) => {
                let message = format!("it panicked: {}", panic_message(&*panic));
                self.panicked = Some(message.clone());
                bail!("{message}");
            }
        }
        self.text.clear();
        self.sections.write_json(&mut self.text)?;
        let text = Text { bytes: self.text.as_ptr(), length: self.text.len() };
        // SAFETY: the caller's promise.
        let reply = unsafe { &*reply };
        let write = reply.write.context("the tracker takes no answer")?;
        // SAFETY: the contract; the text lives during the call.
        unsafe { write(reply.context, text) };
        Ok(RT_OK)
    }
}

/// # Safety
/// `state` is a `T` of ours that nobody uses any more.
unsafe extern "C" fn close<T>(state: *mut c_void) {
    // SAFETY: the caller's promise. A panic while it is dropped has nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(state.cast::<T>()) })));
}
