//! A plugin at the level of the contract, which does what it is told by the environment (`FAKE_PLUGIN`: how it describes
//! itself) and its configuration (`behaviour`: what a reading does).

#![allow(clippy::missing_safety_doc, reason = "they are those of the contract")]

use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};

use resource_tracker_core::plugin::abi::*;

mod derivation;

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
    if kind == "thread" {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    if kind == "forks" {
        CHILD_OF_START.store(child(), Ordering::Relaxed);
    }
    let (minor, grown) = match kind.as_str() {
        "1.0" => (0, 0),
        "1.9" => (9, size_of::<[usize; 3]>()),
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
    let derivations: &[*const DerivationTable] = derivation::table().map(kept).into_iter().collect::<Vec<_>>().leak();
    let size = match kind.as_str() {
        "small" => 8,
        "1.0" => std::mem::offset_of!(PluginTable, derivations),
        _ => size_of::<PluginTable>() + grown,
    };
    kept(PluginTable {
        size,
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
        derivations: derivations.as_ptr(),
        derivation_count: derivations.len(),
    })
}

/// Forked when the plugin was loaded.
static CHILD_OF_START: AtomicI32 = AtomicI32::new(0);

/// A child that ends after a moment, with exit code 9.
fn child() -> i32 {
    // SAFETY: the child makes nothing but system calls.
    match unsafe { libc::fork() } {
        // SAFETY: system calls on numbers, the last of which ends the process.
        0 => unsafe {
            libc::usleep(20_000);
            libc::_exit(9)
        },
        pid => pid,
    }
}

/// A child that works for 0.2 s of CPU time and ends with exit code 9, of a thread that has ended meanwhile.
fn child_of_an_ended_thread() -> i32 {
    let fork = || {
        // SAFETY: the child makes nothing but system calls.
        match unsafe { libc::fork() } {
            0 => {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                while time.tv_sec == 0 && time.tv_nsec < 200_000_000 {
                    // SAFETY: the time is valid to write to.
                    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
                }
                // SAFETY: it ends the process.
                unsafe { libc::_exit(9) }
            }
            pid => pid,
        }
    };
    let child = std::thread::spawn(fork).join().unwrap_or(-1);
    let stat = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    while stat().contains(") R") || stat().contains(") S") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
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
    /// Processes that it has started.
    helpers: Vec<String>,
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
    unsafe { *state = Box::into_raw(Box::new(State { behaviour, ticks: 0, helpers: Vec::new() })).cast() };
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
        "forks" | "thread-forks" => {
            let child = match CHILD_OF_START.load(Ordering::Relaxed) {
                _ if state.behaviour == "thread-forks" => child_of_an_ended_thread(),
                pid if pid != 0 && state.ticks == 2 => pid,
                _ => child(),
            };
            match waited(child) {
                Ok(code) => drop(put(format!("{{\"fake\":{{\"tick\":{code},\"pids\":{child}}}}}").as_bytes())),
                Err(error) => return fail(reply, &error.to_string()),
            }
        }
        "hang" if begins => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "abort" if begins => std::process::abort(),
        "exit" if begins => std::process::exit(0),
        "torn" if begins => return torn(put),
        "scribble" if begins => scribble(),
        "close" if begins => close_all(),
        "print" => println!("this is not the plugin's to write to"),
        "look" => {
            put(look(tick).as_bytes());
        }
        "helper" | "daemon" | "daemon-abort" => {
            put(helper(state).as_bytes());
            if begins && state.behaviour == "daemon-abort" {
                std::process::abort();
            }
        }
        // SAFETY: it is not.
        "null" if begins => unsafe { std::ptr::null_mut::<u8>().write_volatile(1) },
        _ => {
            put(usual(tick).as_bytes());
        }
    }
    RT_OK
}

fn usual(tick: &TickTable) -> String {
    let (number, pids, interval) = (tick.number, tick.pid_count, tick.interval_ns / 1_000_000);
    let (process, elapsed) = (std::process::id(), tick.elapsed_ns);
    format!(
        "{{\"fake\":\n{{\"tick\":{number},\"pids\":{pids},\"interval_ms\":{interval},\
         \"process\":{process},\"elapsed_ns\":{elapsed}}}}}"
    )
}

/// Descriptors of this process, with what they are.
fn descriptors() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = entries.filter_map(|entry| {
        let link = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        Some((entry.file_name().to_str()?.parse().ok()?, link))
    });
    open.collect()
}

fn sockets() -> Vec<i32> {
    let all = descriptors().into_iter();
    all.filter(|(number, link)| *number > 2 && link.starts_with("socket:")).map(|(number, _)| number).collect()
}

/// A long answer, in the middle of which the process dies: as soon as a part of it waits in a socket.
fn torn(put: impl Fn(&[u8]) -> i32) -> i32 {
    put(b"{\"fake\":{\"tick\":1,\"pad\":\"");
    for _ in 0..3 {
        put(&vec![b' '; 1 << 20]);
    }
    put(b"\"}}");
    std::thread::spawn(|| {
        let sockets = sockets();
        loop {
            for socket in &sockets {
                let mut waits = 0;
                // SAFETY: it writes one number.
                unsafe { libc::ioctl(*socket, libc::TIOCOUTQ, &mut waits) };
                if waits > 0 {
                    std::process::abort();
                }
            }
        }
    });
    RT_OK
}

/// Writes to what is not its own, and dies.
fn scribble() {
    for socket in sockets() {
        for text in [&[1; 1000][..], &[0; 1000], &[255; 1000], b"?"] {
            // SAFETY: the text is valid to read.
            unsafe { libc::send(socket, text.as_ptr().cast(), text.len(), libc::MSG_DONTWAIT) };
        }
    }
    std::process::abort();
}

/// As a daemon does that wants to have nothing of its parent.
fn close_all() {
    for number in 3..256 {
        // SAFETY: it is not, which is the point.
        unsafe { libc::close(number) };
    }
}

/// What this process has that may be somebody else's.
fn look(tick: &TickTable) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default().trim();
    let (number, process) = (tick.number, std::process::id());
    let links: Vec<String> = descriptors().into_iter().map(|(number, link)| format!("\"{number} {link}\"")).collect();
    let links = links.join(",");
    format!("{{\"fake\":{{\"tick\":{number},\"process\":{process},\"blocked\":\"{blocked}\",\"open\":[{links}]}}}}")
}

/// A process of its own, which it forgets; as a daemon also one whose parent ends at once.
fn helper(state: &mut State) -> String {
    let (number, process) = (state.ticks, std::process::id());
    if state.helpers.is_empty() {
        let shell = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script]).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
            shell.spawn()
        };
        let scripts = ["echo $$; exec sleep 600", "sleep 600 >&- & echo $!"];
        let count = if state.behaviour == "helper" { 1 } else { 2 };
        for script in &scripts[..count] {
            let mut line = String::new();
            if let Some(stdout) = shell(script).ok().and_then(|mut shell| shell.stdout.take()) {
                let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line);
            }
            state.helpers.push(line.trim().to_owned());
        }
    }
    let helpers = state.helpers.join(",");
    format!("{{\"fake\":{{\"tick\":{number},\"process\":{process},\"helpers\":[{helpers}]}}}}")
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
    if state.behaviour == format!("abort-{what}") || what == "sample" && state.behaviour == "abort" {
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
