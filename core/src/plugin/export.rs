//! The plugin's side of the contract, for crates that are written in Rust: what `inventory` knows inside the `.so`, as
//! tables of C functions. Panics are caught here.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use schemars::SchemaGenerator;
use serde_json::{Map, Value as Json};

use super::abi::{
    HostTable, PluginTable, RT_ABI_MAJOR, RT_ABI_MINOR, RT_ABSENT, RT_EVERY_TICK, RT_FAILED, RT_HOST_WRAPS_COMMAND,
    RT_OK, RT_ONCE, RT_SOURCE_BLOCKS, RT_SOURCE_ON_BY_DEFAULT, RT_TICK_LAST, RT_TICK_SPAWNED, Reply, SinkTable,
    SourceTable, Text, TickTable,
};
use super::messages;
use super::prefix::known_part;
use super::run::name_forever;
use crate::guard::{self, is_guarded, panic_message};
use crate::job::{Outcome, Run};
use crate::observer::ObservedJob;
use crate::registry::{inline_generator, linked_sections};
use crate::sample::{Sample, Sections};
use crate::sink::{Sink, SinkConfig, SinkContext, SinkEntry};
use crate::source::{Cadence, Host, Source, SourceConfig, SourceEntry, Tick};

/// Name and version of a plugin; for [`export_plugin!`](crate::export_plugin).
pub struct PluginInfo {
    /// The crate's name.
    pub name: &'static str,
    /// The crate's version.
    pub version: &'static str,
}

inventory::collect!(PluginInfo);

