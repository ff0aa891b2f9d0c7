//! The contract between a tracker and a plugin, as C sees it. `core/include/resource_tracker_plugin.h` is made from this
//! file.
//!
//! Nothing of Rust crosses it: no layout but `repr(C)`, no allocator, no panic. Whoever allocates something frees it.
//! Every struct begins with its size as its writer knows it, and new fields come at the end; a reader takes what both
//! know.

use std::ffi::c_void;

/// Version of this contract that cannot be mixed with another one.
pub const RT_ABI_MAJOR: u16 = 1;
/// Grows when fields or flags are added.
pub const RT_ABI_MINOR: u16 = 2;

/// The call did what it should.
pub const RT_OK: i32 = 0;
/// Of `open`: there is nothing of the kind on this machine, which is no error. The component is not called again.
pub const RT_ABSENT: i32 = 1;
/// The call failed; `rt_reply.fail` was told why. A source or sink is called again later.
pub const RT_FAILED: i32 = -1;

/// The source runs unless the user turns it off.
pub const RT_SOURCE_ON_BY_DEFAULT: u32 = 1;
/// A reading can take long. Every source of a plugin has a thread of its own; this is for people to know.
pub const RT_SOURCE_BLOCKS: u32 = 2;

/// `rt_source.cadence_ns`: at every tick.
pub const RT_EVERY_TICK: u64 = 0;
/// `rt_source.cadence_ns`: until it has been read once.
pub const RT_ONCE: u64 = u64::MAX;

/// The run ends with this tick.
pub const RT_TICK_LAST: u32 = 1;
/// The tracker has started the process that is tracked.
pub const RT_TICK_SPAWNED: u32 = 2;

/// Levels of `rt_host.log`, from the one that is always shown on.
pub const RT_LOG_ERROR: u32 = 1;
/// Shown on standard error.
pub const RT_LOG_WARN: u32 = 2;
/// Not shown.
pub const RT_LOG_INFO: u32 = 3;

/// The tracker wraps a command, which owns standard output.
pub const RT_HOST_WRAPS_COMMAND: u32 = 1;

/// Text: UTF-8, not terminated by a null byte. `bytes` may be null when `length` is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Its first byte.
    pub bytes: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// Takes what a call answers. It is valid during the call, on the thread of the call.
#[repr(C)]
pub struct Reply {
    /// `sizeof(rt_reply)` of the tracker.
    pub size: usize,
    /// For the functions below.
    pub context: *mut c_void,
    /// Appends to the answer. It copies the text. Not 0 when the answer has become too long (4 MiB), and the call may
    /// as well return then.
    pub write: Option<unsafe extern "C" fn(context: *mut c_void, text: Text) -> i32>,
    /// Says why the call fails, in one line. It copies the text. The last one counts.
    pub fail: Option<unsafe extern "C" fn(context: *mut c_void, message: Text)>,
}

/// The tracker, as a component sees it. It is valid from `open` until `close` has returned.
#[repr(C)]
pub struct HostTable {
    /// `sizeof(rt_host)` of the tracker.
    pub size: usize,
    /// The tracker's `RT_ABI_MINOR`.
    pub abi_minor: u32,
    /// `RT_HOST_…`
    pub flags: u32,
    /// For `log`.
    pub context: *mut c_void,
    /// Writes a message of one line, with the name of the component before it. It can be called on any thread.
    pub log: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, message: Text)>,
    /// Where procfs is mounted: `/proc`, unless a container looks at its host.
    pub procfs: Text,
    /// Where sysfs is mounted: `/sys` likewise.
    pub sysfs: Text,
}

