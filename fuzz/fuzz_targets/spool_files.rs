//! The files of a run in the spool. It waits for the disk, unless TMPDIR is in memory.
#![no_main]

use std::sync::LazyLock;

static DIRECTORY: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("there is room"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let spool = DIRECTORY.path().join("spool");
    resource_tracker_sinks::sentinel::fuzzing::spool_files(&spool, bytes).expect("what was made can be removed");
    assert_eq!(std::fs::read_dir(&spool).expect("it is there").count(), 0);
});