/// Makes a crate with registered sources and sinks a plugin as well: with `crate-type = ["lib", "cdylib"]` the same code
/// can be linked or loaded. Once in a crate, beside its registrations.
#[macro_export]
macro_rules! export_plugin {
    () => {
        $crate::reexport::inventory::submit! {
            $crate::plugin::PluginInfo { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") }
        }
    };
}

/// The one symbol of a plugin. It is here, and not in the macro, so that several such crates can be linked together.
///
/// # Safety
/// None is needed; the type is the contract's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn resource_tracker_plugin(abi_version: u32) -> *const PluginTable {
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
        Forever(describe())
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

fn describe() -> &'static PluginTable {
    let info = inventory::iter::<PluginInfo>().next();
    let sources: Vec<*const SourceTable> = inventory::iter::<SourceEntry>().map(source_table).collect();
    let sinks: Vec<*const SinkTable> = inventory::iter::<SinkEntry>().map(sink_table).collect();
    let own = linked_sections().into_iter().filter(|entry| !entry.is_shared);
    let sections: Map<String, Json> =
        own.map(|entry| (entry.name.to_owned(), entry.schema(&mut inline_generator()).to_value())).collect();
    let (source_count, sink_count) = (sources.len(), sinks.len());
    Box::leak(Box::new(PluginTable {
        size: size_of::<PluginTable>(),
        abi_major: RT_ABI_MAJOR,
        abi_minor: RT_ABI_MINOR,
        abi_minor_needed: 0,
        name: Text::new(info.map_or("", |info| info.name)),
        version: Text::new(info.map_or("", |info| info.version)),
        sections: forever(Json::Object(sections).to_string()),
        sources: sources.leak().as_ptr(),
        source_count,
        sinks: sinks.leak().as_ptr(),
        sink_count,
    }))
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

fn source_table(entry: &'static SourceEntry) -> *const SourceTable {
    let configured = parse::<Box<dyn SourceConfig>>(entry.name, "{}");
    let schedule = configured.map(|config| config.schedule()).unwrap_or_default();
    let on = if entry.on_by_default { RT_SOURCE_ON_BY_DEFAULT } else { 0 };
    let table = SourceTable {
        size: size_of::<SourceTable>(),
        name: Text::new(entry.name),
        description: Text::new(entry.description),
        default_config: defaults(entry.defaults),
        config_schema: schema(entry.schema),
        flags: on | if schedule.blocking { RT_SOURCE_BLOCKS } else { 0 },
        order: entry.order,
        cadence_ns: match schedule.cadence {
            Cadence::EveryTick => RT_EVERY_TICK,
            Cadence::Once => RT_ONCE,
            Cadence::Every(time) => time.as_nanos().try_into().unwrap_or(RT_ONCE - 1),
        },
        open: Some(open_source),
        collect: Some(collect),
        close: Some(close::<OpenSource>),
        check: Some(check_source),
    };
    (&raw const *Box::leak(Box::new(Exported { table, entry }))).cast()
}

fn sink_table(entry: &'static SinkEntry) -> *const SinkTable {
    let configured = parse::<Box<dyn SinkConfig>>(entry.name, "{}");
    let table = SinkTable {
        size: size_of::<SinkTable>(),
        name: Text::new(entry.name),
        description: Text::new(entry.description),
        default_config: defaults(entry.defaults),
        config_schema: schema(entry.schema),
        patience_ns: configured.map_or(0, |config| config.patience().as_nanos().try_into().unwrap_or(u64::MAX)),
        open: Some(open_sink),
        start: Some(start),
        write: Some(write),
        finish: Some(finish),
        close: Some(close::<OpenSink>),
        check: Some(check_sink),
    };
    (&raw const *Box::leak(Box::new(Exported { table, entry }))).cast()
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

struct OpenSource {
    source: Box<dyn Source>,
    out: Sections,
    buffer: Vec<u8>,
    /// Whether the baseline primes it; else it is the one reading.
    is_primed: bool,
    /// It is there until `close` has returned.
    host: *const HostTable,
    /// It has panicked, and what it holds may be anything.
    panicked: Option<String>,
}

unsafe extern "C" fn check_source(this: *const SourceTable, config: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(std::ptr::null(), reply, || {
            let entry = (*this.cast::<Exported<SourceTable, SourceEntry>>()).entry;
            parse::<Box<dyn SourceConfig>>(entry.name, text(config)?).map(|_| RT_OK)
        })
    }
}

unsafe extern "C" fn open_source(
    this: *const SourceTable,
    host: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(host, reply, || {
            let entry = (*this.cast::<Exported<SourceTable, SourceEntry>>()).entry;
            let config: Box<dyn SourceConfig> = parse(entry.name, text(config)?)?;
            let machine = Host::new(text((*host).procfs)?, text((*host).sysfs)?);
            let Some(source) = config.build(&machine)? else { return Ok(RT_ABSENT) };
            let is_primed = config.schedule().cadence != Cadence::Once;
            let (out, buffer) = (Sections::default(), Vec::new());
            let open = OpenSource { source, out, buffer, is_primed, host, panicked: None };
            *state = Box::into_raw(Box::new(open)).cast();
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn collect(state: *mut c_void, tick: *const TickTable, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    let (open, tick, writer) = unsafe { (&mut *state.cast::<OpenSource>(), known_part(tick), &*reply) };
    // SAFETY: the same.
    unsafe {
        guarded(open.host, reply, || {
            if let Some(message) = &open.panicked {
                bail!("{message}");
            }
            let pids = match tick.pid_count {
                0 => &[],
                count => std::slice::from_raw_parts(tick.pids, count),
            };
            let is_spawned = tick.flags & RT_TICK_SPAWNED != 0;
            let job = (tick.root_pid != 0).then(|| ObservedJob::new(tick.root_pid, is_spawned, pids));
            let (elapsed, interval) = (Duration::from_nanos(tick.elapsed_ns), Duration::from_nanos(tick.interval_ns));
            let last = tick.flags & RT_TICK_LAST != 0;
            let tick = Tick { last, job, ..Tick::new(tick.number, Instant::now(), elapsed, interval) };
            open.out.clear();
            let (source, out) = (&mut open.source, &mut open.out);
            let read = || match tick.number {
                0 if open.is_primed => source.prime(&tick, out),
                _ => source.collect(&tick, out),
            };
            match catch_unwind(AssertUnwindSafe(read)) {
                Ok(result) => result?,
                Err(panic) => {
                    let message = format!("it panicked: {}", panic_message(&*panic));
                    open.panicked = Some(message.clone());
                    bail!("{message}");
                }
            }
            open.buffer.clear();
            open.out.write_json(&mut open.buffer)?;
            let answer = Text { bytes: open.buffer.as_ptr(), length: open.buffer.len() };
            let write = writer.write.context("the tracker takes no answer")?;
            write(writer.context, answer);
            Ok(RT_OK)
        })
    }
}

struct OpenSink {
    sink: Box<dyn Sink>,
    run: Arc<Run>,
    /// It is there until `close` has returned.
    host: *const HostTable,
}

unsafe extern "C" fn check_sink(this: *const SinkTable, config: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(std::ptr::null(), reply, || {
            let entry = (*this.cast::<Exported<SinkTable, SinkEntry>>()).entry;
            parse::<Box<dyn SinkConfig>>(entry.name, text(config)?)?.check()?;
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn open_sink(
    this: *const SinkTable,
    host: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(host, reply, || {
            let entry = (*this.cast::<Exported<SinkTable, SinkEntry>>()).entry;
            let config: Box<dyn SinkConfig> = parse(entry.name, text(config)?)?;
            let context = SinkContext { wraps_command: (*host).flags & RT_HOST_WRAPS_COMMAND != 0 };
            let open = OpenSink { sink: config.build(&context)?, run: Arc::default(), host };
            *state = Box::into_raw(Box::new(open)).cast();
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn start(state: *mut c_void, run: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            open.run = Arc::new(Run::from_json(&serde_json::from_str(text(run)?)?));
            open.sink.start(&open.run).map(|()| RT_OK)
        })
    }
}

unsafe extern "C" fn write(state: *mut c_void, sample: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            let sample = Sample::from_json(text(sample)?, &open.run, name_forever)?;
            open.sink.write(&sample).map(|()| RT_OK)
        })
    }
}

unsafe extern "C" fn finish(state: *mut c_void, outcome: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            open.sink.finish(&Outcome::from_json(&serde_json::from_str(text(outcome)?)?)).map(|()| RT_OK)
        })
    }
}

/// # Safety
/// `state` is a `T` of ours that nobody uses any more.
unsafe extern "C" fn close<T>(state: *mut c_void) {
    // SAFETY: the caller's promise. A panic while it is dropped has nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(state.cast::<T>()) })));
}
