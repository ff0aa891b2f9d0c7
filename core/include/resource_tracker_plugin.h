/* The plugin interface of resource-tracker, version 1.2.

   A plugin is a shared library with the one symbol that is declared at the end. It describes sources, which read, sinks,
   which write, and derivations, which say what follows from a sample. It can be written in any language that can export a C function.

   Who owns what: every text and table that is passed belongs to the one who passes it, and is valid as long as its
   comment says. Nothing is freed by the other side.
   Threads: the calls of one state never overlap, but may come from different threads. Those of different states may.
   What may be called when: `check` at any time; `open`, then `collect` (`derive`; or `start`, `write`, `finish`) as often as it
   comes, then `close`, after which nothing uses the state. `rt_host.log` from `open` to `close`, on any thread.
   What must not happen: a call must not unwind, throw, longjmp out or end the process. It may take its time: each state
   has a thread of its own.
   Sizes: each struct begins with the size that its writer knows. Fields that came later are at the end, and are to be
   used only when the size covers them; RT_HAS does that.

   This file is made from core/src/plugin/abi.rs. */

#ifndef RESOURCE_TRACKER_PLUGIN_H
#define RESOURCE_TRACKER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

// Version of this contract that cannot be mixed with another one.
#define RT_ABI_MAJOR 1

// Grows when fields or flags are added.
#define RT_ABI_MINOR 2

// The call did what it should.
#define RT_OK 0

// Of `open`: there is nothing of the kind on this machine, which is no error. The component is not called again.
#define RT_ABSENT 1

// The call failed; `rt_reply.fail` was told why. A source or sink is called again later.
#define RT_FAILED -1

// The source runs unless the user turns it off.
#define RT_SOURCE_ON_BY_DEFAULT 1

// A reading can take long. Every source of a plugin has a thread of its own; this is for people to know.
#define RT_SOURCE_BLOCKS 2

// `rt_source.cadence_ns`: at every tick.
#define RT_EVERY_TICK 0

// `rt_source.cadence_ns`: until it has been read once.
#define RT_ONCE UINT64_MAX

// The run ends with this tick.
#define RT_TICK_LAST 1

// The tracker has started the process that is tracked.
#define RT_TICK_SPAWNED 2

// Levels of `rt_host.log`, from the one that is always shown on.
#define RT_LOG_ERROR 1

// Shown on standard error.
#define RT_LOG_WARN 2

// Not shown.
#define RT_LOG_INFO 3

// The tracker wraps a command, which owns standard output.
#define RT_HOST_WRAPS_COMMAND 1

// Text: UTF-8, not terminated by a null byte. `bytes` may be null when `length` is 0.
typedef struct rt_text {
  // Its first byte.
  const uint8_t *bytes;
  // Number of bytes.
  size_t length;
} rt_text;

// Takes what a call answers. It is valid during the call, on the thread of the call.
typedef struct rt_reply {
  // `sizeof(rt_reply)` of the tracker.
  size_t size;
  // For the functions below.
  void *context;
  // Appends to the answer. It copies the text. Not 0 when the answer has become too long (4 MiB), and the call may
  // as well return then.
  int32_t (*write)(void *context, struct rt_text text);
  // Says why the call fails, in one line. It copies the text. The last one counts.
  void (*fail)(void *context, struct rt_text message);
} rt_reply;

// The tracker, as a component sees it. It is valid from `open` until `close` has returned.
typedef struct rt_host {
  // `sizeof(rt_host)` of the tracker.
  size_t size;
  // The tracker's `RT_ABI_MINOR`.
  uint32_t abi_minor;
  // `RT_HOST_…`
  uint32_t flags;
  // For `log`.
  void *context;
  // Writes a message of one line, with the name of the component before it. It can be called on any thread.
  void (*log)(void *context, uint32_t level, struct rt_text message);
  // Where procfs is mounted: `/proc`, unless a container looks at its host.
  struct rt_text procfs;
  // Where sysfs is mounted: `/sys` likewise.
  struct rt_text sysfs;
} rt_host;

// One moment at which sources are read. It is valid during the call.
typedef struct rt_tick {
  // `sizeof(rt_tick)` of the tracker.
  size_t size;
  // 0 for the baseline, which is in no sample of its own: it primes the counters that deltas are taken from.
  uint64_t number;
  // When the reading begins, in nanoseconds since the Unix epoch.
  uint64_t timestamp_ns;
  // Nanoseconds since this source was read before; 0 the first time.
  uint64_t elapsed_ns;
  // `RT_TICK_…`
  uint32_t flags;
  // Root of the process tree that is tracked; 0 when none is.
  int32_t root_pid;
  // The processes of the tree, in no particular order.
  const int32_t *pids;
  // Number of them.
  size_t pid_count;
  // Nanoseconds between two samples. Since 1.1.
  uint64_t interval_ns;
} rt_tick;

