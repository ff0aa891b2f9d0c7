//! The `resource-tracker` binary.
#![no_main]

resource_tracker::main!();
