//! What a plugin's source wrote, on its way into a sample.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| resource_tracker_core::fuzzing::plugin_answer(bytes));