// A source: where readings come from.
//
// `state` is what `open` made. The calls of one state never overlap, and may come from different threads; those of two
// states may overlap.
typedef struct rt_source {
  // `sizeof(rt_source)` of the plugin.
  size_t size;
  // Its name: lower case letters, digits, `-` and `_`. No other component may have it.
  struct rt_text name;
  // What it reads, in one line.
  struct rt_text description;
  // Its configuration when the user says nothing: a JSON object with every key.
  struct rt_text default_config;
  // The JSON Schema of its configuration. The descriptions of the properties are shown to users. Empty for none.
  struct rt_text config_schema;
  // `RT_SOURCE_…`
  uint32_t flags;
  // Where it stands among the other sources: lower first, 1000 when it does not matter.
  uint32_t order;
  // Nanoseconds from one reading to the next, or `RT_EVERY_TICK`, or `RT_ONCE`.
  uint64_t cadence_ns;
  // Opens what is to be read. `config` is a JSON object with every key; it is valid during the call. `own` is this
  // table. Returns `RT_OK` and a state that is not null, or `RT_ABSENT`, or `RT_FAILED`.
  int32_t (*open)(const struct rt_source *own,
                  const struct rt_host *host,
                  struct rt_text config,
                  void **state,
                  const struct rt_reply *reply);
  // Reads once, and writes one JSON object: the name of each section, and the section. Returns `RT_OK` or
  // `RT_FAILED`. A single value that cannot be read is null and no failure.
  int32_t (*collect)(void *state, const struct rt_tick *tick, const struct rt_reply *reply);
  // Frees the state. It is not used any more.
  void (*close)(void *state);
  // Says whether a configuration can be used, before anything runs. May be null. Since 1.1.
  int32_t (*check)(const struct rt_source *own, struct rt_text config, const struct rt_reply *reply);
} rt_source;

// A sink: where samples go. States are used as those of sources are, each on a thread of its own that may block.
typedef struct rt_sink {
  // `sizeof(rt_sink)` of the plugin.
  size_t size;
  // Its name, as that of a source.
  struct rt_text name;
  // What it does, in one line.
  struct rt_text description;
  // Its configuration when the user says nothing: a JSON object with every key.
  struct rt_text default_config;
  // The JSON Schema of its configuration. Empty for none.
  struct rt_text config_schema;
  // How long the end of the run waits for it while it makes no progress, in nanoseconds; 0 for the usual 2 s.
  uint64_t patience_ns;
  // Opens the destination, when the run begins. As `rt_source.open`.
  int32_t (*open)(const struct rt_sink *own,
                  const struct rt_host *host,
                  struct rt_text config,
                  void **state,
                  const struct rt_reply *reply);
  // The run begins. `run` is a JSON object: `program`, `version`, `job`, `command`, `pid`, `interval_secs`,
  // `started_ms`. May be null.
  int32_t (*start)(void *state, struct rt_text run, const struct rt_reply *reply);
  // Takes one sample, whole or not at all: the JSON object that the tracker prints, without a line end.
  int32_t (*write)(void *state, struct rt_text sample, const struct rt_reply *reply);
  // The run has ended: flush. `outcome` is a JSON object: `exit_code` and `signal`, of which one or both are null.
  // May be null.
  int32_t (*finish)(void *state, struct rt_text outcome, const struct rt_reply *reply);
  // Frees the state.
  void (*close)(void *state);
  // As `rt_source.check`. Since 1.1.
  int32_t (*check)(const struct rt_sink *own, struct rt_text config, const struct rt_reply *reply);
} rt_sink;

// A derivation: what follows from what the sources saw in one sample. States are used as those of sources are. The
// sample waits for the answer, a quarter of the interval or 50 ms, and then goes on without. Since 1.2.
typedef struct rt_derivation {
  // `sizeof(rt_derivation)` of the plugin.
  size_t size;
  // Its name, as that of a source. No other derivation may have it.
  struct rt_text name;
  // What it adds, in one line.
  struct rt_text description;
  // Makes a state, at the first sample. `run` is what `rt_sink.start` gets. The rest is as in `rt_source.open`.
  int32_t (*open)(const struct rt_derivation *own,
                  const struct rt_host *host,
                  struct rt_text run,
                  void **state,
                  const struct rt_reply *reply);
  // Looks at one sample, the JSON object that the tracker prints without what derivations add, and writes one JSON
  // object: the name of each section, and the section.
  int32_t (*derive)(void *state, const struct rt_tick *tick, struct rt_text sample, const struct rt_reply *reply);
  // Frees the state.
  void (*close)(void *state);
} rt_derivation;