/// One moment at which sources are read. It is valid during the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TickTable {
    /// `sizeof(rt_tick)` of the tracker.
    pub size: usize,
    /// 0 for the baseline, which is in no sample of its own: it primes the counters that deltas are taken from.
    pub number: u64,
    /// When the reading begins, in nanoseconds since the Unix epoch.
    pub timestamp_ns: u64,
    /// Nanoseconds since this source was read before; 0 the first time.
    pub elapsed_ns: u64,
    /// `RT_TICK_…`
    pub flags: u32,
    /// Root of the process tree that is tracked; 0 when none is.
    pub root_pid: i32,
    /// The processes of the tree, in no particular order.
    pub pids: *const i32,
    /// Number of them.
    pub pid_count: usize,
    /// Nanoseconds between two samples. Since 1.1.
    pub interval_ns: u64,
}

/// A source: where readings come from.
///
/// `state` is what `open` made. The calls of one state never overlap, and may come from different threads; those of two
/// states may overlap.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SourceTable {
    /// `sizeof(rt_source)` of the plugin.
    pub size: usize,
    /// Its name: lower case letters, digits, `-` and `_`. No other component may have it.
    pub name: Text,
    /// What it reads, in one line.
    pub description: Text,
    /// Its configuration when the user says nothing: a JSON object with every key.
    pub default_config: Text,
    /// The JSON Schema of its configuration. The descriptions of the properties are shown to users. Empty for none.
    pub config_schema: Text,
    /// `RT_SOURCE_…`
    pub flags: u32,
    /// Where it stands among the other sources: lower first, 1000 when it does not matter.
    pub order: u32,
    /// Nanoseconds from one reading to the next, or `RT_EVERY_TICK`, or `RT_ONCE`.
    pub cadence_ns: u64,
    /// Opens what is to be read. `config` is a JSON object with every key; it is valid during the call. `own` is this
    /// table. Returns `RT_OK` and a state that is not null, or `RT_ABSENT`, or `RT_FAILED`.
    pub open: Option<
        unsafe extern "C" fn(
            own: *const SourceTable,
            host: *const HostTable,
            config: Text,
            state: *mut *mut c_void,
            reply: *const Reply,
        ) -> i32,
    >,
    /// Reads once, and writes one JSON object: the name of each section, and the section. Returns `RT_OK` or
    /// `RT_FAILED`. A single value that cannot be read is null and no failure.
    pub collect: Option<unsafe extern "C" fn(state: *mut c_void, tick: *const TickTable, reply: *const Reply) -> i32>,
    /// Frees the state. It is not used any more.
    pub close: Option<unsafe extern "C" fn(state: *mut c_void)>,
    /// Says whether a configuration can be used, before anything runs. May be null. Since 1.1.
    pub check: Option<unsafe extern "C" fn(own: *const SourceTable, config: Text, reply: *const Reply) -> i32>,
}

/// A sink: where samples go. States are used as those of sources are, each on a thread of its own that may block.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SinkTable {
    /// `sizeof(rt_sink)` of the plugin.
    pub size: usize,
    /// Its name, as that of a source.
    pub name: Text,
    /// What it does, in one line.
    pub description: Text,
    /// Its configuration when the user says nothing: a JSON object with every key.
    pub default_config: Text,
    /// The JSON Schema of its configuration. Empty for none.
    pub config_schema: Text,
    /// How long the end of the run waits for it while it makes no progress, in nanoseconds; 0 for the usual 2 s.
    pub patience_ns: u64,
    /// Opens the destination, when the run begins. As `rt_source.open`.
    pub open: Option<
        unsafe extern "C" fn(
            own: *const SinkTable,
            host: *const HostTable,
            config: Text,
            state: *mut *mut c_void,
            reply: *const Reply,
        ) -> i32,
    >,
    /// The run begins. `run` is a JSON object: `program`, `version`, `job`, `command`, `pid`, `interval_secs`,
    /// `started_ms`. May be null.
    pub start: Option<unsafe extern "C" fn(state: *mut c_void, run: Text, reply: *const Reply) -> i32>,
    /// Takes one sample, whole or not at all: the JSON object that the tracker prints, without a line end.
    pub write: Option<unsafe extern "C" fn(state: *mut c_void, sample: Text, reply: *const Reply) -> i32>,
    /// The run has ended: flush. `outcome` is a JSON object: `exit_code` and `signal`, of which one or both are null.
    /// May be null.
    pub finish: Option<unsafe extern "C" fn(state: *mut c_void, outcome: Text, reply: *const Reply) -> i32>,
    /// Frees the state.
    pub close: Option<unsafe extern "C" fn(state: *mut c_void)>,
    /// As `rt_source.check`. Since 1.1.
    pub check: Option<unsafe extern "C" fn(own: *const SinkTable, config: Text, reply: *const Reply) -> i32>,
}

