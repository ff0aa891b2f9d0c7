//! What the Sentinel service, or the store, answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| resource_tracker_sinks::sentinel::fuzzing::service_answer(bytes));
