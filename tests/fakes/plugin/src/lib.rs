//! A plugin at the level of the contract, which does what it is told by the environment (`FAKE_PLUGIN`: how it describes
//! itself) and its configuration (`behaviour`: what a reading does).

#![allow(clippy::missing_safety_doc, reason = "they are those of the contract")]

use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};

// By its source: linking the core would bring the entry of plugins that are written with it.
#[path = "../../../../core/src/plugin/abi.rs"]
#[allow(dead_code, reason = "not all of it is used")]
mod abi;

use abi::*;

const SCHEMA: &str = r#"{"type":"object","properties":{
    "behaviour":{"description":"What a reading does.","type":"string"},
    "level":{"description":"A number.","type":"integer"}}}"#;
const SECTIONS: &str = r#"{"fake":{"description":"What a reading told.","type":"object","properties":{
    "tick":{"description":"Its number.","type":"integer","unit":"ticks","kind":"counter"},
    "pids":{"description":"Processes of the job.","type":"integer","unit":"processes","kind":"gauge"},
    "interval_ms":{"description":"Time between samples.","type":"integer","unit":"milliseconds","kind":"gauge"}}}}"#;

/// A plugin of a later minor version: its structs are longer, and it says so.
#[repr(C)]
struct Newer<T> {
    table: T,
    later: [usize; 3],
}

/// A field that version 1.0 did not have, and that would end the process if it was used.
unsafe extern "C" fn trap(_: *const SourceTable, _: Text, _: *const Reply) -> i32 {
    std::process::abort()
}