// What a plugin consists of. It stays as it is until the process ends, with all that it points to: a plugin is never
// unloaded.
typedef struct rt_plugin {
  // `sizeof(rt_plugin)` of the plugin.
  size_t size;
  // `RT_ABI_MAJOR` that it was built with.
  uint16_t abi_major;
  // `RT_ABI_MINOR` that it was built with.
  uint16_t abi_minor;
  // The lowest minor version of a tracker that it works with.
  uint32_t abi_minor_needed;
  // Its name.
  struct rt_text name;
  // Its version.
  struct rt_text version;
  // The sections that its sources and derivations write: a JSON object of the name of each and its JSON Schema, where properties have
  // `description`, `unit` and `kind` (`gauge`, `counter`, `delta` or `info`).
  struct rt_text sections;
  // Its sources.
  const struct rt_source *const *sources;
  // Number of them.
  size_t source_count;
  // Its sinks.
  const struct rt_sink *const *sinks;
  // Number of them.
  size_t sink_count;
  // Its derivations. Since 1.2.
  const struct rt_derivation *const *derivations;
  // Number of them. Since 1.2.
  size_t derivation_count;
} rt_plugin;


/* Whether a struct that was handed over has this field. */
#define RT_HAS(pointer, type, field) \
    ((pointer)->size >= offsetof(type, field) + sizeof((pointer)->field))

/* A string literal as the initialiser of an rt_text; as a value, (rt_text)RT_TEXT("…"). */
#define RT_TEXT(string) {(const uint8_t *)(string), sizeof(string) - 1}

