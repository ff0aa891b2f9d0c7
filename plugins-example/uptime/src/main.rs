//! The whole command line of resource-tracker, with one more source and one more sink.
#![no_main]

mod sink;
mod source;

resource_tracker::main!();
