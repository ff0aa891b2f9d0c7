//! Where each field of the contract lies, on machines with pointers of 64 bits. The header asserts the same in C, so that
//! neither side can change without the other.

use std::mem::{offset_of, size_of};

use super::abi::{DerivationTable, HostTable, PluginTable, Reply, SinkTable, SourceTable, Text, TickTable};

/// A struct of the contract.
pub struct Layout {
    /// Its name in C.
    pub name: &'static str,
    /// Bytes that it takes.
    pub size: usize,
    /// Its fields, and the byte at which each begins.
    pub fields: &'static [(&'static str, usize)],
}

macro_rules! layouts {
    ($($type:ident $name:literal $size:literal { $($field:ident $offset:literal),* $(,)? })*) => {
        /// All structs of the contract.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            name: $name,
            size: $size,
            fields: &[$((stringify!($field), $offset)),*],
        }),*];

        #[cfg(target_pointer_width = "64")]
        const _: () = {
            $(
                assert!(size_of::<$type>() == $size);
                $(assert!(offset_of!($type, $field) == $offset);)*
            )*
        };
    };
}

layouts! {
    Text "rt_text" 16 { bytes 0, length 8 }
    Reply "rt_reply" 32 { size 0, context 8, write 16, fail 24 }
    HostTable "rt_host" 64 { size 0, abi_minor 8, flags 12, context 16, log 24, procfs 32, sysfs 48 }
    TickTable "rt_tick" 64 {
        size 0, number 8, timestamp_ns 16, elapsed_ns 24, flags 32, root_pid 36, pids 40, pid_count 48, interval_ns 56,
    }
    SourceTable "rt_source" 120 {
        size 0, name 8, description 24, default_config 40, config_schema 56, flags 72, order 76, cadence_ns 80, open 88,
        collect 96, close 104, check 112,
    }
    SinkTable "rt_sink" 128 {
        size 0, name 8, description 24, default_config 40, config_schema 56, patience_ns 72, open 80, start 88, write 96,
        finish 104, close 112, check 120,
    }
    DerivationTable "rt_derivation" 64 { size 0, name 8, description 24, open 40, derive 48, close 56 }
    PluginTable "rt_plugin" 112 {
        size 0, abi_major 8, abi_minor 10, abi_minor_needed 12, name 16, version 32, sections 48, sources 64,
        source_count 72, sinks 80, sink_count 88, derivations 96, derivation_count 104,
    }
}

/// The least that a plugin's structs can take.
pub(super) struct Sizes {
    pub(super) plugin: usize,
    pub(super) source: usize,
    pub(super) sink: usize,
    pub(super) derivation: usize,
}

/// As they were in version 1.0, whatever has been added since. (Derivations as they were in 1.2.)
#[cfg(target_pointer_width = "64")]
pub(super) const LEAST_SIZES: Sizes = Sizes { plugin: 96, source: 112, sink: 120, derivation: 64 };

/// The same for other machines, whose alignment differs: up to the end of the last field of 1.0, a pointer.
#[cfg(not(target_pointer_width = "64"))]
pub(super) const LEAST_SIZES: Sizes = Sizes {
    plugin: offset_of!(PluginTable, sink_count) + size_of::<usize>(),
    source: offset_of!(SourceTable, close) + size_of::<usize>(),
    sink: offset_of!(SinkTable, close) + size_of::<usize>(),
    derivation: offset_of!(DerivationTable, close) + size_of::<usize>(),
};

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// The header of 1.0, compiled by another program, is in the tests of the whole binary.
    #[test]
    fn the_least_sizes_end_with_the_last_fields_of_then() {
        let ends = |name: &str, field: &str| {
            let layout = LAYOUTS.iter().find(|layout| layout.name == name).unwrap();
            layout.fields.iter().find(|(other, _)| *other == field).unwrap().1 + size_of::<usize>()
        };
        let Sizes { plugin, source, sink, derivation } = LEAST_SIZES;
        assert_eq!(plugin, ends("rt_plugin", "sink_count"));
        assert_eq!((source, sink), (ends("rt_source", "close"), ends("rt_sink", "close")));
        assert_eq!(derivation, ends("rt_derivation", "close"));
    }
}