#ifdef __cplusplus
extern "C" {
#endif

/* What a plugin exports. It is told the tracker's version, RT_ABI_MAJOR << 16 | RT_ABI_MINOR, and returns NULL when it
   does not work with it. */
__attribute__((visibility("default"))) const rt_plugin *resource_tracker_plugin(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

/* Where everything lies, as the tracker has it. */
#if UINTPTR_MAX == UINT64_MAX && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(rt_text) == 16, "rt_text");
_Static_assert(offsetof(rt_text, bytes) == 0, "rt_text.bytes");
_Static_assert(offsetof(rt_text, length) == 8, "rt_text.length");
_Static_assert(sizeof(rt_reply) == 32, "rt_reply");
_Static_assert(offsetof(rt_reply, size) == 0, "rt_reply.size");
_Static_assert(offsetof(rt_reply, context) == 8, "rt_reply.context");
_Static_assert(offsetof(rt_reply, write) == 16, "rt_reply.write");
_Static_assert(offsetof(rt_reply, fail) == 24, "rt_reply.fail");
_Static_assert(sizeof(rt_host) == 64, "rt_host");
_Static_assert(offsetof(rt_host, size) == 0, "rt_host.size");
_Static_assert(offsetof(rt_host, abi_minor) == 8, "rt_host.abi_minor");
_Static_assert(offsetof(rt_host, flags) == 12, "rt_host.flags");
_Static_assert(offsetof(rt_host, context) == 16, "rt_host.context");
_Static_assert(offsetof(rt_host, log) == 24, "rt_host.log");
_Static_assert(offsetof(rt_host, procfs) == 32, "rt_host.procfs");
_Static_assert(offsetof(rt_host, sysfs) == 48, "rt_host.sysfs");
_Static_assert(sizeof(rt_tick) == 64, "rt_tick");
_Static_assert(offsetof(rt_tick, size) == 0, "rt_tick.size");
_Static_assert(offsetof(rt_tick, number) == 8, "rt_tick.number");
_Static_assert(offsetof(rt_tick, timestamp_ns) == 16, "rt_tick.timestamp_ns");
_Static_assert(offsetof(rt_tick, elapsed_ns) == 24, "rt_tick.elapsed_ns");
_Static_assert(offsetof(rt_tick, flags) == 32, "rt_tick.flags");
_Static_assert(offsetof(rt_tick, root_pid) == 36, "rt_tick.root_pid");
_Static_assert(offsetof(rt_tick, pids) == 40, "rt_tick.pids");
_Static_assert(offsetof(rt_tick, pid_count) == 48, "rt_tick.pid_count");
_Static_assert(offsetof(rt_tick, interval_ns) == 56, "rt_tick.interval_ns");
_Static_assert(sizeof(rt_source) == 120, "rt_source");
_Static_assert(offsetof(rt_source, size) == 0, "rt_source.size");
_Static_assert(offsetof(rt_source, name) == 8, "rt_source.name");
_Static_assert(offsetof(rt_source, description) == 24, "rt_source.description");
_Static_assert(offsetof(rt_source, default_config) == 40, "rt_source.default_config");
_Static_assert(offsetof(rt_source, config_schema) == 56, "rt_source.config_schema");
_Static_assert(offsetof(rt_source, flags) == 72, "rt_source.flags");
_Static_assert(offsetof(rt_source, order) == 76, "rt_source.order");
_Static_assert(offsetof(rt_source, cadence_ns) == 80, "rt_source.cadence_ns");
_Static_assert(offsetof(rt_source, open) == 88, "rt_source.open");
_Static_assert(offsetof(rt_source, collect) == 96, "rt_source.collect");
_Static_assert(offsetof(rt_source, close) == 104, "rt_source.close");
_Static_assert(offsetof(rt_source, check) == 112, "rt_source.check");
_Static_assert(sizeof(rt_sink) == 128, "rt_sink");
_Static_assert(offsetof(rt_sink, size) == 0, "rt_sink.size");
_Static_assert(offsetof(rt_sink, name) == 8, "rt_sink.name");
_Static_assert(offsetof(rt_sink, description) == 24, "rt_sink.description");
_Static_assert(offsetof(rt_sink, default_config) == 40, "rt_sink.default_config");
_Static_assert(offsetof(rt_sink, config_schema) == 56, "rt_sink.config_schema");
_Static_assert(offsetof(rt_sink, patience_ns) == 72, "rt_sink.patience_ns");
_Static_assert(offsetof(rt_sink, open) == 80, "rt_sink.open");
_Static_assert(offsetof(rt_sink, start) == 88, "rt_sink.start");
_Static_assert(offsetof(rt_sink, write) == 96, "rt_sink.write");
_Static_assert(offsetof(rt_sink, finish) == 104, "rt_sink.finish");
_Static_assert(offsetof(rt_sink, close) == 112, "rt_sink.close");
_Static_assert(offsetof(rt_sink, check) == 120, "rt_sink.check");
_Static_assert(sizeof(rt_derivation) == 64, "rt_derivation");
_Static_assert(offsetof(rt_derivation, size) == 0, "rt_derivation.size");
_Static_assert(offsetof(rt_derivation, name) == 8, "rt_derivation.name");
_Static_assert(offsetof(rt_derivation, description) == 24, "rt_derivation.description");
_Static_assert(offsetof(rt_derivation, open) == 40, "rt_derivation.open");
_Static_assert(offsetof(rt_derivation, derive) == 48, "rt_derivation.derive");
_Static_assert(offsetof(rt_derivation, close) == 56, "rt_derivation.close");
_Static_assert(sizeof(rt_plugin) == 112, "rt_plugin");
_Static_assert(offsetof(rt_plugin, size) == 0, "rt_plugin.size");
_Static_assert(offsetof(rt_plugin, abi_major) == 8, "rt_plugin.abi_major");
_Static_assert(offsetof(rt_plugin, abi_minor) == 10, "rt_plugin.abi_minor");
_Static_assert(offsetof(rt_plugin, abi_minor_needed) == 12, "rt_plugin.abi_minor_needed");
_Static_assert(offsetof(rt_plugin, name) == 16, "rt_plugin.name");
_Static_assert(offsetof(rt_plugin, version) == 32, "rt_plugin.version");
_Static_assert(offsetof(rt_plugin, sections) == 48, "rt_plugin.sections");
_Static_assert(offsetof(rt_plugin, sources) == 64, "rt_plugin.sources");
_Static_assert(offsetof(rt_plugin, source_count) == 72, "rt_plugin.source_count");
_Static_assert(offsetof(rt_plugin, sinks) == 80, "rt_plugin.sinks");
_Static_assert(offsetof(rt_plugin, sink_count) == 88, "rt_plugin.sink_count");
_Static_assert(offsetof(rt_plugin, derivations) == 96, "rt_plugin.derivations");
_Static_assert(offsetof(rt_plugin, derivation_count) == 104, "rt_plugin.derivation_count");
#endif

#endif  /* RESOURCE_TRACKER_PLUGIN_H */
