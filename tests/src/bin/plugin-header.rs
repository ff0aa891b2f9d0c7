//! Prints the C header of the plugin interface, from the Rust types that define it.

use std::collections::HashMap;
use std::fmt::Write;

use cbindgen::{Config, DocumentationStyle, EnumConfig, Language, Style};
use resource_tracker_core::plugin::layout::LAYOUTS;

const NAMES: [(&str, &str); 8] = [
    ("Text", "rt_text"),
    ("Reply", "rt_reply"),
    ("HostTable", "rt_host"),
    ("TickTable", "rt_tick"),
    ("SourceTable", "rt_source"),
    ("SinkTable", "rt_sink"),
    ("DerivationTable", "rt_derivation"),
    ("PluginTable", "rt_plugin"),
];

const HEAD: &str = "/* The plugin interface of resource-tracker, version 1.2.

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

   This file is made from core/src/plugin/abi.rs. */";

const TAIL: &str = "
/* Whether a struct that was handed over has this field. */
#define RT_HAS(pointer, type, field) \\
    ((pointer)->size >= offsetof(type, field) + sizeof((pointer)->field))

/* A string literal as the initialiser of an rt_text; as a value, (rt_text)RT_TEXT(\"…\"). */
#define RT_TEXT(string) {(const uint8_t *)(string), sizeof(string) - 1}

#ifdef __cplusplus
extern \"C\" {
#endif

/* What a plugin exports. It is told the tracker's version, RT_ABI_MAJOR << 16 | RT_ABI_MINOR, and returns NULL when it
   does not work with it. */
__attribute__((visibility(\"default\"))) const rt_plugin *resource_tracker_plugin(uint32_t abi_version);

#ifdef __cplusplus
}
#endif

/* Where everything lies, as the tracker has it. */
#if UINTPTR_MAX == UINT64_MAX && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
";

fn main() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/plugin/abi.rs");
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        include_guard: Some("RESOURCE_TRACKER_PLUGIN_H".into()),
        header: Some(HEAD.into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        usize_is_size_t: true,
        cpp_compat: true,
        documentation: true,
        documentation_style: DocumentationStyle::C99,
        line_length: 120,
        enumeration: EnumConfig::default(),
        ..Config::default()
    };
    config.export.rename = HashMap::from(NAMES.map(|(rust, c)| (rust.to_owned(), c.to_owned())));
    config.export.include = NAMES.iter().map(|(rust, _)| (*rust).to_owned()).collect();
    config.export.exclude = vec!["Entry".to_owned()];
    let bindings = cbindgen::Builder::new().with_src(directory).with_config(config).generate().expect("it is plain C");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("it is text");
    let end = header.rfind("#endif  /* RESOURCE_TRACKER_PLUGIN_H */").expect("it has a guard");
    let mut tail = TAIL.to_owned();
    for layout in LAYOUTS {
        let name = layout.name;
        let _ = writeln!(tail, "_Static_assert(sizeof({name}) == {}, \"{name}\");", layout.size);
        for (field, offset) in layout.fields {
            let _ = writeln!(tail, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    }
    tail.push_str("#endif\n\n");
    print!("{}{tail}{}", &header[..end], &header[end..]);
}
