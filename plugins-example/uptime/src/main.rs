//! The whole command line of resource-tracker, with one more source and one more sink.
#![no_main]

// Linking it registers them.
use uptime as _;

resource_tracker::main!();