unsafe extern "C" fn trap_sink(_: *const SinkTable, _: Text, _: *const Reply) -> i32 {
    std::process::abort()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn resource_tracker_plugin(_abi_version: u32) -> *const PluginTable {
    let kind = std::env::var("FAKE_PLUGIN").unwrap_or_default();
    if kind == "none" {
        return std::ptr::null();
    }
    if kind == "forks" {
        CHILD_OF_START.store(child(), Ordering::Relaxed);
    }
    let (minor, grown) = match kind.as_str() {
        "1.0" => (0, 0),
        "1.2" => (2, size_of::<[usize; 3]>()),
        _ => (RT_ABI_MINOR, 0),
    };
    let mut source = SourceTable {
        size: size_of::<SourceTable>() + grown,
        name: Text::new(if kind == "taken" { "cpu" } else { "fake" }),
        description: Text::new("What it is told"),
        default_config: Text::new(r#"{"behaviour":"","level":1}"#),
        config_schema: Text::new(SCHEMA),
        flags: 0,
        order: 1000,
        cadence_ns: RT_EVERY_TICK,
        open: Some(open),
        collect: Some(collect),
        close: Some(close),
        check: None,
    };
    if kind == "1.0" {
        source.size = std::mem::offset_of!(SourceTable, check);
        source.check = Some(trap);
    }
    if kind == "bad-name" {
        source.name = Text::new("My Source");
    }
    if kind == "bad-text" {
        source.description = Text { bytes: b"\xff\xfe".as_ptr(), length: 2 };
    }
    let mut sink = SinkTable {
        size: size_of::<SinkTable>() + grown,
        name: Text::new("fake-file"),
        description: Text::new("Appends every call to a file"),
        default_config: Text::new(r#"{"path":"","behaviour":""}"#),
        config_schema: Text::new(""),
        patience_ns: 0,
        open: Some(open_sink),
        start: Some(start),
        write: Some(write),
        finish: Some(finish),
        close: Some(close_sink),
        check: Some(check_sink),
    };
    if kind == "1.0" {
        sink.size = std::mem::offset_of!(SinkTable, check);
        sink.check = Some(trap_sink);
    }
    fn kept<T>(table: T) -> *const T {
        (&raw const Box::leak(Box::new(Newer { table, later: [usize::MAX; 3] })).table).cast()
    }
    let sources: &[*const SourceTable] = vec![kept(source)].leak();
    let sinks: &[*const SinkTable] = vec![kept(sink)].leak();
    kept(PluginTable {
        size: if kind == "small" { 8 } else { size_of::<PluginTable>() + grown },
        abi_major: if kind == "2.0" { 2 } else { 1 },
        abi_minor: minor,
        abi_minor_needed: if kind == "needs-9" { 9 } else { 0 },
        name: Text::new("fake"),
        version: Text::new("0.0.1"),
        sections: Text::new(if kind == "bad-json" { "{" } else { SECTIONS }),
        sources: sources.as_ptr(),
        source_count: if kind == "many" { usize::MAX } else { 1 },
        sinks: sinks.as_ptr(),
        sink_count: 1,
    })
}

/// Forked when the plugin was loaded.
static CHILD_OF_START: AtomicI32 = AtomicI32::new(0);

/// A child that ends after a moment, with exit code 9.
fn child() -> i32 {
    // SAFETY: the child makes nothing but system calls.
    match unsafe { libc::fork() } {
        0 => unsafe {
            libc::usleep(20_000);
            libc::_exit(9)
        },
        pid => pid,
    }
}

/// Waits for a child, a good while after it has ended, and says how it did.
fn waited(child: i32) -> Result<i32, std::io::Error> {
    std::thread::sleep(std::time::Duration::from_millis(60));
    let mut status = 0;
    // SAFETY: the status is valid to write to.
    match unsafe { libc::waitpid(child, &mut status, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(libc::WEXITSTATUS(status)),
    }
}

struct State {
    behaviour: String,
    ticks: u64,
}

fn member(config: Text, name: &str) -> String {
    // SAFETY: the text of a call.
    let text = unsafe { config.as_str() }.unwrap_or_default();
    let value = text.split_once(&format!("\"{name}\":\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.map_or(String::new(), |(value, _)| value.to_owned())
}

fn fail(reply: *const Reply, why: &str) -> i32 {
    // SAFETY: the reply of a call.
    unsafe {
        let reply = &*reply;
        (reply.fail.unwrap())(reply.context, Text::new(why));
    }
    RT_FAILED
}

unsafe extern "C" fn open(
    _: *const SourceTable,
    host: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    let behaviour = member(config, "behaviour");
    match behaviour.as_str() {
        "absent" => return RT_ABSENT,
        "no-open" => return fail(reply, "the port is taken"),
        "says" => {
            let text = format!("configured as {}\nwith a second line", behaviour);
            // SAFETY: the host of this call.
            unsafe { ((*host).log.unwrap())((*host).context, RT_LOG_WARN, Text::new(&text)) };
        }
        _ => (),
    }
    // SAFETY: the place of this call.
    unsafe { *state = Box::into_raw(Box::new(State { behaviour, ticks: 0 })).cast() };
    RT_OK
}

unsafe extern "C" fn collect(state: *mut c_void, tick: *const TickTable, reply: *const Reply) -> i32 {
    // SAFETY: a state of ours, and what belongs to the call.
    let (state, tick, writer) = unsafe { (&mut *state.cast::<State>(), &*tick, &*reply) };
    // SAFETY: the reply of the call.
    let put = |text: &[u8]| unsafe {
        (writer.write.unwrap())(writer.context, Text { bytes: text.as_ptr(), length: text.len() })
    };
    state.ticks += 1;
    let begins = state.ticks > 3;
    match state.behaviour.as_str() {
        "garbage" if begins => drop(put(b"{\"fake\": {,")),
        "huge" if begins => {
            let part = vec![b' '; 1 << 20];
            for _ in 0..100 {
                put(&part);
            }
        }
        "utf8" if begins => drop(put(b"{\"fake\":{\"name\":\"\xc3\x28\"}}")),
        "foreign" if begins => drop(put(b"{\"memory\":{}}")),
        "error" if begins => return fail(reply, "the device does not answer"),
        "silent-error" if begins => return -77,
        // Those of this thread, and in the second reading the one of the thread that loaded it.
        "forks" => {
            let code = match CHILD_OF_START.load(Ordering::Relaxed) {
                0 => waited(child()),
                pid if state.ticks == 2 => waited(pid),
                _ => waited(child()),
            };
            match code {
                Ok(code) => drop(put(format!("{{\"fake\":{{\"tick\":{code}}}}}").as_bytes())),
                Err(error) => return fail(reply, &error.to_string()),
            }
        }
        "hang" if begins => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "abort" if begins => std::process::abort(),
        // SAFETY: it is not.
        "null" if begins => unsafe { std::ptr::null_mut::<u8>().write_volatile(1) },
        _ => {
            let (number, pids, interval) = (tick.number, tick.pid_count, tick.interval_ns / 1_000_000);
            let text = format!("{{\"fake\":\n{{\"tick\":{number},\"pids\":{pids},\"interval_ms\":{interval}}}}}");
            put(text.as_bytes());
        }
    }
    RT_OK
}

unsafe extern "C" fn close(state: *mut c_void) {
    // SAFETY: a state of ours that nobody uses any more.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}

struct SinkState {
    file: std::fs::File,
    behaviour: String,
}

unsafe extern "C" fn check_sink(_: *const SinkTable, config: Text, reply: *const Reply) -> i32 {
    match member(config, "behaviour").as_str() {
        "refused" => fail(reply, "behaviour must be something else"),
        _ => RT_OK,
    }
}

unsafe extern "C" fn open_sink(
    _: *const SinkTable,
    _: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    let path = member(config, "path");
    let Ok(file) = std::fs::File::options().append(true).create(true).open(&path) else {
        return fail(reply, &format!("cannot open {path:?}"));
    };
    let open = SinkState { file, behaviour: member(config, "behaviour") };
    // SAFETY: the place of this call.
    unsafe { *state = Box::into_raw(Box::new(open)).cast() };
    RT_OK
}

unsafe fn append(state: *mut c_void, what: &str, text: Text) -> i32 {
    // SAFETY: a state of ours, and the text of the call.
    let (state, text) = unsafe { (&mut *state.cast::<SinkState>(), text.as_str().unwrap_or("?")) };
    if what == "sample" && state.behaviour == "abort" {
        std::process::abort();
    }
    match writeln!(state.file, "{what} {text}") {
        Ok(()) => RT_OK,
        Err(_) => RT_FAILED,
    }
}

unsafe extern "C" fn start(state: *mut c_void, run: Text, _: *const Reply) -> i32 {
    // SAFETY: as the caller says.
    unsafe { append(state, "start", run) }
}

unsafe extern "C" fn write(state: *mut c_void, sample: Text, _: *const Reply) -> i32 {
    // SAFETY: as the caller says.
    unsafe { append(state, "sample", sample) }
}

unsafe extern "C" fn finish(state: *mut c_void, outcome: Text, _: *const Reply) -> i32 {
    // SAFETY: as the caller says.
    unsafe { append(state, "finish", outcome) }
}

unsafe extern "C" fn close_sink(state: *mut c_void) {
    // SAFETY: a state of ours that nobody uses any more.
    drop(unsafe { Box::from_raw(state.cast::<SinkState>()) });
}
