//! `run.json` in the spool.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| resource_tracker_sinks::sentinel::fuzzing::run_json(bytes));
