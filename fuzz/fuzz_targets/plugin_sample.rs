//! A sample as JSON, on its way into a plugin's sink.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| resource_tracker_core::fuzzing::plugin_sample(text));
