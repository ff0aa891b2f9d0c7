//! What the metadata service of a cloud answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| resource_tracker_sources::fuzzing::metadata_answer(bytes));
