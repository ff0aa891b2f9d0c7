//! The files of a run in the spool.
#![no_main]

use std::sync::LazyLock;

static DIRECTORY: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("there is room"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let spooled = resource_tracker_sinks::sentinel::fuzzing::spool_files(DIRECTORY.path(), bytes);
    spooled.expect("what was made can be removed");
    assert_eq!(std::fs::read_dir(DIRECTORY.path()).expect("it is there").count(), 0);
});