/// A derivation: what follows from what the sources saw in one sample. States are used as those of sources are. The
/// sample waits for the answer, a quarter of the interval or 50 ms, and then goes on without. Since 1.2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DerivationTable {
    /// `sizeof(rt_derivation)` of the plugin.
    pub size: usize,
    /// Its name, as that of a source. No other derivation may have it.
    pub name: Text,
    /// What it adds, in one line.
    pub description: Text,
    /// Makes a state, at the first sample. `run` is what `rt_sink.start` gets. The rest is as in `rt_source.open`.
    pub open: Option<
        unsafe extern "C" fn(
            own: *const DerivationTable,
            host: *const HostTable,
            run: Text,
            state: *mut *mut c_void,
            reply: *const Reply,
        ) -> i32,
    >,
    /// Looks at one sample, the JSON object that the tracker prints without what derivations add, and writes one JSON
    /// object: the name of each section, and the section.
    pub derive: Option<
        unsafe extern "C" fn(state: *mut c_void, tick: *const TickTable, sample: Text, reply: *const Reply) -> i32,
    >,
    /// Frees the state.
    pub close: Option<unsafe extern "C" fn(state: *mut c_void)>,
}

/// What a plugin consists of. It stays as it is until the process ends, with all that it points to: a plugin is never
/// unloaded.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PluginTable {
    /// `sizeof(rt_plugin)` of the plugin.
    pub size: usize,
    /// `RT_ABI_MAJOR` that it was built with.
    pub abi_major: u16,
    /// `RT_ABI_MINOR` that it was built with.
    pub abi_minor: u16,
    /// The lowest minor version of a tracker that it works with.
    pub abi_minor_needed: u32,
    /// Its name.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// The sections that its sources and derivations write: a JSON object of the name of each and its JSON Schema, where properties have
    /// `description`, `unit` and `kind` (`gauge`, `counter`, `delta` or `info`).
    pub sections: Text,
    /// Its sources.
    pub sources: *const *const SourceTable,
    /// Number of them.
    pub source_count: usize,
    /// Its sinks.
    pub sinks: *const *const SinkTable,
    /// Number of them.
    pub sink_count: usize,
    /// Its derivations. Since 1.2.
    pub derivations: *const *const DerivationTable,
    /// Number of them. Since 1.2.
    pub derivation_count: usize,
}

/// The one symbol of a plugin, `resource_tracker_plugin`. It is told the tracker's version, `RT_ABI_MAJOR` in the upper
/// half and `RT_ABI_MINOR` in the lower, and returns null when it does not work with it.
pub type Entry = unsafe extern "C" fn(abi_version: u32) -> *const PluginTable;

impl Text {
    /// A text of Rust, for as long as that lives.
    pub const fn new(text: &str) -> Self {
        Self { bytes: text.as_ptr(), length: text.len() }
    }

    /// What it says.
    ///
    /// # Errors
    /// When it is no UTF-8, or null with a length.
    ///
    /// # Safety
    /// `bytes` points to `length` bytes that live for `'a`, or is null.
    pub unsafe fn as_str<'a>(self) -> Result<&'a str, &'static str> {
        if self.length == 0 {
            return Ok("");
        }
        if self.bytes.is_null() || self.length > isize::MAX as usize {
            return Err("a text of which nobody can say where it is");
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes, self.length) };
        std::str::from_utf8(bytes).map_err(|_| "a text that is not UTF-8")
    }
}
